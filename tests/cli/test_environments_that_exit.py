"""Environment code that exits or leaves threads behind: never a silent success, never a command that does not end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ENVIRONMENT = """
import os, signal, subprocess, sys, threading, gymnasium, numpy as np
from gymnasium.spaces import Box, Discrete

def act(call):
    # The environment variable DEED says what to do in which call, as in `reset:leaves`.
    where, _, deed = os.environ.get("DEED", "").partition(":")
    if where == call:
        {"exits": lambda: sys.exit(0), "leaves": lambda: os._exit(0), "pipe": broken_pipe, "starts": start_game,
         "closes stdout": sys.stdout.close,
         "starts and dies": lambda: (start_game(), os.kill(os.getpid(), signal.SIGKILL))}[deed]()

def start_game():
    # In a session of its own, as launchers of games do.
    game = subprocess.Popen(["sleep", "600"], start_new_session=True)
    with open("games", "a") as file:
        print(game.pid, file=file)

def broken_pipe():
    raise BrokenPipeError(32, "Broken pipe")

class Moody(gymnasium.Env):
    observation_space, action_space = Box(-1, 1, (3,), np.float32), Discrete(2)
    def __init__(self):
        act("make")
    def reset(self, *, seed=None, options=None):
        act("reset")
        return np.zeros(3, np.float32), {}
    def step(self, action):
        act("step")
        return np.zeros(3, np.float32), 1.0, False, True, {}
    def close(self):
        act("close")

class Odd(gymnasium.Env):
    observation_space, action_space = Box(-1, 1, (3,), np.float32), Discrete(2)
    def __init__(self, deed="none"):
        self.deed = deed
        if deed == "exits":
            sys.exit(0)
        if deed == "leaves":
            os._exit(0)
        if deed == "thread":
            threading.Thread(target=threading.Event().wait).start()
    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {}
    def step(self, action):
        if self.deed == "exits later":
            sys.exit(0)
        if self.deed == "leaves later":
            os._exit(0)
        return np.zeros(3, np.float32), 1.0, False, True, {}

names = ("exits", "exits later", "leaves", "leaves later", "thread")
for name, deed in {deed.title().replace(" ", "") + "-v0": deed for deed in names}.items():
    gymnasium.register(name, Odd, kwargs={"deed": deed})
gymnasium.register("Moody-v0", Moody)
"""


def run(tmp_path: Path, env: str, deed: str = "") -> subprocess.CompletedProcess[str]:
    settings = {
        "--runtime": "inline", "--imports": "odd_envs", "--suite": f"gym:{env}", "--torso": "mlp", "--slots": "2",
        "--batch-unrolls": "2", "--unroll-steps": "4", "--frames-per-visit": "32", "--out": str(tmp_path / "run"),
        "--eval-episodes": "1",
    }  # fmt: skip
    return clearl(tmp_path, ["run", "--quiet", *(part for pair in settings.items() for part in pair)], deed)


def clearl(place: Path, arguments: list[str], deed: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command where it can import the environments, which do the `deed`."""
    (place / "odd_envs.py").write_text(ENVIRONMENT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), *sys.path]), "DEED": deed}
    command = [sys.executable, "-m", "clearl", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=place, timeout=120, check=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a run of a moody environment that has done nothing so far."""
    place = tmp_path_factory.mktemp("trained")
    assert run(place, "Moody-v0").returncode == 0
    return place


def command(verb: str, place: Path) -> list[str]:
    return {
        "eval": ["eval", str(place / "run"), "--episodes", "1", "--imports", "odd_envs"],
        "video": ["video", str(place / "run"), "--max-steps", "2", "--imports", "odd_envs"],
        "check": ["check", "gym:Moody-v0", "--steps", "20", "--imports", "odd_envs"],
    }[verb]


@pytest.mark.parametrize(
    ("verb", "deed"),
    [
        ("eval", "make:leaves"), ("eval", "reset:exits"), ("eval", "reset:pipe"), ("video", "reset:leaves"),
        ("video", "step:leaves"), ("check", "reset:leaves"), ("check", "step:exits"),
    ],
)  # fmt: skip
def test_whatever_an_environment_does_a_verb_fails_and_names_it(verb: str, deed: str, trained: Path) -> None:
    done = clearl(trained, command(verb, trained), deed)
    assert done.returncode == 1, done
    said = done.stdout if verb == "check" else done.stderr
    assert "Moody-v0" in said and ("BrokenPipeError" if "pipe" in deed else "SystemExit: 0") in said


@pytest.mark.parametrize("deed", ["step:starts", "step:starts and dies"])
@pytest.mark.parametrize("verb", ["eval", "video", "check"])
def test_games_that_an_environment_starts_end_with_the_verb(verb: str, deed: str, trained: Path) -> None:
    started = trained / "games"
    started.unlink(missing_ok=True)
    done = clearl(trained, command(verb, trained), deed)
    assert done.returncode == (-signal.SIGKILL if "dies" in deed else 0), done
    games = [int(line) for line in started.read_text().split()]
    deadline = time.monotonic() + 5
    while left := [game for game in games if Path(f"/proc/{game}").exists()]:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)
    assert games


@pytest.mark.parametrize("deed", ["reset:exits", "reset:leaves"])
def test_a_run_whose_environment_ends_in_reset_fails_and_names_it(deed: str, tmp_path: Path) -> None:
    done = run(tmp_path, "Moody-v0", deed)
    assert done.returncode == 1 and "task 'Moody-v0'" in done.stderr, done
    assert "SystemExit: 0" in done.stderr


@pytest.mark.parametrize("deed", ["close:leaves", "close:pipe"])
def test_what_close_does_is_said_and_changes_nothing(deed: str, trained: Path, tmp_path: Path) -> None:
    raised = "close raised " + ("BrokenPipeError" if "pipe" in deed else "SystemExit: 0")
    for done in (run(tmp_path, "Moody-v0", deed), clearl(trained, command("eval", trained), deed)):
        assert done.returncode == 0 and f"task 'Moody-v0', slot 0, step 0: {raised}" in done.stderr, done
        assert "finished" in done.stdout or "1.00 +- 0.00" in done.stdout
    checked = clearl(trained, command("check", trained), deed)
    assert checked.returncode == 1 and raised in checked.stdout, checked


def test_an_environment_that_closes_stdout_ends_no_training_and_is_told(trained: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "Moody-v0", "make:closes stdout")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert '"finished"' in (tmp_path / "run" / "meta.json").read_text()
    done = clearl(trained, command("eval", trained), "reset:closes stdout")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert done.stderr.endswith("clearl: the output is closed; an environment must not close sys.stdout\n")


@pytest.mark.parametrize("env", ["Exits-v0", "ExitsLater-v0", "Leaves-v0", "LeavesLater-v0"])
def test_an_environment_that_exits_is_a_fault_that_names_it(env: str, tmp_path: Path) -> None:
    done = run(tmp_path, env)
    assert done.returncode not in (0, None) and env in done.stderr and "SystemExit: 0" in done.stderr


def test_a_finished_command_ends_whatever_threads_are_left(tmp_path: Path) -> None:
    done = run(tmp_path, "Thread-v0")
    assert done.returncode == 0 and "finished" in done.stdout
