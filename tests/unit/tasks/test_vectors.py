"""A vector put together from others goes on bit for bit as each of its environments would have."""

from __future__ import annotations

import numpy as np
import pytest

from clearl.config import RunConfig
from clearl.suites import make_suite
from clearl.tasks.suite import Envs
from clearl.tasks.vectors import BundledEnvs, combine, is_divisible

TASKS = {
    "minatar": ("freeway", True),
    "gym:CartPole-v1": ("CartPole-v1", True),
    "minigrid": ("MiniGrid-Empty-5x5-v0", False),
    "atari": ("pong", False),
}


def _vectors(suite_name: str, task: str) -> tuple[Envs, Envs]:
    suite = make_suite(suite_name, () if ":" in suite_name else (task,), RunConfig(runtime="inline"))
    return suite.make(task, num_envs=3, seed=1), suite.make(task, num_envs=2, seed=2)


@pytest.mark.parametrize("suite_name", TASKS)
def test_the_parts_play_on(suite_name: str) -> None:
    if suite_name in ("minigrid", "atari"):
        pytest.importorskip({"minigrid": "envpool", "atari": "ale_py"}[suite_name])
    task, divisible = TASKS[suite_name]
    (a, b), (ref_a, ref_b) = _vectors(suite_name, task), _vectors(suite_name, task)
    assert is_divisible(a) == divisible
    rng = np.random.default_rng(0)
    for number, envs in enumerate((a, b, ref_a, ref_b)):
        envs.reset(seed=number % 2)
    # The third environment of `a` was left by its slot; nobody looks at it any more.
    joined = combine([(b, 1), (a, 0), (b, 0), (a, 1)])
    assert isinstance(joined, BundledEnvs) != divisible
    for _ in range(60):
        left, right = rng.integers(0, 2, 3), rng.integers(0, 2, 2)
        left[2] = 0 if not divisible else left[2]
        step = joined.step(np.array([right[1], left[0], right[0], left[1]]))
        of_a, of_b = ref_a.step(left), ref_b.step(right)
        for name, values in vars(step).items():
            if values is None:
                continue
            one, other = vars(of_a)[name], vars(of_b)[name]
            np.testing.assert_array_equal(values, np.stack([other[1], one[0], other[0], one[1]]), err_msg=name)
    for envs in (a, b, ref_a, ref_b):
        envs.close()


def test_a_vector_as_it_is_stays_itself() -> None:
    a, b = _vectors("minatar", "freeway")
    assert combine([(a, 0), (a, 1), (a, 2)]) is a
    assert combine([(a, 0), (a, 2), (a, 1)]) is not a
    assert combine([(b, 0), (b, 1)]) is b
