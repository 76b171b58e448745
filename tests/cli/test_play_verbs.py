"""`eval`, `video`, `export` and `load_agent`: which checkpoint they use, separate runs, files that cannot be."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from interrupted import crash
from safetensors.torch import load_file, save
from whole_runs import small_config

import clearl
from clearl.cli.main import main
from clearl.errors import CorruptFileError, RunDirectoryError, UnknownNameError
from clearl.experiment import run
from clearl.records.schema import seal
from clearl.storage.checkpoints import Saved

VERBS = {"eval": ["--episodes", "1"], "video": ["--max-steps", "3"], "export": ["--out", "agent"]}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("play") / "run"
    run(small_config(cycles=1, frames_per_visit=300), out, console=False)
    return out


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that ended between two checkpoints of different frames and its end."""
    out = tmp_path_factory.mktemp("play") / "stopped"
    config = small_config(cycles=1, frames_per_visit=300, checkpoint_every_frames=100)
    crash(config, out, at=lambda row: row["kind"] == "train" and row["frames"] > 400)
    return out


@pytest.fixture(scope="module")
def separate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("play") / "separate"
    run(small_config(cycles=1, frames_per_visit=100, protocol="separate"), out, console=False)
    return out


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("verb", VERBS)
def test_a_damaged_newest_checkpoint_is_told_and_of_which_frames_the_other_is(verb, stopped, here, capsys) -> None:
    out = Path(shutil.copytree(stopped, here / "run"))
    older, newest = sorted((out / "checkpoints").iterdir())
    damaged = Path(shutil.copytree(newest, here / "newest"))
    (newest / "manifest.json").write_text("{}")
    assert main([verb, str(out), *VERBS[verb]]) == 0
    said = capsys.readouterr().err
    assert f"{newest.name} cannot be used" in said
    frames, later = (Saved(path).json["learner"]["state"]["counters"]["frames"] for path in (older, damaged))
    assert f"{older}, after {frames:,} frames" in said and frames < later


@pytest.mark.parametrize(
    "command",
    [
        "memory run", "forget run --task breakout --dry-run", "forget run --task breakout", "resume run --quiet",
        "run --extend run --tasks asterix --frames-per-visit 100 --dry-run",
        "run --from run --tasks asterix --frames-per-visit 100 --out next --quiet",
    ],
)  # fmt: skip
def test_every_other_verb_names_a_damaged_newest_checkpoint_too(
    command: str, stopped: Path, here: Path, capsys
) -> None:
    newest = _with_damaged_newest(stopped, here)
    assert main(command.split()) == 0
    assert capsys.readouterr().err.count(f"clearl: {newest.name} cannot be used") == 1


@pytest.mark.parametrize("verb", VERBS)
def test_a_run_without_its_checkpoints_has_lost_them(verb: str, trained: Path, here: Path, capsys) -> None:
    shutil.rmtree(Path(shutil.copytree(trained, here / "run")) / "checkpoints")
    assert main([verb, "run", *VERBS[verb]]) == 2
    assert "has lost its checkpoints" in capsys.readouterr().err


def test_python_warns_of_a_damaged_newest_checkpoint(stopped: Path, here: Path) -> None:
    newest = _with_damaged_newest(stopped, here)
    with pytest.warns(UserWarning, match=f"{newest.name} cannot be used"):
        clearl.load_agent("run")
    with pytest.warns(UserWarning, match=f"{newest.name} cannot be used"):
        assert clearl.run(resume_from="run", out="next", tasks=("asterix",), frames_per_visit=100).status == "finished"


def _with_damaged_newest(stopped: Path, here: Path) -> Path:
    newest = max((Path(shutil.copytree(stopped, here / "run")) / "checkpoints").iterdir())
    (newest / "manifest.json").write_text("{}")
    return newest


def test_a_whole_run_says_its_frames_and_nothing_else(trained: Path, here: Path, capsys) -> None:
    assert main(["eval", str(trained), "--episodes", "1", "--json", "scores.json"]) == 0
    assert capsys.readouterr().err.count("\n") == 1
    assert [e["frames"] for e in json.loads((here / "scores.json").read_text())["evaluations"]] == [600, 600]


def test_the_success_rate_is_shown_where_the_environment_tells_it(here: Path, trained: Path, capsys) -> None:
    robot = {"suite": "gym:Robot-v0", "tasks": (), "imports": ("robot_env",), "cycles": 1, "frames_per_visit": 100}
    run(small_config(**robot), here / "robot", console=False)
    assert main(["eval", "robot", "--episodes", "4", "--imports", "robot_env", "--json", "scores.json"]) == 0
    (scores,) = json.loads((here / "scores.json").read_text())["evaluations"]
    assert f", success rate {scores['success_rate']:.2f} over 4 episodes" in capsys.readouterr().out
    assert scores["success_rate"] in (0, 0.25, 0.5, 0.75, 1)
    assert main(["eval", str(trained), "--episodes", "1"]) == 0
    assert "success" not in capsys.readouterr().out


def test_a_separate_run_is_evaluated_and_filmed_task_by_task(separate: Path, here: Path, capsys) -> None:
    assert main(["eval", str(separate), "--episodes", "1"]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == ["breakout", "freeway"]
    assert main(["eval", str(separate), "--episodes", "1", "--tasks", "freeway"]) == 0
    assert capsys.readouterr().out.startswith("freeway")
    assert main(["eval", str(separate), "--tasks", "asterix"]) == 2
    assert main(["video", str(separate), "--max-steps", "3", "--task", "freeway"]) == 0
    assert (separate / "videos" / "freeway.gif").is_file()


def test_an_agent_of_a_separate_run_is_picked_by_its_task(separate: Path) -> None:
    assert clearl.load_agent(separate, task="freeway").act(np.zeros((10, 10, 7), bool)) >= 0
    with pytest.raises(UnknownNameError, match="asterix"):
        clearl.load_agent(separate, task="asterix")
    with pytest.raises(RunDirectoryError, match="task="):
        clearl.load_agent(separate)


def test_a_task_that_the_agent_of_all_tasks_does_not_know_is_refused(trained: Path, here: Path) -> None:
    assert clearl.load_agent(trained, task="freeway").tasks.keys() == {"breakout", "freeway"}
    assert main(["export", str(trained), "--out", "agent"]) == 0
    for path in (trained, here / "agent"):
        with pytest.raises(UnknownNameError, match="unknown task of this agent 'freewy'; did you mean 'freeway'"):
            clearl.load_agent(path, task="freewy")


def test_a_video_without_a_task_is_named_after_the_first(trained: Path) -> None:
    assert main(["video", str(trained), "--max-steps", "3"]) == 0
    assert (trained / "videos" / "breakout.gif").is_file()


def _reseal(agent: Path, **changes: object) -> None:
    about = {**json.loads((agent / "agent.json").read_text()), **changes}
    about.pop("crc")
    (agent / "agent.json").write_bytes(seal(json.dumps(about)))


def _weights(agent: Path, data: bytes) -> None:
    (agent / "agent.safetensors").write_bytes(data)
    _reseal(agent, weights_sha256=hashlib.sha256(data).hexdigest())


def _with_nan(agent: Path) -> None:
    tensors = load_file(agent / "agent.safetensors")
    first = next(iter(tensors))
    _weights(agent, save({**tensors, first: torch.full_like(tensors[first], torch.nan)}))


HARMS: dict[str, tuple[Callable[[Path], object], str]] = {
    "another version": (lambda agent: _reseal(agent, v=2), "version 2"),
    "garbage": (lambda agent: _weights(agent, b"garbage"), "holds no weights"),
    "no weights": (lambda agent: (agent / "agent.safetensors").unlink(), "cannot be read"),
    "NaN": (_with_nan, "NaN"),
    "a pipe": (lambda agent: [(agent / "agent.safetensors").unlink(), os.mkfifo(agent / "agent.safetensors")], "plain"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_strange_agent_is_refused_in_one_line(trained: Path, here: Path, harm: str) -> None:
    assert main(["export", str(trained), "--out", "agent"]) == 0
    assert clearl.load_agent("agent").act(np.zeros((10, 10, 7), bool)) >= 0
    do, said = HARMS[harm]
    do(here / "agent")
    with pytest.raises(CorruptFileError, match=said) as caught:
        clearl.load_agent("agent")
    assert "\n" not in str(caught.value)


def test_an_environment_that_changes_the_directory(here: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    (here / "elsewhere").mkdir()
    (here / "rover.py").write_text(
        "import os, gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Rover(CartPoleEnv):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        f"        os.chdir({str(here / 'elsewhere')!r})\n"
        "gymnasium.register('Rover-v0', Rover, max_episode_steps=20)\n"
    )
    monkeypatch.syspath_prepend(here)
    config = small_config(suite="gym:rover:Rover-v0", tasks=(), torso="mlp", cycles=1, frames_per_visit=100)
    run(config, Path("run"), console=False)
    commands = {
        "scores.json": ["eval", "run", "--episodes", "1", "--json", "scores.json"],
        "run/videos/rover-Rover-v0.gif": ["video", "run", "--max-steps", "2"],
        "film.gif": ["video", "run", "--max-steps", "2", "--out", "film.gif"],
        "agent/agent.json": ["export", "run", "--out", "agent"],
    }
    for file, command in commands.items():
        monkeypatch.chdir(here)
        assert main([*command, "--imports", "rover"]) == 0
        said = capsys.readouterr().out
        assert (here / file).is_file()
        assert command[0] == "eval" or file in said
    assert json.loads((here / "scores.json").read_text())["run"] == "run"
    assert list((here / "elsewhere").iterdir()) == []


def test_the_file_for_scores_is_tried_before_the_work(trained: Path, here: Path, monkeypatch, capsys) -> None:
    (here / "file").write_text("in the way")
    monkeypatch.setattr("clearl.play.Evaluator", None)  # playing would fail
    assert main(["eval", str(trained), "--episodes", "1", "--json", "file/scores.json"]) == 1
    assert ("file" in (said := capsys.readouterr().err) and "Not a directory" in said) or "File exists" in said
