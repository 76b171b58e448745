"""Check a suite: specs that describe its tasks, steps that keep the contract, and a seed that decides everything."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from clearl.config import RunConfig
from clearl.errors import NoPictureError
from clearl.seeding import generator
from clearl.spaces import MASK_FIELD
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
    player = RandomPlayer(suite, task)
    one, two = (suite.make(task, num_envs=NUM_ENVS, seed=seed) for seed in (1, 2))
    start, other_start = one.reset(), two.reset()
    played, other = player.play(one, start), player.play(two, other_start)
    assert not np.array_equal(start, other_start) or not same(played, other), "two seeds play alike"
    two.reset()
    again, other_start = one.reset(seed=3), two.reset(seed=3)
    assert np.array_equal(again, other_start), "reset(seed) depends on what was played before"
    assert same(player.play(one, again), player.play(two, again)), "reset(seed) depends on what was played before"
    fresh = suite.make(task, num_envs=NUM_ENVS, seed=1)
    assert np.array_equal(fresh.reset(), start), "the same seed plays otherwise"
    assert same(player.play(fresh, start), played), "the same seed plays otherwise"
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
    for answer in RandomPlayer(suite, task).steps(envs, frames, steps):
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
    player = RandomPlayer(suite, task)
    last = player.play(envs, envs.reset())[-1].frames
    state = envs.get_state()
    if state is None:
        assert _refuses_state(envs), "where get_state gives None, set_state raises NotImplementedError"
    else:
        json.dumps({key: value for key, value in state.items() if not isinstance(value, np.ndarray)})
        expected = player.play(envs, last)
        other = suite.make(task, num_envs=NUM_ENVS, seed=9)
        assert np.array_equal(other.set_state(state), last), "set_state gives the frames that were left"
        assert same(player.play(other, last), expected), "what follows from a saved state differs"
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
    frames, player = envs.reset(), RandomPlayer(suite, task)
    assert np.array_equal(scene.envs.reset(), frames), "a filmed environment starts otherwise"
    plays = (player.steps(each, frames, steps_to_an_end) for each in (scene.envs, envs))
    for one, other in zip(*plays, strict=True):
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


class RandomPlayer:
    """Plays actions at random, of those that a task has and each state allows; every play draws the same numbers."""

    def __init__(self, suite: Suite, task: str, seed: int = 0) -> None:
        self._spec, self._mask, self._seed = suite.spec, suite.mask(task), seed

    def play(self, envs: Envs, frames: np.ndarray, steps: int = STEPS) -> list[EnvStep]:
        """Make all steps from `frames` on, those of a reset or of the last step."""
        return list(self.steps(envs, frames, steps))

    def steps(self, envs: Envs, frames: np.ndarray, steps: int) -> Iterator[EnvStep]:
        """Make steps one by one."""
        rng = generator(self._seed, "actions")
        for _ in range(steps):
            step = envs.step(self.actions(frames, rng))
            yield step
            frames = step.frames

    def actions(self, frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw actions [n, *action_shape] for the states in `frames`: choices, then real numbers before squashing."""
        action, allowed = self._spec.action, np.broadcast_to(self._mask, (len(frames), len(self._mask)))
        if self._spec.observation.mask_size:
            allowed = allowed & frames[MASK_FIELD]
        *options, reals = np.split(allowed, np.cumsum(action.choices), axis=1)
        # An option at random: the greatest of one number each. Of a choice that the task has not, the first.
        chosen = [np.where(flags, rng.random(flags.shape), -1.0).argmax(1) for flags in options]
        if action.is_discrete:
            return chosen[0]
        numbers = np.where(reals, rng.standard_normal(reals.shape, np.float32), np.float32(0))
        return np.column_stack([*chosen, numbers]).astype(action.dtype)


def same(one: list[EnvStep], other: list[EnvStep]) -> bool:
    """Return whether two plays are the same, bit for bit."""
    return all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for a, b in zip(one, other, strict=True)
        for name in ("frames", "reward", "terminated", "truncated", "valid", "first")
    )
