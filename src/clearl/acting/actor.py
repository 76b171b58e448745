"""The actor: steps its slots' environments with the current policy and fills unrolls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from clearl.acting.preprocess import stack_frames
from clearl.acting.stepper import Stepper
from clearl.errors import EnvironmentFaultError
from clearl.nets.network import PolicyNetwork
from clearl.seeding import derive, generator
from clearl.tasks.suite import Envs, Suite
from clearl.unroll import Unroll, UnrollLayout


@dataclass(frozen=True)
class Episode:
    """An episode that ended while acting, as the environment scored it."""

    task: str
    score: float
    steps: int


@dataclass(frozen=True)
class _Group:
    """The slots that play one task, and their environments."""

    task: str
    slots: np.ndarray
    envs: Envs

    @cached_property
    def index(self) -> np.ndarray | slice:
        """`slots` as a slice where they lie side by side, which NumPy is much quicker with."""
        first, last = int(self.slots[0]), int(self.slots[-1])
        return slice(first, last + 1) if len(self.slots) == last + 1 - first else self.slots


class Actor:
    """Plays `slots` with one network; carries episodes, recurrent states and the frame stack across unrolls."""

    def __init__(
        self, *, suite: Suite, network: PolicyNetwork, layout: UnrollLayout, slots: Sequence[int], seed: int,
        reward_clip: str,
    ) -> None:  # fmt: skip
        self.suite, self.network, self.layout = suite, network, layout
        self.slots, self._seed = list(slots), seed
        self._rng = generator(seed, "actor", self.slots[0])
        self._envs: dict[tuple[str, int], Envs] = {}
        self._groups: list[_Group] = []
        self._tasks: list[str] = []
        self._starts = 0
        count, observation = len(self.slots), layout.spec.observation
        self._stepper = Stepper(network, layout.spec, count, reward_clip=reward_clip)
        self._window = np.zeros((count, observation.stack, *observation.frame_shape), observation.frame_dtype)
        self._window_first = np.zeros((count, observation.stack), bool)
        self._mask = np.ones((count, layout.spec.action.mask_size), bool)
        self._score = np.zeros(count, np.float64)
        self._steps = np.zeros(count, np.int64)

    def assign(self, tasks: Sequence[str]) -> None:
        """Say which task each slot plays from now on; slots whose group changes start a new episode."""
        if list(tasks) == self._tasks:
            return
        self._tasks = list(tasks)
        before = {(group.task, tuple(group.slots)): group for group in self._groups}
        self._groups = []
        for task in dict.fromkeys(tasks):
            slots = np.flatnonzero(np.array([t == task for t in tasks]))
            kept = before.get((task, tuple(slots)))
            self._groups.append(kept or self._start(task, slots))

    @torch.inference_mode()
    def fill(self, rows: Unroll) -> list[Episode]:
        """One unroll for every slot into `rows`; the episodes that ended in it."""
        stack, steps, stepper = self.layout.spec.observation.stack, self.layout.unroll_steps, self._stepper
        rows.frames[:, :stack] = self._window
        rows.first[:, :stack] = self._window_first
        rows.mask[:] = self._mask
        rows.last_action[:] = stepper.last_action
        rows.last_reward[:] = stepper.last_reward
        rows.core_state[:] = stepper.core.numpy()
        noise = self.network.head.noise(self._rng, self._mask, steps)
        episodes: list[Episode] = []
        # From the copy: the stepper sees the frames of an unroll where they lie, and those belong to others now.
        stepper.observation = stack_frames(self._window, self._window_first, stack)[:, 0]
        stepper.first = self._window_first[:, -1]
        for t in range(steps):
            rows.action[:, t], rows.policy[:, t], rows.value[:, t] = stepper.decide(noise[t])
            episodes += self._step(rows, t)
            after = t + stack
            stepper.see(rows.frames[:, after], rows.first[:, after], rows.action[:, t], rows.reward[:, t])
        self._window[:] = rows.frames[:, steps:]
        self._window_first[:] = rows.first[:, steps:]
        return episodes

    def close(self) -> None:
        """Close every environment."""
        for envs in self._envs.values():
            envs.close()
        self._envs.clear()

    def state(self) -> dict[str, Any] | None:
        """All that is needed to go on bit for bit, as JSON types and arrays; None if an environment has no state."""
        groups = [{"task": g.task, "slots": g.slots, "envs": g.envs.get_state()} for g in self._groups]
        if any(group["envs"] is None for group in groups):
            return None
        return {
            "tasks": self._tasks, "starts": self._starts, "groups": groups,
            "rng": self._rng.bit_generator.state, "arrays": self._arrays(),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self._tasks, self._starts = list(state["tasks"]), int(state["starts"])
        self._groups = []
        for group in state["groups"]:
            slots = np.asarray(group["slots"], np.int64)
            envs = self._make(group["task"], len(slots))
            envs.set_state(group["envs"])
            self._groups.append(_Group(group["task"], slots, envs))
        self._rng.bit_generator.state = state["rng"]
        for name, array in self._arrays().items():
            array[...] = state["arrays"][name]

    def _arrays(self) -> dict[str, np.ndarray]:
        return {
            "window": self._window, "window_first": self._window_first, "mask": self._mask,
            "last_action": self._stepper.last_action, "last_reward": self._stepper.last_reward,
            "core": self._stepper.core.numpy(),
            "score": self._score, "steps": self._steps,
        }  # fmt: skip

    def _make(self, task: str, count: int) -> Envs:
        # Building environments can take seconds (ALE): build once, keep at task switches.
        if (task, count) not in self._envs:
            seed = derive(self._seed, "environments", self.slots[0], task, count)
            self._envs[task, count] = self.suite.make(task, num_envs=count, seed=seed)
        return self._envs[task, count]

    def _start(self, task: str, slots: np.ndarray) -> _Group:
        envs = self._make(task, len(slots))
        # Seeded anew at every start: what these environments lived through before is in no checkpoint.
        self._starts += 1
        seed = derive(self._seed, "start", self.slots[0], self._starts, task)
        with self._faults_named(slots):
            frames = envs.reset(seed=seed)
        self._window[slots] = frames[:, None]
        self._window_first[slots] = False
        self._window_first[slots, -1] = True
        self._mask[slots] = self.suite.mask(task)
        self._stepper.forget(slots)
        self._score[slots] = self._steps[slots] = 0
        return _Group(task, slots, envs)

    @contextmanager
    def _faults_named(self, slots: np.ndarray) -> Iterator[None]:
        """An environment knows its place in the batch; the user knows the slots of the run."""
        try:
            yield
        except EnvironmentFaultError as fault:
            slot = self.slots[slots[fault.slot]]
            raise EnvironmentFaultError(fault.task, slot, fault.step, fault.problem) from fault

    def _step(self, rows: Unroll, t: int) -> list[Episode]:
        episodes: list[Episode] = []
        after = t + self.layout.spec.observation.stack
        for group in self._groups:
            slots = group.index
            with self._faults_named(group.slots):
                step = group.envs.step(rows.action[slots, t])
            rows.frames[slots, after] = step.frames
            rows.first[slots, after] = step.first
            rows.reward[slots, t] = step.reward
            rows.terminated[slots, t] = step.terminated
            rows.valid[slots, t] = step.valid
            self._score[slots] += step.reward
            self._steps[slots] += step.valid
            for slot in group.slots[step.terminated | step.truncated]:
                episodes.append(Episode(group.task, float(self._score[slot]), int(self._steps[slot])))
                self._score[slot] = self._steps[slot] = 0
        return episodes
