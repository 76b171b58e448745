from __future__ import annotations

import broken_envs
import numpy as np
import pytest

from clearl.errors import EnvironmentFaultError
from clearl.tasks.loop import LoopEnvs
from clearl.tasks.observations import ObservationWriter, TaskObservations, common_observation, describe_observations


def loop(kind: type[broken_envs.Walk], *, num_envs: int = 2, seed: int = 0) -> LoopEnvs:
    observations = TaskObservations(describe_observations(kind.__name__, kind.observation_space))
    spec = common_observation({"": observations}, stack=1)
    return LoopEnvs(
        kind.__name__,
        [kind() for _ in range(num_envs)],
        seed=seed,
        frame_shape=spec.frame_shape,
        frame_dtype=spec.frame_dtype,
        write_frame=ObservationWriter(observations, spec).write,
    )


def place(frames: np.ndarray) -> list[int]:
    return [round(20 * float(x)) for x in frames[:, 0]]


def test_termination_resets_in_the_same_step() -> None:
    envs = loop(broken_envs.Walk, num_envs=1)
    envs.reset()
    answer = envs.step(np.ones(1, np.int64))
    while not answer.terminated[0]:
        assert answer.valid[0]
        assert not answer.first[0]
        answer = envs.step(np.ones(1, np.int64))
    assert answer.reward[0] == 1
    assert answer.first[0]
    assert not answer.truncated[0]
    assert place(answer.frames) == [10]
    assert envs.step(np.ones(1, np.int64)).valid[0]


def test_truncation_keeps_the_last_frame_and_ignores_the_next_action() -> None:
    envs = loop(broken_envs.Truncating)
    envs.reset()
    for _ in range(4):
        assert not envs.step(np.zeros(2, np.int64)).truncated.any()
    last = envs.step(np.zeros(2, np.int64))
    assert last.truncated.all()
    assert last.valid.all()
    assert not last.first.any()
    assert not last.terminated.any()
    assert place(last.frames) != [10, 10]
    reset = envs.step(np.ones(2, np.int64))
    assert place(reset.frames) == [10, 10]
    assert reset.first.all()
    assert not reset.valid.any()
    assert not reset.truncated.any()
    assert not reset.reward.any()


def test_a_death_at_the_time_limit_is_a_death() -> None:
    class Both(broken_envs.Walk):
        def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
            return self.see(), 0.0, True, True, {}

    envs = loop(Both)
    envs.reset()
    answer = envs.step(np.zeros(2, np.int64))
    assert answer.terminated.all()
    assert not answer.truncated.any()


def test_the_seed_decides_everything_and_a_new_one_starts_over() -> None:
    def play(envs: LoopEnvs) -> np.ndarray:
        return np.stack([envs.step(np.ones(2, np.int64)).frames for _ in range(30)])

    one, two = loop(broken_envs.Walk, seed=1), loop(broken_envs.Walk, seed=2)
    one.reset()
    two.reset()
    first = play(one)
    assert not np.array_equal(first[:, 0], first[:, 1])
    assert not np.array_equal(first, play(two))
    two.reset(seed=1)
    np.testing.assert_array_equal(first, play(two))
    two.reset()
    assert not np.array_equal(first, play(two))


@pytest.mark.parametrize(
    ("kind", "step", "problem"),
    [
        (broken_envs.RaisesLater, 4, "step raised RuntimeError: the motor is on fire"),
        (broken_envs.NanObservation, 2, "the observation holds NaN or infinity"),
        (broken_envs.InfReward, 1, "the reward is inf"),
        (broken_envs.WrongShape, 2, r"shape \(2,\) instead of \(3,\)"),
        (broken_envs.OldStep, 1, "step raised ValueError"),
        (broken_envs.RaisesInReset, 0, "reset raised ZeroDivisionError"),
        (broken_envs.WrongDtype, 0, "dtype float32 instead of uint8"),
    ],
)
def test_a_fault_names_task_slot_step_and_cause(kind: type[broken_envs.Walk], step: int, problem: str) -> None:
    envs = loop(kind)
    with pytest.raises(EnvironmentFaultError, match=problem) as caught:
        envs.reset()
        for _ in range(5):
            envs.step(np.ones(2, np.int64))
    assert (caught.value.task, caught.value.slot, caught.value.step) == (kind.__name__, 0, step)
    if "raised" in problem:
        assert "Traceback (most recent call last)" in str(caught.value)


def test_the_slot_of_a_fault_is_the_one_that_failed() -> None:
    envs = loop(broken_envs.RaisesLater, num_envs=3)
    envs.reset()
    for env in (envs._envs[0], envs._envs[1]):
        env.step = lambda action: (np.zeros(3, np.float32), 0.0, False, False, {})  # type: ignore[method-assign]  # healed
    with pytest.raises(EnvironmentFaultError) as caught:
        for _ in range(5):
            envs.step(np.ones(3, np.int64))
    assert caught.value.slot == 2


def test_gymnasium_has_no_state_to_save() -> None:
    assert loop(broken_envs.Walk).get_state() is None
