from __future__ import annotations

import broken_envs
import numpy as np
import pytest

from clearl.errors import EnvironmentFaultError
from clearl.tasks.loop import LoopEnvs
from clearl.tasks.observations import TaskObservations, common_observation, describe_observations
from clearl.tasks.writing import ObservationWriter


def loop(kind: type[broken_envs.Walk], *, num_envs: int = 2, seed: int = 0) -> LoopEnvs:
    observations = TaskObservations(describe_observations(kind.__name__, kind.observation_space))
    spec = common_observation({"": observations}, stack=1)
    return LoopEnvs(
        kind.__name__,
        [kind() for _ in range(num_envs)],
        seed=seed,
        frame_shape=spec.frame_shape,
        frame_dtype=spec.frame_dtype,
        writer=ObservationWriter(observations, spec),
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
        (broken_envs.NoInfo, 1, "info is None; return a dict"),
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


class BreaksWhenTold(broken_envs.Walk):
    """Raises in the step or reset after `broken` was set; a new one is sound."""

    broken = ""
    closed = False

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> object:  # type: ignore[override]  # as any user's
        if self.broken == "reset":
            raise OSError("the simulator is gone")
        return super().reset(seed=seed)

    def step(self, action: int) -> object:
        if self.broken == "step":
            raise OSError("the simulator is gone")
        return (np.full(3, np.nan, np.float32), 0.0, False, False, {}) if self.broken == "nan" else super().step(action)

    def close(self) -> None:
        self.closed = True
        raise OSError("it cannot even be closed")


def rebuilt_loop(kind: type[broken_envs.Walk], *, num_envs: int = 3) -> LoopEnvs:
    envs = loop(kind, num_envs=num_envs)
    envs._rebuild = kind
    return envs


@pytest.mark.parametrize(
    ("fault", "problem"), [("step", "step raised OSError: the simulator is gone"), ("nan", "holds NaN or infinity")]
)
def test_one_broken_environment_is_built_anew_and_its_neighbours_go_on(fault: str, problem: str) -> None:
    envs, untouched = rebuilt_loop(BreaksWhenTold), loop(BreaksWhenTold, num_envs=3)
    for both in (envs, untouched):
        both.reset()
        both.step(np.ones(3, np.int64))
    broken = envs._envs[1]
    broken.broken = fault  # type: ignore[attr-defined]
    answer, expected = envs.step(np.ones(3, np.int64)), untouched.step(np.ones(3, np.int64))
    assert answer.valid.tolist() == [True, False, True] and answer.first.tolist() == [False, True, False]
    assert not (answer.terminated | answer.truncated).any() and np.isfinite(answer.frames).all()
    assert place(answer.frames)[1] == 10, "a new episode"
    np.testing.assert_array_equal(answer.frames[[0, 2]], expected.frames[[0, 2]])
    assert broken.closed and envs._envs[1] is not broken  # type: ignore[attr-defined]
    (told,) = envs.take_faults()
    assert (told.task, told.slot, told.step) == ("BreaksWhenTold", 1, 2) and problem in told.problem
    assert not envs.take_faults() and envs.step(np.ones(3, np.int64)).valid.all()


def test_an_environment_whose_reset_raises_is_built_anew_at_the_start_and_after_a_death() -> None:
    envs = rebuilt_loop(BreaksWhenTold, num_envs=1)
    envs._envs[0].broken = "reset"  # type: ignore[attr-defined]
    assert place(envs.reset()) == [10] and len(envs.take_faults()) == 1
    for _ in range(40):
        answer = envs.step(np.ones(1, np.int64))
    while place(answer.frames) != [19]:
        answer = envs.step(np.ones(1, np.int64))
    envs._envs[0].broken = "reset"  # type: ignore[attr-defined]
    while not answer.first[0]:
        answer = envs.step(np.ones(1, np.int64))
    assert answer.terminated[0] and answer.valid[0] and place(answer.frames) == [10]
    assert "reset raised OSError" in str(envs.take_faults()[0])


def test_an_environment_that_fails_again_at_once_is_not_built_a_third_time() -> None:
    envs = rebuilt_loop(broken_envs.RaisesLater, num_envs=1)
    envs.reset()
    with pytest.raises(EnvironmentFaultError, match="step 8: step raised RuntimeError: the motor is on fire"):
        for _ in range(8):
            envs.step(np.ones(1, np.int64))
    assert [fault.step for fault in envs.take_faults()] == [4]


def test_where_it_cannot_be_built_anew_the_first_fault_is_the_one_told() -> None:
    envs = rebuilt_loop(broken_envs.RaisesLater, num_envs=1)
    envs._rebuild = broken_envs.RaisesInInit
    envs.reset()
    with pytest.raises(EnvironmentFaultError, match="step 4: step raised RuntimeError"):
        for _ in range(4):
            envs.step(np.ones(1, np.int64))


def test_environments_put_together_from_others_are_rebuilt_too() -> None:
    one, two = rebuilt_loop(BreaksWhenTold, num_envs=2), rebuilt_loop(BreaksWhenTold, num_envs=2)
    one.reset()
    two.reset()
    both = LoopEnvs.combined([(one, 0), (two, 1)])
    both._envs[1].broken = "step"  # type: ignore[attr-defined]
    assert both.step(np.ones(2, np.int64)).first.tolist() == [False, True]
    assert [fault.slot for fault in both.take_faults()] == [1] and not one.take_faults()
