"""Training ends as planned whatever happens to stdout: pipes without a reader, full disks, narrow encodings."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clearl.cli.main import main

RUN = [
    *("run", "--suite", "minatar", "--tasks", "breakout", "--runtime", "inline", "--slots", "4"),
    *("--batch-unrolls", "4", "--unroll-steps", "5", "--frames-per-visit", "400", "--eval-every-frames", "100"),
    *("--eval-episodes", "2", "--eval-max-steps", "20", "--record-every-updates", "1"),
]
# Draws every row, so that the output is lost early and often.
LIVELY = "import clearl.records.console as c; c.PLAIN_EVERY_S = 0.0; from clearl.cli.main import main; "


def _start(out: Path, **options) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", f"{LIVELY}raise SystemExit(main())", *RUN, "--out", str(out)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)


def _status(out: Path) -> str:
    return json.loads((out / "meta.json").read_text())["status"]


def test_a_reader_that_leaves_does_not_end_the_training(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = _start(tmp_path / "run", stdout=writing)
    os.close(writing)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, _status(tmp_path / "run")) == (0, "finished")
    assert said == "clearl: the live view is switched off, training goes on: the reader of its output is gone\n"


def test_a_full_disk_under_the_log_does_not_end_the_training(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        process = _start(tmp_path / "run", stdout=full)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, _status(tmp_path / "run")) == (0, "finished")
    assert said.count("\n") == 1 and "No space left on device" in said


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_terminal_without_unicode_shows_the_view_and_the_report(tmp_path: Path, encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "FORCE_COLOR": "1", "COLUMNS": "100"}
    process = _start(tmp_path / "run", stdout=subprocess.PIPE, env=environment, encoding=encoding)
    shown, said = process.communicate(timeout=60)
    assert (process.returncode, said, _status(tmp_path / "run")) == (0, "", "finished")
    assert "> breakout" in shown and "finished" in shown
    command = [sys.executable, "-m", "clearl", "report", str(tmp_path / "run"), "--out", str(tmp_path / "report")]
    done = subprocess.run(command, env=environment, capture_output=True, encoding=encoding, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "breakout" in done.stdout


def test_a_run_started_without_standard_files_trains_to_its_end(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "clearl", *RUN[:5], *RUN[7:], "--out", str(tmp_path / "run")]
    done = subprocess.run(["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *command], timeout=60)
    assert (done.returncode, _status(tmp_path / "run")) == (0, "finished")


def test_lost_output_of_a_verb_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "clearl", "list"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 1
    assert done.stderr == "clearl: the output: No space left on device; make room, or write to another disk\n"


def test_rows_that_cannot_be_read_for_the_view_do_not_end_the_training(tmp_path: Path, capsys, monkeypatch) -> None:
    def fail(path: Path, **options: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr("clearl.experiment.scan_rows", fail)
    assert main([*RUN, "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr()
    assert shown.err == "clearl: the live view is switched off, training goes on: OSError: Input/output error\n"
    assert "finished" in shown.out and _status(tmp_path / "run") == "finished"
