"""`clearl memory` tells what replay holds, of runs at rest and running, whole and damaged, and touches nothing."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from two_tasks import SMALL, files

from clearl.cli.main import main
from clearl.config import RunConfig
from clearl.experiment import run
from clearl.memory import read_memory
from clearl.records.run_dir import RunDir

FIRST = SMALL
OLD_RUN = Path(__file__).parents[1] / "data" / "version-0.1" / "finished"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    assert main(["memory", *arguments]) == 0
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_frames_bytes_ages_and_returns_by_task(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, stamps = files(first), {path: path.stat().st_mtime_ns for path in first.rglob("*")}
    told = json.loads(printed(capsys, str(first), "--json")[0])
    tasks = told["tasks"]
    assert tasks.keys() == {"breakout", "freeway"} and told["damaged"] == [] and told["lost"] == 0
    assert sum(task["unrolls"] for task in tasks.values()) == 4 * 25, "the buffer is full"
    assert all(task["frames"] == 5 * task["unrolls"] for task in tasks.values())
    assert told["frames"] == 810 and tasks["breakout"]["newest_age_frames"] == 810 - 400
    assert tasks["freeway"]["newest_age_frames"] == 10 < tasks["freeway"]["oldest_age_frames"] <= 810 - 420
    assert tasks["breakout"]["median_age_frames"] > tasks["freeway"]["median_age_frames"]
    assert tasks["breakout"]["mean_return"] >= 0
    assert 0 < sum(task["nbytes"] for task in tasks.values()) <= told["disk_nbytes"]
    assert files(first) == before and stamps == {path: path.stat().st_mtime_ns for path in first.rglob("*")}


def test_the_table_fits_a_terminal_and_the_figure_is_drawn(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = printed(capsys, str(first), "--figure", str(tmp_path / "memory.png"))
    assert all(len(line) <= 80 for line in out.splitlines())
    assert [line.split()[0] for line in out.splitlines()[-3:]] == ["task", "breakout", "freeway"]
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG") and "memory.png" in err
    assert main(["memory", str(first), "--figure", str(tmp_path / "memory.doc")]) == 2
    assert "--figure must end in" in capsys.readouterr().err


def test_damaged_files_are_named_and_the_rest_is_read(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(shutil.copytree(first, tmp_path / "a"))
    file = path / "replay" / "slot-00001" / "00000000.seg"
    data = bytearray(file.read_bytes())
    data[100] ^= 0xFF
    file.write_bytes(data)
    out, err = printed(capsys, str(path))
    assert f"{file}: 1 damaged record" in err
    assert read_memory(path).unrolls >= 4 * 25 - 1 and "task" in out
    os.truncate(file, 50)
    assert read_memory(path).lost > 0 and "are lost" in printed(capsys, str(path))[0]


def test_a_run_that_trains_is_read_as_far_as_it_got(first: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(first, tmp_path / "a"))
    RunDir(path).set_status("running")
    seen: list[Any] = []
    with RunDir(path).locked():
        with open(path / "replay" / "slot-00000" / "00000000.seg", "ab") as file:
            file.write(b"CLR2 a record that is being written")
        seen.append(read_memory(path))
    assert seen[0].unrolls == 4 * 25 and seen[0].problems == ()


@pytest.mark.parametrize("changes", [{"replay_store": "ram"}, {"keep_replay": False}])
def test_a_buffer_that_is_gone_is_told_from_the_rows(tmp_path: Path, changes: dict[str, Any]) -> None:
    run(RunConfig(**{**SMALL, "frames_per_visit": 200, **changes}), tmp_path / "a", console=False)
    memory = read_memory(tmp_path / "a")
    assert "this is what it held at" in memory.note and memory.tasks["breakout"].unrolls > 0


def test_a_run_of_version_0_1_has_unknown_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = printed(capsys, str(OLD_RUN))
    assert out.splitlines()[-1].split()[0] == "unknown"
    path = Path(shutil.copytree(OLD_RUN, tmp_path / "run"))
    assert main(["forget", str(path), "--task", "unknown"]) == 0
    assert read_memory(path).unrolls == 0


def test_separate_runs_are_named_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(RunConfig(**{**SMALL, "frames_per_visit": 60, "protocol": "separate"}), tmp_path / "a", console=False)
    assert main(["memory", str(tmp_path / "a")]) == 2
    assert "name one of" in capsys.readouterr().err
