"""Environment code that exits or leaves threads behind: never a silent success, never a command that does not end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = """
import os, sys, threading, gymnasium, numpy as np
from gymnasium.spaces import Box, Discrete

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
"""


def run(tmp_path: Path, env: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "odd_envs.py").write_text(ENVIRONMENT)
    settings = {
        "--runtime": "inline", "--imports": "odd_envs", "--suite": f"gym:{env}", "--torso": "mlp", "--slots": "2",
        "--batch-unrolls": "2", "--unroll-steps": "4", "--frames-per-visit": "32", "--out": str(tmp_path / "run"),
        "--eval-episodes": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "clearl", "run", "--quiet", *(part for pair in settings.items() for part in pair)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


@pytest.mark.parametrize("env", ["Exits-v0", "ExitsLater-v0", "Leaves-v0", "LeavesLater-v0"])
def test_an_environment_that_exits_is_a_fault_that_names_it(env: str, tmp_path: Path) -> None:
    done = run(tmp_path, env)
    assert done.returncode not in (0, None) and env in done.stderr and "SystemExit: 0" in done.stderr


def test_a_finished_command_ends_whatever_threads_are_left(tmp_path: Path) -> None:
    done = run(tmp_path, "Thread-v0")
    assert done.returncode == 0 and "finished" in done.stdout
