"""Every verb prints to a terminal whose encoding has no Unicode: all is shown, with letters that it has."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from whole_runs import SWEEP, small_config

from clearl.bench import measure as measuring
from clearl.bench.measure import spread
from clearl.cli import output
from clearl.cli.main import VERBS, main
from clearl.experiment import run
from clearl.reproduce import forecast
from clearl.sharing import hub
from clearl.watch.server import WatchServer

COMMANDS: dict[str, list[str]] = {
    "demo": ["demo", "--fast", "--frames-per-visit", "80", "--runtime", "inline", "--out", "new", "--report", "page"],
    "run": ["run", "--config", "RUN/config.yaml", "--out", "new"],
    "run --dry-run": ["run", "--config", "RUN/config.yaml", "--out", "new", "--dry-run"],
    "resume": ["resume", "STOPPED"],
    "reproduce": ["reproduce", "stability", "--dry-run"],
    "sweep": ["sweep", "sweep.yaml", "--out", "new"],
    "memory": ["memory", "RUN"],
    "forget": ["forget", "RUN", "--task", "freeway", "--dry-run"],
    "watch": ["watch", "RUN", "--no-browser"],
    "report": ["report", "RUN", "--out", "page"],
    "leaderboard": ["leaderboard", "RUN", "--out", "page"],
    "eval": ["eval", "RUN", "--episodes", "1"],
    "video": ["video", "RUN", "--max-steps", "2", "--out", "a.gif"],
    "export": ["export", "RUN", "--out", "agent"],
    "push": ["push", "me/agent", "RUN"],
    "check": ["check", "gym:CartPole-v1"],
    "bench": ["bench", "minatar"],
    "list": ["list"],
    "doctor": ["doctor"],
}


class Terminal:
    """A pseudo-terminal of 100 columns, and what was written to it."""

    def __init__(self, encoding: str) -> None:
        self._reading, writing = os.openpty()
        self.stream = io.TextIOWrapper(io.FileIO(writing, "w"), encoding=encoding, write_through=True)
        self._bytes = bytearray()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while piece := os.read(self._reading, 1 << 16):
                self._bytes += piece
        except OSError:
            pass  # the other end is closed

    def shown(self) -> str:
        """Close it; return all that was shown."""
        encoding = self.stream.encoding
        self.stream.close()
        self._reader.join(10)
        os.close(self._reading)
        return self._bytes.decode(encoding)


class Stopped(Exception):
    """Ends a run from one of its listeners."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    run(small_config(cycles=1, frames_per_visit=300, keep_replay=True), out, console=False, arm="groß")
    return out


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def stop(row: dict) -> None:
        if row["kind"] == "train" and row["frames"] > 300:
            raise Stopped

    out = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(Stopped):
        run(small_config(cycles=1), out, console=False, listeners=[stop])
    return out


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No minutes of measuring, no network, and a server that is stopped at once."""

    def measured(name: str, *, repeats: int, **_: object) -> dict:
        rates = {"ideal": spread([1000.0]), "achieved": spread([800.0])}
        return {
            "workload": name, "repeats": repeats, "cores": 2, "frames_per_s": rates, "breakdown": {},
            "achieved_over_ideal": 0.8, "achieved_over_ideal_spread": spread([0.8] * repeats),
        }  # fmt: skip

    def stop(server: WatchServer, poll_interval: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(measuring, "measure", measured)
    monkeypatch.setattr(forecast, "measure", lambda config, seconds: 100.0)
    monkeypatch.setattr(hub, "check_push", lambda name: name)
    monkeypatch.setattr(hub, "push", lambda *arguments, **options: "https://hub/me/agent")
    monkeypatch.setattr(WatchServer, "serve_forever", stop)


@pytest.fixture
def unknown_letters(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Letters of ours that have no form in ASCII, collected while the test runs."""
    found: set[str] = set()

    class Watched(dict):
        def get(self, letter: str, default: str) -> str:
            if letter not in self:
                found.add(letter)
            return super().get(letter, default)

    monkeypatch.setattr(output, "_IN_ASCII", Watched(output._IN_ASCII))
    yield found


def test_every_verb_is_tried() -> None:
    assert {name.split()[0] for name in COMMANDS} == set(VERBS)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_verb_prints_all_it_has_to_say(
    command: str, encoding: str, trained: Path, stopped: Path, quick: None, unknown_letters: set[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    shutil.copytree(stopped, tmp_path / "stopped")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    arguments = [word.replace("RUN", str(trained)).replace("STOPPED", "stopped") for word in COMMANDS[command]]
    terminal = Terminal(encoding)
    monkeypatch.setattr(sys, "stdout", terminal.stream)
    code = main(arguments)
    monkeypatch.undo()
    shown, said = terminal.shown(), capsys.readouterr().err
    assert code == 0, said
    assert len(shown) > 20 and "Traceback" not in said and "switched off" not in said, said
    assert unknown_letters <= {"ß"}, "letters of ours without a form in ASCII"


@pytest.mark.parametrize(
    "command",
    [*([verb, "--help"] for verb in VERBS), ["--help"], ["list"], ["check", "gym:CartPole-v1"], COMMANDS["reproduce"]],
    ids=" ".join,
)
def test_no_word_is_broken_at_80_columns(
    command: list[str], quick: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal("utf-8")
    monkeypatch.setattr(sys, "stdout", terminal.stream)
    with contextlib.suppress(SystemExit):  # tyro exits after a help
        main(command)
    monkeypatch.undo()
    lines = re.sub(r"\x1b\[[\d;]*m", "", terminal.shown()).splitlines()
    assert len(lines) > 3 and not [line for line in lines if len(line) > 80 and not line.startswith("usage: ")]
