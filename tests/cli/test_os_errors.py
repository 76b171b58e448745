"""Every verb reports a refusal of the operating system in one line, with path and remedy, and leaves no file."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from failing_calls import FailingCalls
from whole_runs import SWEEP, small_config

from clearl.cli.main import VERBS, main
from clearl.experiment import run

WRITING: dict[str, list[str]] = {
    "run": ["run", "--config", "RUN/config.yaml", "--quiet", "--out", "PLACE"],
    "demo": ["demo", "--fast", "--quiet", "--frames-per-visit", "80", "--runtime", "inline", "--out", "PLACE"],
    "reproduce": ["reproduce", "stability", "--scale", "smoke", "--out", "PLACE"],
    "sweep": ["sweep", "sweep.yaml", "--out", "PLACE"],
    "memory": ["memory", "RUN", "--figure", "PLACE/a.png"],
    "report": ["report", "RUN", "--out", "PLACE"],
    "leaderboard": ["leaderboard", "RUN", "--out", "PLACE"],
    "eval": ["eval", "RUN", "--episodes", "1", "--json", "PLACE/a.json"],
    "video": ["video", "RUN", "--max-steps", "2", "--out", "PLACE/a.gif"],
    "export": ["export", "RUN", "--out", "PLACE"],
    "bench": ["bench", "minatar", "--json", "PLACE/a.json"],
}
"""How each verb that writes where it is told is told so."""
READING: dict[str, list[str]] = {
    "resume": ["resume", "RUN", "--quiet"],
    "memory": ["memory", "RUN"],
    "forget": ["forget", "RUN", "--task", "freeway"],
    "report": ["report", "RUN"],
    "leaderboard": ["leaderboard", "RUN"],
    "eval": ["eval", "RUN", "--episodes", "1"],
    "video": ["video", "RUN", "--max-steps", "2"],
    "export": ["export", "RUN", "--out", "agent"],
    "push": ["push", "me/agent", "RUN"],
}
"""How each verb that reads a run is given one."""
NEITHER = {"check", "list", "doctor", "watch"}
PLACES = {
    "file in the way": lambda here: Path("file").write_text("in the way") and "file/x",
    "no such device": lambda here: "/proc/x",
    "name too long": lambda here: "x" * 300,
    "dangling link": lambda here: os.symlink("nowhere/at/all", "link") or "link/x",
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    run(small_config(cycles=1, frames_per_visit=300, keep_replay=True), out, console=False)
    return out


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def filled(command: list[str], trained: Path, place: str = "") -> list[str]:
    return [word.replace("RUN", str(trained)).replace("PLACE", place) for word in command]


def assert_one_line(code: int, said: str) -> None:
    lines = [line for line in said.splitlines() if ", after" not in line]  # which checkpoint is used is told before
    assert code in (1, 2) and len(lines) == 1 and lines[0].startswith("clearl: "), said


def test_every_verb_is_tried() -> None:
    assert {*WRITING, *READING, *NEITHER} == set(VERBS)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("verb", WRITING)
def test_a_place_that_cannot_be_written_to(verb: str, place: str, trained: Path, here: Path, capsys) -> None:
    (here / "sweep.yaml").write_text(SWEEP)
    out = PLACES[place](here)
    before = sorted(here.rglob("*"))
    code = main(filled(WRITING[verb], trained, str(out)))
    said = capsys.readouterr().err
    assert_one_line(code, said)
    assert "; " in said, "the remedy"
    assert sorted(here.rglob("*")) == before, "what failed leaves nothing behind"


@pytest.mark.parametrize("verb", READING)
def test_a_disk_that_reports_errors(verb: str, trained: Path, here: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_none")  # push asks for one first
    with FailingCalls(trained, 0, 10**9).injected():
        code = main(filled(READING[verb], trained))
    said = capsys.readouterr().err
    assert_one_line(code, said)
    assert str(trained) in said
    assert list(here.iterdir()) == []


def test_a_port_that_is_taken(trained: Path, capsys) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code = main(["watch", str(trained), "--no-browser", "--port", str(taken.getsockname()[1])])
    said = capsys.readouterr().err
    assert_one_line(code, said)
    assert "--port" in said
