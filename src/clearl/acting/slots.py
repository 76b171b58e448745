"""The environments of an actor's slots: a slot that changes its task moves alone, the others play on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from clearl.errors import EnvironmentFaultError
from clearl.seeding import derive
from clearl.tasks.suite import Envs
from clearl.tasks.vectors import BundledEnvs, Seat, combine, is_divisible, take_faults

_MOST_IDLE_TASKS = 8
"""The most tasks whose idle environments are kept open: a drift may pass through hundreds."""

MakeEnvs = Callable[[str, int, int], Envs]
"""Makes environments out of (task, how many, seed)."""
ChangeEnvs = Callable[[Envs, str], Envs]
"""Turns a vector of one environment into one of another task, in the middle of its episode."""


@dataclass(frozen=True)
class Group:
    """The slots that play one task, and their environments in the same order."""

    task: str
    slots: np.ndarray
    envs: Envs

    @cached_property
    def index(self) -> np.ndarray | slice:
        """`slots` as a slice where they are adjacent, which NumPy indexes much faster."""
        first, last = int(self.slots[0]), int(self.slots[-1])
        return slice(first, last + 1) if len(self.slots) == last + 1 - first else self.slots


@dataclass(frozen=True)
class Start:
    """Slots that begin an episode of a task, and its first frames."""

    task: str
    slots: np.ndarray
    frames: np.ndarray


class SlotEnvironments:
    """Groups slots by task; keeps idle environments for the next slot that switches to their task.

    Building environments can take seconds (ALE), so they are built once: a vector for slots that switch to
    a task together, single environments for slots that switch one by one. Slots that return reuse theirs.
    """

    def __init__(self, make: MakeEnvs, slots: Sequence[int], seed: int, change: ChangeEnvs | None = None) -> None:
        """With `change`, a slot that changes its task plays on: its environment becomes one of the new task."""
        self._make_envs, self._slots, self._seed, self._change = make, list(slots), seed, change
        self.groups: list[Group] = []
        self.starts = 0
        self._made: dict[str, list[Envs]] = {}
        """Every environment by task, the most recently played task last."""
        self._whole: dict[tuple[str, int], Envs] = {}
        """Vectors by task and size, as they were built; removed once a part of one has moved."""
        self._free: dict[str, list[Envs]] = defaultdict(list)
        """Idle single environments."""
        self._faults: list[EnvironmentFaultError] = []

    def assign(self, tasks: Sequence[str]) -> list[Start]:
        """Give each slot its task; return the episodes that begin."""
        before = {int(slot): (group, i) for group in self.groups for i, slot in enumerate(group.slots)}
        old, self.groups = self.groups, []
        if self._change is None:
            self._release(old, tasks)
        else:
            before = {slot: self._changed(slot, seat, tasks[slot], self._change) for slot, seat in before.items()}
        starts = [start for task in dict.fromkeys(tasks) for start in self._regroup(task, tasks, before)]
        if self._change is None:  # else environments of tasks that were left are still played
            self._close_idle(tasks)
        return starts

    def state(self) -> list[dict[str, Any]] | None:
        """Return the state of all groups, as JSON types and arrays; None if an environment has no state."""
        groups = [{"task": g.task, "slots": g.slots, "envs": g.envs.get_state()} for g in self.groups]
        return None if any(group["envs"] is None for group in groups) else groups

    def restore(self, groups: Sequence[dict[str, Any]]) -> None:
        """Restore `state`."""
        self.groups = []
        for group in groups:
            slots = np.asarray(group["slots"], np.int64)
            envs = self._vector(group["task"], len(slots))
            envs.set_state(group["envs"])
            self.groups.append(Group(group["task"], slots, envs))

    def close(self) -> None:
        """Close every environment."""
        for task in list(self._made):
            self._close_task(task)

    def named(self, fault: EnvironmentFaultError, slots: np.ndarray) -> EnvironmentFaultError:
        """Name a fault by the slot of the run, which the user knows, instead of the place in the batch."""
        return fault.in_slot(self._slots[slots[fault.slot]])

    def take_faults(self) -> list[EnvironmentFaultError]:
        """Return the faults since the last call after which environments were rebuilt, with the slots of the run."""
        for group in self.groups:
            self._note_faults(group.envs, group.slots)
        faults, self._faults = self._faults, []
        return faults

    def _note_faults(self, envs: Envs, slots: np.ndarray) -> None:
        self._faults += [self.named(fault, slots) for fault in take_faults(envs)]

    def _changed(self, slot: int, seat: tuple[Group, int], task: str, change: ChangeEnvs) -> tuple[Group, int]:
        """Take one environment out of its group, as one of `task`."""
        group, index = seat
        if group.task == task:
            return seat
        single = self._combine(group.task, [(group.envs, index)])
        self._whole = {key: envs for key, envs in self._whole.items() if envs is not single}
        return Group(task, np.array([slot]), change(single, task)), 0

    def _release(self, groups: Sequence[Group], tasks: Sequence[str]) -> None:
        """Keep the environments of slots that change to another task, if each can be restarted alone."""
        for group in groups:
            leaving = [i for i, slot in enumerate(group.slots) if tasks[slot] != group.task]
            if len(leaving) == len(group.slots) and self._is_whole(group.task, group.envs):
                continue
            for i in leaving:
                envs, index = group.envs.seats[i] if isinstance(group.envs, BundledEnvs) else (group.envs, i)
                if is_divisible(envs):
                    self._free[group.task].append(self._combine(group.task, [(envs, index)]))

    def _regroup(self, task: str, tasks: Sequence[str], before: dict[int, tuple[Group, int]]) -> list[Start]:
        slots = np.flatnonzero(np.array([each == task for each in tasks]))
        seats = {
            slot: (before[slot][0].envs, before[slot][1])
            for slot in slots.tolist()
            if slot in before and before[slot][0].task == task
        }
        starts = []
        coming = np.array([slot for slot in slots.tolist() if slot not in seats], np.int64)
        if len(coming):
            envs = self._singles(task, len(coming)) if seats else self._vector(task, len(coming))
            starts.append(Start(task, coming, self._start(task, coming, envs)))
            seats |= {int(slot): (envs, i) for i, slot in enumerate(coming)}
        self.groups.append(Group(task, slots, self._combine(task, [seats[slot] for slot in slots.tolist()])))
        return starts

    def _start(self, task: str, slots: np.ndarray, envs: Envs) -> np.ndarray:
        # Seeded anew at every start: the earlier states of these environments are in no checkpoint.
        self.starts += 1
        seed = derive(self._seed, "start", self._slots[0], self.starts, task)
        if not isinstance(envs, BundledEnvs):
            return self._reset(envs, slots, seed)
        return np.concatenate(
            [self._reset(one, slots[i : i + 1], derive(seed, i)) for i, (one, _) in enumerate(envs.seats)]
        )

    def _reset(self, envs: Envs, slots: np.ndarray, seed: int) -> np.ndarray:
        try:
            frames = envs.reset(seed=seed)
        except EnvironmentFaultError as fault:
            raise self.named(fault, slots) from fault
        self._note_faults(envs, slots)
        return frames

    def _vector(self, task: str, count: int) -> Envs:
        """Return environments for slots that switch to a task together, where no other slot plays it."""
        if (task, count) in self._whole:
            return self._whole[task, count]
        for other in [envs for (name, _), envs in self._whole.items() if name == task and is_divisible(envs)]:
            self._free[task] += [self._combine(task, [(other, i)]) for i in range(other.num_envs)]
        free = self._free[task]
        if len(free) >= count or (free and hasattr(free[0], "combined")):
            return self._singles(task, count)
        self._whole[task, count] = self._make(task, count)
        return self._whole[task, count]

    def _singles(self, task: str, count: int) -> Envs:
        """Return single environments, so that each slot can change its task alone later."""
        free = self._free[task]
        while len(free) < count:
            free.append(self._make(task, 1))
        taken, self._free[task] = free[:count], free[count:]
        return combine([(envs, 0) for envs in taken])

    def _combine(self, task: str, seats: Sequence[Seat]) -> Envs:
        """Return a vector of these seats; a vector that loses environments by that is no longer whole."""
        envs = combine(seats)
        for source, _ in seats:
            if source is not envs and is_divisible(source) and self._is_whole(task, source):
                del self._whole[task, source.num_envs]
        return envs

    def _is_whole(self, task: str, envs: Envs) -> bool:
        return self._whole.get((task, envs.num_envs)) is envs

    def _make(self, task: str, count: int) -> Envs:
        seed = derive(self._seed, "environments", self._slots[0], task, count)
        made = self._made.setdefault(task, [])
        made.append(self._make_envs(task, count, seed))
        return made[-1]

    def _close_idle(self, tasks: Sequence[str]) -> None:
        """Close environments of tasks that have not been played for long, if there are many such tasks."""
        for task in dict.fromkeys(tasks):
            self._made[task] = self._made.pop(task, [])
        while len(self._made) > len(set(tasks)) + _MOST_IDLE_TASKS:
            self._close_task(next(iter(self._made)))

    def _close_task(self, task: str) -> None:
        for envs in self._made.pop(task):
            envs.close()
        self._free.pop(task, None)
        for key in [key for key in self._whole if key[0] == task]:
            del self._whole[key]
