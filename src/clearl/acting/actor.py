"""The actor: steps its slots' environments with the current policy and fills unrolls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from clearl.acting.preprocess import observe, whole
from clearl.acting.slots import SlotEnvironments
from clearl.acting.stepper import Stepper
from clearl.errors import EnvironmentFaultError
from clearl.nets.network import PolicyNetwork
from clearl.seeding import generator
from clearl.tasks.suite import ChangesInPlay, Envs, Suite
from clearl.unroll import Unroll, UnrollLayout, as_plain, from_plain


@dataclass(frozen=True)
class Episode:
    """An episode that ended while acting, as the environment scored it."""

    task: str
    score: float
    steps: int


EpisodeSums = dict[str, tuple[float, ...]]
"""Sums over the episodes that ended, by task: their number, returns and steps."""


def sum_episodes(episodes: Iterable[Episode]) -> EpisodeSums:
    """Sum up episodes by task, in a form that can be sent and added."""
    sums: EpisodeSums = {}
    for episode in episodes:
        sums = add_episodes(sums, {episode.task: (1.0, float(episode.score), float(episode.steps))})
    return sums


def add_episodes(sums: EpisodeSums, more: EpisodeSums) -> EpisodeSums:
    """Add two sums of episodes."""
    added = {task: tuple(a + b for a, b in zip(sums.get(task, (0.0,) * 3), m, strict=True)) for task, m in more.items()}
    return {**sums, **added}


class Actor:
    """Plays `slots` with one network; carries episodes, recurrent states and the frame stack across unrolls."""

    def __init__(
        self, *, suite: Suite, network: PolicyNetwork, layout: UnrollLayout, slots: Sequence[int], seed: int,
        reward_clip: str,
    ) -> None:  # fmt: skip
        self.suite, self.network, self.layout = suite, network, layout
        self.slots = list(slots)
        self._rng = generator(seed, "actor", self.slots[0])
        change = suite.change if isinstance(suite, ChangesInPlay) and suite.changes_in_play else None
        self._environments = SlotEnvironments(self._make, self.slots, seed, change)
        self._tasks: list[str] = []
        count, observation = len(self.slots), layout.spec.observation
        self._stepper = Stepper(network, layout.spec, count, reward_clip=reward_clip)
        self._window = np.zeros((count, observation.stack, *observation.frame_shape), observation.frame_dtype)
        self._window_first = np.zeros((count, observation.stack), bool)
        self._mask = np.ones((count, layout.spec.action.mask_size), bool)
        self._score = np.zeros(count, np.float64)
        self._steps = np.zeros(count, np.int64)

    def assign(self, tasks: Sequence[str]) -> None:
        """Assign a task to each slot; a slot whose task changes starts a new episode, or goes on in its own."""
        if list(tasks) == self._tasks:
            return
        self._tasks = list(tasks)
        for start in self._environments.assign(tasks):
            slots = start.slots
            self._window[slots] = start.frames[:, None]
            self._window_first[slots] = False
            self._window_first[slots, -1] = True
            self._mask[slots] = self.suite.mask(start.task)
            self._stepper.forget(slots)
            self._score[slots] = self._steps[slots] = 0

    @torch.inference_mode()
    def fill(self, rows: Unroll) -> list[Episode]:
        """Play one unroll for every slot into `rows`; return the episodes that ended in it."""
        stack, steps, stepper = self.layout.spec.observation.stack, self.layout.unroll_steps, self._stepper
        whole(rows.frames)[:, :stack] = whole(self._window)
        rows.first[:, :stack] = self._window_first
        rows.mask[:] = self._mask
        rows.last_action[:] = stepper.last_action
        rows.last_reward[:] = stepper.last_reward
        rows.core_state[:] = stepper.core.numpy()
        noise = self.network.head.noise(self._rng, self._mask, steps)
        episodes: list[Episode] = []
        # From the copy: the stepper views an unroll's frames in place, and those arrays belong to others now.
        stepper.observation = observe(self._window, self._window_first, self.layout.spec.observation)[:, 0]
        stepper.first = self._window_first[:, -1]
        for t in range(steps):
            rows.action[:, t], rows.policy[:, t], rows.value[:, t] = stepper.decide(noise[t])
            episodes += self._step(rows, t)
            after = t + stack
            stepper.see(rows.frames[:, after], rows.first[:, after], rows.action[:, t], rows.reward[:, t])
        whole(self._window)[:] = whole(rows.frames[:, steps:])
        self._window_first[:] = rows.first[:, steps:]
        return episodes

    def take_faults(self) -> list[EnvironmentFaultError]:
        """Return the faults since the last call after which environments were rebuilt."""
        return self._environments.take_faults()

    def close(self) -> None:
        """Close every environment."""
        self._environments.close()

    def state(self) -> dict[str, Any] | None:
        """Return the state to resume bit for bit, as JSON types and arrays; None if an environment has none."""
        groups = self._environments.state()
        if groups is None:
            return None
        return {
            "tasks": self._tasks, "starts": self._environments.starts, "groups": groups,
            "rng": self._rng.bit_generator.state,
            "arrays": {name: as_plain(array) for name, array in self._arrays().items()},
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Restore `state`."""
        self._tasks, self._environments.starts = list(state["tasks"]), int(state["starts"])
        self._environments.restore(state["groups"])
        self._rng.bit_generator.state = state["rng"]
        for name, array in self._arrays().items():
            array[...] = from_plain(state["arrays"][name], array.dtype)

    def _arrays(self) -> dict[str, np.ndarray]:
        return {
            "window": self._window, "window_first": self._window_first, "mask": self._mask,
            "last_action": self._stepper.last_action, "last_reward": self._stepper.last_reward,
            "core": self._stepper.core.numpy(),
            "score": self._score, "steps": self._steps,
        }  # fmt: skip

    def _make(self, task: str, count: int, seed: int) -> Envs:
        return self.suite.make(task, num_envs=count, seed=seed)

    def _step(self, rows: Unroll, t: int) -> list[Episode]:
        episodes: list[Episode] = []
        after, frames = t + self.layout.spec.observation.stack, whole(rows.frames)
        for group in self._environments.groups:
            slots = group.index
            try:
                step = group.envs.step(rows.action[slots, t])
            except EnvironmentFaultError as fault:
                raise self._environments.named(fault, group.slots) from fault
            frames[slots, after] = whole(step.frames)
            rows.first[slots, after] = step.first
            rows.reward[slots, t] = step.reward
            rows.terminated[slots, t] = step.terminated
            rows.valid[slots, t] = step.valid
            self._score[slots] += step.reward
            self._steps[slots] += step.valid
            ended = step.terminated | step.truncated
            for index in np.flatnonzero(ended | step.first):  # a rebuilt environment begins an episode and ends none
                slot = group.slots[index]
                if ended[index]:
                    episodes.append(Episode(group.task, float(self._score[slot]), int(self._steps[slot])))
                self._score[slot] = self._steps[slot] = 0
        return episodes
