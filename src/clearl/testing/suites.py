"""Check a suite: specs that describe its tasks, steps that keep the contract, and a seed that decides everything."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from clearl.config import RunConfig
from clearl.errors import NoPictureError
from clearl.seeding import generator
from clearl.suites import SUITES, make_suite
from clearl.tasks.suite import DrawsStates, Envs, Suite
from clearl.types import EnvStep

NUM_ENVS, STEPS = 2, 40


def check_suite(name: str, tasks: Sequence[str] = (), *, steps_to_an_end: int = STEPS, **settings: Any) -> None:
    """Run every check on a registered suite, with `tasks` of which the first ends within `steps_to_an_end` steps.

    `settings` are those of a run, such as the suite's own.
    """
    suite = make_suite(name, tasks, RunConfig(**{"suite": name, **settings}))
    for check in SUITE_CHECKS:
        check(suite, steps_to_an_end)


def spec_and_masks_describe_the_tasks(suite: Suite, steps_to_an_end: int = STEPS) -> None:
    maker = SUITES.get(suite.name)
    assert {*maker.default_tasks} <= {*maker.known_tasks}, "default tasks are among the known ones"
    for name, part in suite.spec.observation.parts.items():
        assert part.dtype in ("uint8", "bool", "float32"), f"dtype of part {name!r}"
        assert len(part.shape) in (1, 3), f"part {name!r} is neither a vector nor an image"
    action = suite.spec.action
    for task in suite.tasks:
        mask = suite.mask(task)
        assert mask.shape == (action.mask_size,) and mask.dtype == bool, f"mask of {task}"
        options, reals = mask[: sum(action.choices)], mask[sum(action.choices) :]
        assert options.sum() >= 2 or reals.any(), f"{task} leaves nothing to choose"


def leaves_the_stack_to_the_network(suite: Suite, steps_to_an_end: int = STEPS) -> None:
    stacked = make_suite(suite.name, suite.tasks, RunConfig(frame_stack=3))
    observation = replace(suite.spec.observation, stack=3)
    assert stacked.spec == replace(suite.spec, observation=observation)


def seed_decides_everything(suite: Suite, steps_to_an_end: int = STEPS) -> None:
    task = suite.tasks[0]
    actions = random_actions(suite, task, STEPS)
    one, two = (suite.make(task, num_envs=NUM_ENVS, seed=seed) for seed in (1, 2))
    start, other_start = one.reset(), two.reset()
    played, other = play(one, actions), play(two, actions)
    assert not np.array_equal(start, other_start) or not same(played, other), "two seeds play alike"
    two.reset()
    assert np.array_equal(two.reset(seed=3), one.reset(seed=3)), "reset(seed) depends on what was played before"
    assert same(play(one, actions), play(two, actions)), "reset(seed) depends on what was played before"
    fresh = suite.make(task, num_envs=NUM_ENVS, seed=1)
    assert np.array_equal(fresh.reset(), start) and same(play(fresh, actions), played), "the same seed plays otherwise"
    for envs in (one, two, fresh):
        envs.close()


def steps_keep_the_contract(suite: Suite, steps_to_an_end: int = STEPS) -> None:
    for training in (True, False):
        _check_steps(suite, steps_to_an_end, training=training)


def _check_steps(suite: Suite, steps: int, *, training: bool) -> None:
    task, observation = suite.tasks[0], suite.spec.observation
    envs = suite.make(task, num_envs=NUM_ENVS, seed=0, training=training)
    assert envs.num_envs == NUM_ENVS
    frames = envs.reset()
    waiting, ends, kept = np.zeros(NUM_ENVS, bool), 0, frames.copy()
    for action in random_actions(suite, task, steps):
        answer = envs.step(action)
        for some in (frames, answer.frames):
            assert some.shape == (NUM_ENVS, *observation.frame_shape) and some.dtype == observation.frame_dtype
        for name, dtype in (
            ("reward", "float32"),
            *((n, "bool") for n in ("terminated", "truncated", "valid", "first")),
        ):
            array = getattr(answer, name)
            assert array.shape == (NUM_ENVS,) and array.dtype == dtype, f"{name}: {array.shape} {array.dtype}"
        ended = answer.terminated | answer.truncated
        assert np.array_equal(answer.valid, ~waiting), "a step that only resets is not valid, and every other is"
        assert np.array_equal(answer.first, waiting | (answer.terminated & answer.first)), "first frames of episodes"
        assert not (answer.terminated & answer.truncated).any(), "an end is a death or a time limit, not both"
        assert not (waiting & (ended | (answer.reward != 0))).any(), "a step that only resets has no reward and no end"
        waiting = ended & ~answer.first
        ends += int(ended.sum())
    assert ends > 0, f"no episode of {task} ended within {steps} steps, so that this check has seen nothing"
    assert np.array_equal(frames, kept), "frames belong to the caller and are not written to again"
    envs.close()


def saved_state_goes_on_bit_for_bit(suite: Suite, steps_to_an_end: int = STEPS) -> None:
    task = suite.tasks[0]
    envs = suite.make(task, num_envs=NUM_ENVS, seed=0)
    envs.reset()
    played = play(envs, random_actions(suite, task, STEPS))
    state = envs.get_state()
    if state is None:
        assert _refuses_state(envs), "where get_state gives None, set_state raises NotImplementedError"
    else:
        json.dumps({key: value for key, value in state.items() if not isinstance(value, np.ndarray)})
        actions = random_actions(suite, task, STEPS, seed=1)
        expected = play(envs, actions)
        other = suite.make(task, num_envs=NUM_ENVS, seed=9)
        assert np.array_equal(other.set_state(state), played[-1].frames), "set_state gives the frames that were left"
        assert same(play(other, actions), expected), "what follows from a saved state differs"
        other.close()
    envs.close()


def _refuses_state(envs: Envs) -> bool:
    try:
        envs.set_state({})
    except NotImplementedError:
        return True
    return False


def every_frame_can_be_drawn(suite: Suite, steps_to_an_end: int = STEPS) -> None:
    for task in suite.tasks[:2]:
        envs = suite.make(task, num_envs=1, seed=0)
        picture = suite.render(task, envs.reset()[0])
        envs.close()
        assert picture.ndim == 3 and picture.shape[2] == 3 and picture.dtype == np.uint8, "an RGB picture"
        assert picture.any(), "the picture is black"


def a_filmed_environment_plays_as_any_other(suite: Suite, steps_to_an_end: int = STEPS) -> None:
    if not isinstance(suite, DrawsStates):
        return
    task = suite.tasks[0]
    try:
        scene = suite.make_scene(task, seed=5)
    except NoPictureError:
        return
    envs = suite.make(task, num_envs=1, seed=5, training=False)
    assert np.array_equal(scene.envs.reset(), envs.reset()), "a filmed environment starts otherwise"
    for action in random_actions(suite, task, steps_to_an_end)[:, :1]:
        one, other = scene.envs.step(action), envs.step(action)
        assert same([one], [other]), "a filmed environment plays otherwise"
        picture = scene.picture(one.frames[0])
        assert picture.ndim == 3 and picture.shape[2] == 3 and picture.dtype == np.uint8, "an RGB picture"
    for made in (scene.envs, envs):
        made.close()


SUITE_CHECKS: tuple[Callable[[Suite, int], None], ...] = (
    spec_and_masks_describe_the_tasks,
    leaves_the_stack_to_the_network,
    seed_decides_everything,
    steps_keep_the_contract,
    saved_state_goes_on_bit_for_bit,
    every_frame_can_be_drawn,
    a_filmed_environment_plays_as_any_other,
)


def random_actions(suite: Suite, task: str, steps: int, seed: int = 0) -> np.ndarray:
    """Draw actions [steps, NUM_ENVS, ...] that the task has: of one choice, or real numbers before squashing."""
    action, mask, rng = suite.spec.action, suite.mask(task), generator(seed, "actions")
    if action.is_discrete:
        return rng.choice(np.flatnonzero(mask), (steps, NUM_ENVS))
    assert not action.choices, "these checks play single choices or real numbers"
    return np.where(mask, rng.standard_normal((steps, NUM_ENVS, action.reals), np.float32), np.float32(0))


def play(envs: Envs, actions: np.ndarray) -> list[EnvStep]:
    """Make one step for each row of actions."""
    return [envs.step(action) for action in actions]


def same(one: list[EnvStep], other: list[EnvStep]) -> bool:
    """Return whether two plays are the same, bit for bit."""
    return all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for a, b in zip(one, other, strict=True)
        for name in ("frames", "reward", "terminated", "truncated", "valid", "first")
    )
