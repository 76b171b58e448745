"""What every suite must do, tested for all that are registered: a new one is tested the day it is registered."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import broken_envs  # noqa: F401 - registers its environments
import numpy as np
import psutil
import pytest

from clearl.config import RunConfig
from clearl.spaces import MASK_FIELD, ActionSpec, ObservationSpec, PartSpec, TaskSpec
from clearl.suites import SUITES, KnowsSpec, make_suite
from clearl.tasks.suite import Suite
from clearl.testing import SUITE_CHECKS, check_suite
from clearl.testing.suites import NUM_ENVS, RandomPlayer

STANDINS = Path(__file__).parents[1] / "support" / "standins"
# Tasks whose episodes end soon, for suites where those are not the default ones.
SHORT = {
    "gym": ("CartPole-v1", "Acrobot-v1"),
    "atari": ("breakout", "pong"),
    "minigrid": ("MiniGrid-LavaGapS5-v0", "MiniGrid-Dynamic-Obstacles-5x5-v0"),
    "vizdoom": ("defend_the_center", "deadly_corridor"),
    "metaworld": ("push", "hammer"),
    "mujoco": ("hopper?direction=backward", "reacher?size=1.5"),
}
STEPS_TO_AN_END = {"atari": 260, "control": 201, "minigrid": 120, "vizdoom": 160, "metaworld": 210}


@pytest.fixture(params=list(SUITES))
def suite(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Suite]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(STANDINS))
    yield make_suite(request.param, SHORT.get(request.param, ()), RunConfig())
    sys.modules.pop("deepmind_lab", None)
    assert list(tmp_path.iterdir()) == [], "a suite leaves nothing in the working directory"


@pytest.mark.parametrize("check", SUITE_CHECKS, ids=lambda check: check.__name__)
def test_a_suite(check: Callable[[Suite, int], None], suite: Suite) -> None:
    check(suite, STEPS_TO_AN_END.get(suite.name, 40))


def test_a_suite_that_needs_an_extra_knows_its_spec_without_it(suite: Suite) -> None:
    """Forecasts of runs that cannot be started yet; clearl's own dependencies bring Gymnasium and `control`."""
    if suite.name in ("gym", "control"):
        return
    maker = SUITES.get(suite.name)
    assert isinstance(maker, KnowsSpec)
    for stack in (None, 2):
        config = RunConfig(suite=suite.name, tasks=suite.tasks, frame_stack=stack)
        assert maker.spec_for(config) == make_suite(suite.name, suite.tasks, config).spec


def test_the_public_check_plays_what_masks_and_actions_of_several_parts_allow() -> None:
    """The environment refuses every other action."""
    check_suite("gym", ("BrokenStrictParts-v0",))


@pytest.mark.parametrize("reals", [0, 2])
def test_random_actions_are_all_that_a_task_and_its_states_allow(reals: int) -> None:
    action = ActionSpec((3, 4), (True,) * reals)
    spec = TaskSpec(ObservationSpec({"": PartSpec((1,), "float32")}, mask_size=action.mask_size), action)
    task_mask = np.arange(action.mask_size) != 6  # the last option of the second choice
    suite = cast(Suite, SimpleNamespace(spec=spec, mask=lambda task: task_mask))
    frames = np.zeros(600, spec.observation.frame_dtype)
    frames[MASK_FIELD] = True
    frames[MASK_FIELD][:300, 1] = False
    drawn = RandomPlayer(suite, "a").actions(frames, np.random.default_rng(0))
    assert drawn.shape == (600, 2 + reals) and drawn.dtype == action.dtype
    assert {*drawn[:300, 0]} == {0, 2} and {*drawn[300:, 0]} == {0, 1, 2} == {*drawn[:, 1]}
    counts = np.bincount(drawn[300:, 0].astype(int))
    assert counts.min() > 70, "each as often as the others"
    assert np.abs(drawn[:, 2:].std(0) - 1).max(initial=0) < 0.1


def test_nothing_runs_on_after_close(suite: Suite) -> None:
    def running() -> set[tuple[int, Any]]:
        return {(p.pid, p.name()) for p in psutil.Process().children(recursive=True)}

    before = running()
    envs = suite.make(suite.tasks[0], num_envs=NUM_ENVS, seed=0)
    RandomPlayer(suite, suite.tasks[0]).play(envs, envs.reset(), 1)
    envs.close()
    assert running() <= before
