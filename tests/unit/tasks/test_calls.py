"""Environment code that is called outside of the step loop: it is named, and changes nothing for the process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from clearl.cli.main import main
from clearl.config import RunConfig
from clearl.errors import ConfigError, EnvironmentFaultError
from clearl.suites import make_suite
from clearl.tasks.calls import close_env, env_call
from clearl.tasks.checker import check_env
from clearl.tasks.single import check_parameters

DEEDS: dict[str, Callable[[], object]] = {}
"""What the environment of the test does when a method is called, by the name of the method."""


class Free(gymnasium.Env[np.ndarray, Any]):
    """Does as `DEEDS` says."""

    observation_space, action_space = Box(-1, 1, (3,), np.float32), Discrete(2)

    def _act(self, where: str) -> None:
        if where in DEEDS:
            DEEDS[where]()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._act("reset")
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self._act("step")
        return np.zeros(3, np.float32), 1.0, False, True, {}

    def close(self) -> None:
        self._act("close")


gymnasium.register("Free-v0", lambda **options: Free())


@pytest.fixture
def deed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], object]], None]:
    return lambda where, deed: monkeypatch.setitem(DEEDS, where, deed)


def test_whatever_is_raised_names_task_and_call() -> None:
    leave = os._exit
    for raised, said in ((SystemExit(0), "SystemExit: 0"), (BrokenPipeError("gone"), "BrokenPipeError: gone")):
        with pytest.raises(EnvironmentFaultError, match=f"task 'a', .*: reset raised {said}"), env_call("a", "reset"):
            raise raised
    with pytest.raises(EnvironmentFaultError, match="SystemExit: 3"), env_call("a", "reset"):
        os._exit(3)
    with pytest.raises(ConfigError, match="^mine$"), env_call("a", "reset"):
        raise ConfigError("mine")
    assert os._exit is leave


def test_a_reset_that_changes_torch_does_not_change_the_learner(deed: Any) -> None:
    def change() -> None:
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)

    deed("reset", change)
    make_suite("gym:Free-v0", (), RunConfig(suite="gym:Free-v0"))
    assert torch.is_grad_enabled() and torch.get_default_dtype() == torch.float32


def test_every_environment_is_closed_and_each_fault_is_one_line(deed: Any, capsys: Any) -> None:
    envs = make_suite("gym:Free-v0", (), RunConfig(suite="gym:Free-v0")).make("Free-v0", num_envs=3, seed=0)
    closed: list[int] = []
    deed("close", lambda: closed.append(1) or sys.exit(0))
    envs.close()
    assert len(closed) == 3
    line = "clearl: environment of task 'Free-v0', slot 0, step 0: close raised SystemExit: 0; nothing else is affected"
    assert capsys.readouterr().err.splitlines() == [line] * 3


def test_a_close_that_fails_where_stderr_is_closed(deed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    deed("close", lambda: 1 / 0)
    monkeypatch.setattr(sys, "stderr", None)
    close_env("a", Free())


@pytest.mark.parametrize("where", ["reset", "step", "close"])
def test_the_checker_finds_what_exits(deed: Any, where: str) -> None:
    deed(where, lambda: os._exit(0))
    finding, *others = check_env("Free-v0", steps=20)
    assert finding.severity == "error" and f"{where}" in finding.problem and "SystemExit: 0" in finding.problem
    assert not [other for other in others if other.severity == "error"]


@pytest.mark.parametrize("end", [lambda: sys.exit(0), lambda: os._exit(0)])
def test_values_of_a_drift_at_which_an_environment_exits_are_refused(deed: Any, end: Callable[[], object]) -> None:
    deed("step", end)
    with pytest.raises(ConfigError, match="outside of what Free-v0 takes: SystemExit: 0"):
        check_parameters("Free-v0")


def test_a_broken_pipe_that_is_not_stdout_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def broken(argv: list[str]) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("clearl.cli.list.main", broken)
    assert main(["list"]) == 1
    assert capsys.readouterr().err == "clearl: the output: Broken pipe\n"
