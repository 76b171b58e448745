from __future__ import annotations

import pytest

from clearl.runtimes.local.processes import default_workers
from clearl.spaces import TaskSpec, discrete_spec
from clearl.suites import SUITES
from clearl.tasks.suite import StepsSlowly

MINATAR = discrete_spec((10, 10, 10), "bool", 6)
ATARI = discrete_spec((1, 84, 84), "uint8", 18, stack=4, frames_per_step=4)


@pytest.mark.parametrize(
    ("spec", "cores", "slots", "workers"),
    [
        (MINATAR, 1, 32, 1), (MINATAR, 2, 32, 1), (MINATAR, 4, 32, 2), (MINATAR, 64, 256, 16), (MINATAR, 2, 1, 1),
        (ATARI, 1, 32, 1), (ATARI, 2, 32, 2), (ATARI, 64, 32, 8), (ATARI, 8, 3, 1),
    ],
)  # fmt: skip
def test_workers_follow_from_cores_slots_and_the_size_of_observations(
    spec: TaskSpec, cores: int, slots: int, workers: int
) -> None:
    assert default_workers(cores, slots, spec) == workers


def test_slow_steps_are_worth_a_worker_for_every_core() -> None:
    assert default_workers(2, 16, MINATAR, slow_steps=True) == 2
    assert default_workers(64, 16, MINATAR, slow_steps=True) == 4


@pytest.mark.parametrize("name", ["mujoco", "metaworld"])
def test_suites_of_physics_say_that_their_steps_are_slow(name: str) -> None:
    assert isinstance(SUITES.get(name), StepsSlowly)
