"""The verbs on a tiny run: what is trained can be resumed, evaluated, watched, exported and loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import clearl
from clearl.cli.main import main
from clearl.config import from_yaml
from clearl.errors import CorruptFileError
from clearl.tasks.drawing import LINE_PIXELS

TINY = [
    *("--runtime", "inline", "--slots", "8", "--batch-unrolls", "8", "--frames-per-visit", "640"),
    *("--eval-every-frames", "640", "--eval-episodes", "2", "--eval-max-steps", "50"),
    *("--tasks", "breakout,breakout@1", "--quiet"),
]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verbs") / "run"
    assert main(["run", *TINY, "--out", str(path), "--seed", "1_0", "--no-lstm", "--grad-norm-clip", "none"]) == 0
    return path


def test_flags_reach_the_run(run_dir: Path):
    config = from_yaml((run_dir / "config.yaml").read_text())
    assert (config.seed, config.slots, config.frames_per_visit) == (10, 8, 640)
    assert config.tasks == ("breakout", "breakout@1")
    assert config.grad_norm_clip is None and config.lstm is False


def test_the_same_command_finds_the_run_finished_and_another_is_refused(run_dir: Path, capsys):
    command = ["run", *TINY, "--out", str(run_dir), "--seed", "10", "--grad-norm-clip", "none"]
    assert main(command) == 0
    capsys.readouterr()
    assert main([*command, "--entropy-weight", "0.5"]) == 2
    shown = capsys.readouterr().err
    assert "entropy_weight" in shown and "0.5" in shown


def test_a_runs_config_file_starts_the_same_run_elsewhere(run_dir: Path, tmp_path: Path):
    out = tmp_path / "again"
    assert main(["run", "--config", str(run_dir / "config.yaml"), "--out", str(out), "--quiet"]) == 0
    assert (out / "config.yaml").read_text() == (run_dir / "config.yaml").read_text()


def test_the_first_line_is_shown_before_the_imports_and_the_title_names_nothing_twice(tmp_path: Path):
    flags = [flag for flag in TINY if flag != "--quiet"]
    script = (
        "import builtins, sys; from clearl.cli.main import main; write = sys.stdout.write\n"
        "def first(text):\n"
        "    sys.stdout.write = write; assert 'torch' not in sys.modules; return write(text)\n"
        f"sys.stdout.write = first; sys.exit(main(['run', *{flags}, '--arm', 'sequential', '--out', 'here']))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "here: starting"
    assert any(line.startswith("sequential on minatar: ") for line in lines), lines


def test_eval_plays_every_task(run_dir: Path, tmp_path: Path, capsys):
    file = tmp_path / "scores.json"
    assert main(["eval", str(run_dir), "--episodes", "3", "--json", str(file)]) == 0
    evaluations = json.loads(file.read_text())["evaluations"]
    assert [(e["task"], len(e["scores"])) for e in evaluations] == [("breakout", 3), ("breakout@1", 3)]
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["eval", str(run_dir), "--tasks", "breakout@2"]) == 2


def test_eval_repeats_itself(run_dir: Path, tmp_path: Path):
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file in files:
        assert main(["eval", str(run_dir), "--episodes", "4", "--json", str(file)]) == 0
    assert files[0].read_text() == files[1].read_text()


def test_video_writes_moving_pictures(run_dir: Path, tmp_path: Path):
    from PIL import Image

    file = tmp_path / "play.gif"
    assert main(["video", str(run_dir), "--task", "breakout@1", "--out", str(file), "--max-steps", "12"]) == 0
    with Image.open(file) as picture:
        assert picture.size == (160, 160 + 2 * LINE_PIXELS + 4)
        assert 2 <= getattr(picture, "n_frames", 1) <= 13


def test_an_exported_agent_acts_as_the_run_does(run_dir: Path, tmp_path: Path):
    out = tmp_path / "agent"
    assert main(["export", str(run_dir), "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["agent.json", "agent.safetensors"]
    exported, original = clearl.load_agent(out), clearl.load_agent(run_dir)
    rng = np.random.default_rng(0)
    frames = rng.random((50, 10, 10, 10)) < 0.2
    actions = [exported.act(frame, channels=0) for frame in frames]
    assert actions == [original.act(frame, channels=0) for frame in frames]
    assert len(set(actions)) > 1
    assert main(["export", str(run_dir), "--out", str(out)]) == 2


def test_a_damaged_export_is_refused(run_dir: Path, tmp_path: Path):
    out = tmp_path / "agent"
    assert main(["export", str(run_dir), "--out", str(out)]) == 0
    weights = bytearray((out / "agent.safetensors").read_bytes())
    weights[-1] ^= 1
    (out / "agent.safetensors").write_bytes(weights)
    with pytest.raises(CorruptFileError, match="is damaged"):
        clearl.load_agent(out)


def test_list_shows_what_flags_take(capsys):
    assert main(["list", "presets", "protocols"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("presets: ") and "paper-atari" in shown[0]
    assert shown[1].startswith("protocols: sequential, simultaneous, separate, probe")


def test_check_passes_a_good_environment_and_says_what_is_wrong_with_a_bad_one(capsys):
    assert main(["check", "gym:CartPole-v1", "--steps", "300"]) == 0
    assert "CartPole-v1: fit for training" in capsys.readouterr().out
    assert main(["check", "gym:Pendulum-v1", "--steps", "300"]) == 0
    assert "rewards reach" in capsys.readouterr().out


def test_check_finds_modules_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "my_test_worlds.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('MyTestWorld-v0', 'gymnasium.envs.classic_control:CartPoleEnv', max_episode_steps=50)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    assert main(["check", "gym:MyTestWorld-v0", "--imports", "my_test_worlds", "--steps", "300"]) == 0


def test_doctor_tells_how_to_get_what_is_missing(capsys, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "clearl.doctor.find_spec", lambda name: None if name in ("deepmind_lab", "vizdoom") else object()
    )
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "- deepmind_lab" in shown and "bazel build" in shown
    assert "pip install 'clearl[vizdoom]'" in shown
    assert "free disk here" in shown


@pytest.mark.parametrize(("where", "said"), [("step", "step 3 did not return"), ("init", "making it did not return")])
def test_check_has_a_deadline(where: str, said: str, tmp_path: Path):
    (tmp_path / "stuck.py").write_text(
        "import time, gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Stuck(CartPoleEnv):\n"
        "    count = 0\n"
        "    def __init__(self, **options):\n"
        f"        time.sleep(60 if {where == 'init'} else 0)\n"
        "        super().__init__(**options)\n"
        "    def step(self, action):\n"
        "        Stuck.count += 1\n"
        f"        time.sleep(60 if Stuck.count == 4 and {where == 'step'} else 0)\n"
        "        return super().step(action)\n"
        "gymnasium.register('Stuck-v0', Stuck, max_episode_steps=50)\n"
    )
    command = [sys.executable, "-m", "clearl", "check", "gym:Stuck-v0", "--imports", "stuck", "--timeout-s", "0.5"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert said in done.stdout and "--timeout-s" in done.stdout
