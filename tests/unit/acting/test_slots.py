"""Slots own their environments: a slot that moves starts anew, the others do not, and few environments are built."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from clearl.acting.slots import SlotEnvironments
from clearl.errors import EnvironmentFaultError
from clearl.tasks.plan import Segment, assign_tasks
from clearl.types import EnvStep


class Episodes:
    """Environments in C++'s manner: frames are (number of the environment, steps of its episode)."""

    made = 0

    def __init__(self, task: str, num_envs: int) -> None:
        self.task, self.num_envs = task, num_envs
        self.numbers = [Episodes.made + i for i in range(num_envs)]
        self.steps, self.closed = [0] * num_envs, False
        self.broken: int | None = None
        Episodes.made += num_envs

    def frames(self) -> np.ndarray:
        return np.array(list(zip(self.numbers, self.steps, strict=True)), np.float32)

    def reset(self, *, seed: int | None = None) -> np.ndarray:
        assert seed is not None
        self.steps = [0] * self.num_envs
        return self.frames()

    def step(self, actions: np.ndarray) -> EnvStep:
        assert len(actions) == self.num_envs
        if self.broken is not None:
            raise EnvironmentFaultError(self.task, self.broken, 0, "broken")
        self.steps = [count + 1 for count in self.steps]
        no = np.zeros(self.num_envs, bool)
        return EnvStep(self.frames(), actions.astype(np.float32), no, no, ~no, no)

    def get_state(self) -> dict[str, Any] | None:
        return None

    def set_state(self, state: dict[str, Any]) -> np.ndarray:
        raise NotImplementedError

    def close(self) -> None:
        self.closed = True


class DivisibleEpisodes(Episodes):
    """The same in Python's manner: each environment can be taken out."""

    @staticmethod
    def combined(seats: Sequence[tuple[DivisibleEpisodes, int]]) -> DivisibleEpisodes:
        made = DivisibleEpisodes.__new__(DivisibleEpisodes)
        made.task, made.num_envs, made.broken = seats[0][0].task, len(seats), None
        made.numbers = [envs.numbers[i] for envs, i in seats]
        made.steps = [envs.steps[i] for envs, i in seats]
        return made


@pytest.fixture(params=[Episodes, DivisibleEpisodes])
def environments(request: pytest.FixtureRequest) -> type[Episodes]:
    Episodes.made = 0
    return request.param


class Play:
    """Plays with `SlotEnvironments` and knows what each slot saw last."""

    def __init__(self, kind: type[Episodes], slots: int) -> None:
        self.vectors: list[Episodes] = []
        self.slots = SlotEnvironments(self._make, range(slots), seed=1)
        self.seen = np.zeros((slots, 2), np.float32)
        self._kind = kind

    def _make(self, task: str, count: int, seed: int) -> Episodes:
        self.vectors.append(self._kind(task, count))
        return self.vectors[-1]

    def assign(self, tasks: Sequence[str]) -> list[int]:
        """Assign tasks; return the slots that started an episode."""
        started: list[int] = []
        for start in self.slots.assign(tasks):
            self.seen[start.slots] = start.frames
            started += start.slots.tolist()
        return sorted(started)

    def step(self) -> None:
        """One step; every slot must see the environment that it saw before, one step later."""
        for group in self.slots.groups:
            frames = group.envs.step(group.slots).frames
            np.testing.assert_array_equal(frames, self.seen[group.slots] + [0, 1])
            self.seen[group.slots] = frames
        assert sorted(slot for group in self.slots.groups for slot in group.slots) == list(range(len(self.seen)))


def test_a_drift_over_64_slots_builds_two_environments_a_slot_and_restarts_who_moves(
    environments: type[Episodes],
) -> None:
    play, segment, before = Play(environments, 64), Segment(("a", "b"), (1.0, 0.0), 500_000, None, (0.0, 1.0)), None
    restarts = 0
    for share in np.linspace(0, 1, 400):
        tasks = assign_tasks(segment, 64, float(share))
        started = play.assign(tasks)
        moved = [slot for slot in range(64) if before is None or tasks[slot] != before[slot]]
        assert started == moved
        restarts += len(started) if before is not None else 0
        before = tasks
        play.step()
    assert restarts == 64, "every slot moved once"
    assert sum(vector.num_envs for vector in play.vectors) == 2 * 64


def test_slots_that_switch_together_keep_their_vector(environments: type[Episodes]) -> None:
    play = Play(environments, 6)
    for task in ("a", "b", "a", "b"):
        assert play.assign([task] * 6) == list(range(6))
        play.step()
        assert play.assign([task] * 6) == []
        play.step()
    assert [(vector.task, vector.num_envs) for vector in play.vectors] == [("a", 6), ("b", 6)]
    assert play.slots.groups[0].envs is play.vectors[1]


def test_two_halves_that_swap_keep_their_vectors(environments: type[Episodes]) -> None:
    play = Play(environments, 4)
    for tasks in ("aabb", "bbaa", "aabb"):
        assert play.assign(list(tasks)) == [0, 1, 2, 3]
        play.step()
    assert [vector.num_envs for vector in play.vectors] == [2, 2]


def test_any_walk_of_any_slots_plays_on_and_builds_few(environments: type[Episodes]) -> None:
    rng = random.Random(3)
    play, tasks = Play(environments, 7), list("abcabca")
    play.assign(tasks)
    for _ in range(300):
        movers = rng.sample(range(7), rng.choice([0, 1, 1, 1, 2, 7]))
        before = list(tasks)
        for slot in movers:
            tasks[slot] = rng.choice("abc")
        assert play.assign(tasks) == [slot for slot in range(7) if tasks[slot] != before[slot]]
        play.step()
        assert len(set(play.seen[:, 0].tolist())) == 7, "no two slots play the same environment"
    if environments is DivisibleEpisodes:
        assert sum(vector.num_envs for vector in play.vectors) <= 3 * 7
    play.slots.close()
    assert all(vector.closed for vector in play.vectors)


def test_a_fault_names_the_slot_of_the_run_after_moves(environments: type[Episodes]) -> None:
    play = Play(environments, 3)
    play.assign(["a", "a", "a"])
    play.assign(["a", "b", "a"])
    (group,) = (group for group in play.slots.groups if group.task == "a")
    owner = play.vectors[0] if environments is Episodes else group.envs
    assert isinstance(owner, Episodes)
    owner.broken = 2 if environments is Episodes else 1
    with pytest.raises(EnvironmentFaultError) as fault:
        group.envs.step(group.slots)
    assert play.slots.named(fault.value, group.slots).slot == 2


def test_environments_of_tasks_long_past_are_closed(environments: type[Episodes]) -> None:
    play = Play(environments, 2)
    for number in range(30):
        play.assign([f"task {number}"] * 2)
        play.step()
    open_tasks = {vector.task for vector in play.vectors if not vector.closed}
    assert open_tasks == {f"task {number}" for number in range(21, 30)}
    assert play.assign(["task 0", "task 29"]) == [0]
    play.step()
