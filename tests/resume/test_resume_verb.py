"""`clearl resume`, `--overwrite`, and what a directory must hold to be gone on with."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from interrupted import CrashError, crash
from whole_runs import rows, small_config, state

from clearl.cli.main import main
from clearl.config import from_yaml
from clearl.errors import RunDirectoryError
from clearl.experiment import run
from clearl.records.run_dir import RunDir

CONFIG = small_config(cycles=1, frames_per_visit=300)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("crashed") / "run"
    crash(CONFIG, out, at=lambda row: row["kind"] == "train" and row["frames"] > 200)
    return out


@pytest.fixture
def broken(crashed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(crashed, tmp_path / "run"))


def test_resume_needs_no_flags(broken: Path, capsys) -> None:
    assert main(["resume", str(broken), "--quiet"]) == 0
    assert rows(broken, "resume") and state(broken)["finished"]
    assert from_yaml((broken / "config.yaml").read_text()) == CONFIG
    assert "finished" in capsys.readouterr().out


def test_what_does_not_touch_learning_may_change_and_stays_changed(broken: Path, monkeypatch) -> None:
    at = rows(broken)[-1]["frames"]
    flags = ["--eval-every-frames", "100", "--eval-episodes", "1", "--checkpoint-every-frames", "none"]
    assert main(["resume", str(broken), "--quiet", *flags, "--arm", "a new name", "--learner-threads", "1"]) == 0
    frames = sorted({row["frames"] for row in rows(broken, "eval") if row["frames"] > at})
    assert len(frames) >= 2 and all(row["episodes"] == 1 for row in rows(broken, "eval") if row["frames"] > at)
    changed = RunDir.open(broken)
    assert from_yaml(changed.config_text).eval_every_frames == 100
    assert changed.meta["arm"] == "a new name"


def test_workers_device_and_mirrors_may_change(broken: Path) -> None:
    shutil.rmtree(broken)
    crash(replace(CONFIG, runtime="local", workers=1), broken, at=lambda row: row["kind"] == "train")
    flags = ["--workers", "2", "--device", "cpu", "--tensorboard"]
    assert main(["resume", str(broken), "--quiet", *flags]) == 0
    changed = from_yaml(RunDir.open(broken).config_text)
    assert (changed.workers, changed.device, changed.tensorboard) == (2, "cpu", True)
    assert state(broken)["finished"] and list(broken.rglob("*tfevents*"))
    seconds = [row["seconds"] for row in rows(broken, "train") if "seconds" in row]
    assert "worker-1" in seconds[-1]


def test_a_finished_run_takes_another_name_for_reports(broken: Path, tmp_path: Path, capsys) -> None:
    assert main(["resume", str(broken), "--quiet"]) == 0
    recorded = rows(broken)
    assert main(["resume", str(broken), "--quiet", "--arm", "a new name"]) == 0
    assert "finished already" in capsys.readouterr().out
    assert RunDir.open(broken).meta["arm"] == "a new name" and rows(broken) == recorded
    assert main(["report", str(broken), "--out", str(tmp_path / "report")]) == 0
    assert "a new name" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flag", "value", "name"),
    [("--learning-rate", "0.1", "learning_rate"), ("--slots", "5", "slots"), ("--seed", "9", "seed")],
)
def test_what_touches_learning_is_refused_by_name(broken: Path, flag: str, value: str, name: str, capsys) -> None:
    before = {path: path.read_bytes() for path in broken.rglob("*") if path.is_file()}
    assert main(["resume", str(broken), "--quiet", flag, value]) == 2
    assert f"{name}: " in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in broken.rglob("*") if path.is_file()}


def test_a_crash_between_the_new_config_and_the_new_meta_is_made_good(broken: Path, monkeypatch) -> None:
    writes: list[int] = []
    update = RunDir.update_meta

    def crash_at_second(self: RunDir, **fields: Any) -> None:
        writes.append(1)
        if len(writes) == 2:
            raise CrashError
        update(self, **fields)

    with monkeypatch.context() as patch, pytest.raises(CrashError):
        patch.setattr(RunDir, "update_meta", crash_at_second)
        RunDir.open(broken).change_config((broken / "config.yaml").read_text().replace("seed: 3", "seed: 3 "))
    assert main(["resume", str(broken), "--quiet"]) == 0


def test_overwrite_starts_anew_and_leaves_what_is_not_of_the_run(broken: Path, capsys) -> None:
    (broken / "notes.txt").write_text("mine")
    command = ["run", "--config", str(broken / "config.yaml"), "--out", str(broken), "--seed", "7", "--quiet"]
    assert main(command) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main([*command, "--slots", "100000", "--overwrite"]) == 2
    assert RunDir.open(broken).meta["seed"] == 3, "a command that fails its checks deletes nothing"
    assert main([*command, "--overwrite"]) == 0
    assert RunDir.open(broken).meta["seed"] == 7 and not rows(broken, "resume")
    assert (broken / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("status", ["failed", "interrupted", "running"])
def test_a_run_without_its_checkpoints_is_refused_and_keeps_its_rows(broken: Path, status: str) -> None:
    RunDir.open(broken).set_status(status)  # pyright: ignore[reportArgumentType]
    shutil.rmtree(broken / "checkpoints")
    before = (broken / "metrics.jsonl").read_bytes()
    with pytest.raises(RunDirectoryError, match="lost its checkpoints"):
        run(CONFIG, broken, console=False)
    assert (broken / "metrics.jsonl").read_bytes() == before


def test_a_run_that_died_before_its_first_checkpoint_starts_again(tmp_path: Path) -> None:
    crash(CONFIG, tmp_path / "run", at=lambda row: row["kind"] == "eval")
    assert run(CONFIG, tmp_path / "run", console=False).status == "finished"


def test_every_resume_is_told_even_if_no_checkpoint_followed(broken: Path) -> None:
    for _ in range(3):
        crash(CONFIG, broken, at=lambda row: row["kind"] == "resume")
    run(CONFIG, broken, console=False)
    assert len(rows(broken, "resume")) == 4


def test_the_run_stays_where_it_was_asked_for_if_an_environment_changes_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wanderer.py").write_text(
        "import os, gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Wanderer(CartPoleEnv):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        os.chdir('/')\n"
        "gymnasium.register('Wanderer-v0', Wanderer, max_episode_steps=20)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    config = small_config(suite="gym:wanderer:Wanderer-v0", tasks=(), torso="mlp", cycles=1, frames_per_visit=100)
    result = run(config, Path("run"), console=False)
    assert result.path == tmp_path / "run"
    assert json.loads((tmp_path / "run" / "meta.json").read_text())["status"] == "finished"


def test_a_part_of_a_separate_run_names_the_whole(tmp_path: Path, capsys) -> None:
    config = small_config(cycles=1, frames_per_visit=100, protocol="separate")
    run(config, tmp_path / "run", console=False)
    assert main(["resume", str(tmp_path / "run" / "breakout"), "--quiet"]) == 2
    assert str(tmp_path / "run") in capsys.readouterr().err
    assert main(["resume", str(tmp_path / "run"), "--quiet"]) == 0
