"""Paths of any letters, and run directories that may only be read."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from whole_runs import SWEEP, rows, small_config

import clearl
from clearl.cli.main import main
from clearl.experiment import run

TINY = [
    *("--suite", "minatar", "--slots", "4", "--batch-unrolls", "2", "--unroll-steps", "8", "--quiet"),
    *("--frames-per-visit", "64", "--eval-every-frames", "64", "--eval-episodes", "1", "--eval-max-steps", "5"),
]


def test_every_verb_takes_blanks_quotes_and_other_alphabets(tmp_path: Path, monkeypatch, capsys) -> None:
    place = tmp_path / "my runs – 名前 $x 'q' \"d\" [b] %41"
    place.mkdir()
    monkeypatch.chdir(place)
    Path("a sweep.yaml").write_text(SWEEP)
    named = {"a": "run a", "b": "run ü", "report": "a report", "agent": "an agent"}
    commands = [
        ["run", *TINY, "--tasks", "breakout", "--runtime", "local", "--workers", "1", "--replay-store", "disk",
         "--out", named["a"]],
        ["resume", named["a"], "--quiet"],
        ["run", "--from", named["a"], "--out", named["b"], "--tasks", "asterix", "--runtime", "inline", "--quiet"],
        ["run", "--extend", named["b"], "--tasks", "freeway", "--quiet"],
        ["eval", named["b"], "--episodes", "1", "--json", "the scores.json"],
        ["video", named["b"], "--max-steps", "2"],
        ["export", named["b"], "--out", named["agent"], "--card"],
        ["memory", named["b"], "--figure", "a figure.png"],
        ["forget", named["b"], "--task", "breakout"],
        ["report", named["a"], named["b"], "--out", named["report"]],
        ["leaderboard", named["a"], "--out", "a board"],
        ["sweep", "a sweep.yaml", "--out", "a sweep"],
    ]  # fmt: skip
    for command in commands:
        assert main(command) == 0, (command, capsys.readouterr().err)
    assert {row["task"] for row in rows(place / named["b"], "eval")} == {"breakout", "asterix", "freeway"}
    assert clearl.load_agent(named["agent"]).tasks.keys() >= {"breakout"}
    made = ["the scores.json", "a figure.png", f"{named['b']}/videos/breakout.gif", f"{named['report']}/index.html"]
    assert [file for file in made if not Path(file).is_file()] == []
    assert not [path for path in tmp_path.iterdir() if path != place]


def test_a_run_that_may_only_be_read_is_played_reported_exported_and_continued(tmp_path: Path) -> None:
    source = tmp_path / "run"
    run(small_config(cycles=1, frames_per_visit=100, keep_replay=True), source, console=False)
    before = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    command, environ = (
        [sys.executable, __file__, str(tmp_path)],
        {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    child = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environ)
    if child.returncode == 77:
        pytest.skip("no read-only mounts here")
    assert child.returncode == 0, child.stderr
    codes = json.loads((tmp_path / "codes.json").read_text())
    assert codes == {
        "eval": 0, "memory": 0, "video": 0, "export": 0, "report": 0, "leaderboard": 0, "run --from": 0,
        "resume": 0, "video inside": 1, "forget": 1, "run --extend": 1,
    }  # fmt: skip
    refusals = [line for line in child.stderr.splitlines() if "Read-only file system" in line]
    assert len(refusals) == 3 and all("give a place that you may write to" in line for line in refusals)
    assert "Traceback" not in child.stderr
    assert {path: path.read_bytes() for path in source.rglob("*") if path.is_file()} == before
    assert rows(tmp_path / "copy", "segment")[-1]["tasks"] == ["asterix"]


def _all_verbs(place: Path) -> None:
    """Run the verbs on a run that this process sees on a read-only disk; write down the exit codes."""
    if not _mounted_read_only(place / "run"):
        sys.exit(77)
    source, going_on = str(place / "run"), ["--tasks", "asterix", "--frames-per-visit", "100", "--quiet"]
    commands = {
        "eval": ["eval", source, "--episodes", "1", "--json", str(place / "scores.json")],
        "memory": ["memory", source],
        "video": ["video", source, "--max-steps", "2", "--out", str(place / "film.gif")],
        "export": ["export", source, "--out", str(place / "agent")],
        "report": ["report", source, "--out", str(place / "report")],
        "leaderboard": ["leaderboard", source, "--out", str(place / "board")],
        "run --from": ["run", "--from", source, "--out", str(place / "copy"), *going_on],
        "resume": ["resume", source, "--quiet"],
        "video inside": ["video", source, "--max-steps", "2"],
        "forget": ["forget", source, "--task", "breakout"],
        "run --extend": ["run", "--extend", source, *going_on],
    }
    codes = {name: main(command) for name, command in commands.items()}
    (place / "codes.json").write_text(json.dumps(codes))


def _mounted_read_only(path: Path) -> bool:
    new_mounts, new_user, recursive, private = 0x00020000, 0x10000000, 0x4000, 0x40000
    bind, remount, read_only = 0x1000, 0x20, 0x1
    libc, name = ctypes.CDLL(None, use_errno=True), os.fsencode(path)
    return (
        (libc.unshare(new_mounts) == 0 or libc.unshare(new_mounts | new_user) == 0)
        and libc.mount(b"none", b"/", None, recursive | private, None) == 0
        and libc.mount(name, name, None, bind, None) == 0
        and libc.mount(name, name, None, bind | remount | read_only, None) == 0
    )


if __name__ == "__main__":
    _all_verbs(Path(sys.argv[1]))
