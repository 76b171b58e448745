"""The evaluator: one whole episode in each environment, with its recurrent state; finished episodes are skipped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import broken_envs  # noqa: F401 - registers them
import numpy as np
import pytest
import torch

from clearl.acting.evaluator import EvaluationCancelled, Evaluator
from clearl.config import RunConfig
from clearl.errors import EnvironmentFaultError
from clearl.nets.heads import make_head
from clearl.nets.network import StepInput, StepOutput, build_network
from clearl.spaces import discrete_spec
from clearl.suites import make_suite
from clearl.types import EnvStep


class Ladder:
    """Environment i ends after (i + 1) * steps, by death or, if odd, by time; a step gives 1, after the end 100."""

    def __init__(self, num_envs: int, steps: int = 1) -> None:
        self.num_envs, self.steps = num_envs, steps
        self.succeeds: int | None = None
        """The time at which environments tell of success, and after which of none."""

    def reset(self, *, seed: int | None = None) -> np.ndarray:
        self.time, self.seed, self.actions = 0, seed, []
        return np.zeros((self.num_envs, 1), np.float32)

    def step(self, actions: np.ndarray) -> EnvStep:
        self.actions.append(actions.copy())
        self.time += 1
        places = np.arange(self.num_envs)
        ends = (places + 1) * self.steps
        over, alive, odd = ends == self.time, ends >= self.time, places % 2 == 1
        frames = np.full((self.num_envs, 1), self.time, np.float32)
        reward = np.where(alive, 1, 100).astype(np.float32)
        success = None if self.succeeds is None else np.full(self.num_envs, self.time == self.succeeds)
        return EnvStep(frames, reward, over & ~odd, over & odd, np.ones(self.num_envs, bool), over & ~odd, success)

    def get_state(self) -> None: ...

    def set_state(self, state: dict[str, Any]) -> np.ndarray:
        raise NotImplementedError

    def close(self) -> None:
        self.closed = True


class LadderSuite:
    """Two ladders; the rungs of `far` are twice as high, so that it takes twice the steps."""

    name, tasks = "ladder", ("up", "far")
    spec = discrete_spec((1,), "float32", 3)

    def __init__(self) -> None:
        self.made: list[Ladder] = []

    def mask(self, task: str) -> np.ndarray:
        return np.array([True, False, True])

    def make(self, task: str, *, num_envs: int, seed: int, training: bool = True) -> Ladder:
        assert not training
        self.made.append(Ladder(num_envs, steps=2 if task == "far" else 1))
        return self.made[-1]

    def render(self, task: str, frame: np.ndarray) -> np.ndarray:
        raise NotImplementedError


class Diary:
    """A network that writes down what it was asked; its state counts its steps, and it prefers the masked action."""

    core_size = 1
    head = make_head(LadderSuite.spec.action)

    def __init__(self) -> None:
        self.asked: list[tuple[StepInput, torch.Tensor]] = []

    def act(self, inputs: StepInput, state: torch.Tensor, *, column: str = "act") -> StepOutput:
        assert column == "base"
        self.asked.append((inputs, state.clone()))
        count = len(inputs.first)
        return StepOutput(torch.tensor([0.0, 50.0, 0.0]).repeat(count, 1), torch.zeros(count), state + 1)

    def unroll(self, inputs: StepInput, state: torch.Tensor) -> StepOutput:
        raise NotImplementedError

    def evaluated_columns(self, *, in_training: bool) -> tuple[str, ...]:
        return ("base",)


@pytest.fixture
def parts() -> tuple[Evaluator, LadderSuite, Diary]:
    suite, diary = LadderSuite(), Diary()
    evaluator = Evaluator(suite=suite, network=diary, seed=1, episodes=4, max_steps=100, reward_clip="unit")
    return evaluator, suite, diary


def test_each_environment_counts_for_one_episode(parts: tuple[Evaluator, LadderSuite, Diary]) -> None:
    (done,) = parts[0].evaluate(("up",), 3)
    assert done.scores == (1, 2, 3, 4) and done.steps == 10 and done.column == "base"
    assert (done.mean, done.std) == (2.5, pytest.approx(1.25**0.5))


def test_tasks_played_together_score_as_each_by_itself(parts: tuple[Evaluator, LadderSuite, Diary]) -> None:
    evaluator, suite, diary = parts
    together = evaluator.evaluate(("up", "far"), 5)
    up, far = suite.made
    played = up.actions, far.actions
    assert [(done.task, done.scores, done.steps) for done in together] == [
        ("up", (1, 2, 3, 4), 10),
        ("far", (2, 4, 6, 8), 20),
    ]
    assert [len(inputs.first) for inputs, _ in diary.asked] == [8, 7, 5, 4, 2, 2, 1, 1]
    assert (len(up.actions), len(far.actions)) == (4, 8), "who is through is left alone"
    for task, ladder, actions in zip(("far", "up"), (far, up), reversed(played), strict=True):
        (alone,) = evaluator.evaluate((task,), 5)
        assert alone in together
        np.testing.assert_array_equal(ladder.actions, actions)


def test_only_those_who_play_are_thought_about_and_each_keeps_its_memory(
    parts: tuple[Evaluator, LadderSuite, Diary],
) -> None:
    evaluator, _, diary = parts
    evaluator.evaluate(("up",), 0)
    assert [len(inputs.first) for inputs, _ in diary.asked] == [4, 3, 2, 1]
    assert [state.flatten().tolist() for _, state in diary.asked] == [[0] * 4, [1] * 3, [2] * 2, [3]]
    assert [inputs.observation.flatten().tolist() for inputs, _ in diary.asked] == [[0] * 4, [1] * 3, [2] * 2, [3]]
    assert diary.asked[0][0].first.all() and not diary.asked[1][0].first.any()
    assert [inputs.last_reward.tolist() for inputs, _ in diary.asked][1:] == [[1] * 3, [1] * 2, [1]]


def test_frames_are_stacked_from_the_start_of_each_episode_on(parts: tuple[Evaluator, LadderSuite, Diary]) -> None:
    evaluator, suite, diary = parts
    suite.spec = discrete_spec((1,), "float32", 3, stack=3)
    evaluator.evaluate(("up", "far"), 0)
    seen = [inputs.observation[-1].tolist() for inputs, _ in diary.asked]  # of the one who plays longest
    assert seen == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6], [5, 6, 7]]


def test_masked_actions_are_never_taken_and_the_last_action_is_remembered(
    parts: tuple[Evaluator, LadderSuite, Diary],
) -> None:
    evaluator, suite, diary = parts
    for index in range(10):
        evaluator.evaluate(("up",), index)
        taken = suite.made[0].actions
        assert not any((actions == 1).any() for actions in taken)
        assert diary.asked[-1][0].last_action.tolist() == [taken[-2][3]]
    assert len(suite.made) == 1, "environments are built once"


def test_an_evaluation_depends_on_its_index_and_on_nothing_before_it(
    parts: tuple[Evaluator, LadderSuite, Diary],
) -> None:
    evaluator, suite, _ = parts

    def play(index: int) -> tuple[int | None, list[list[int]]]:
        evaluator.evaluate(("up",), index)
        return suite.made[0].seed, [actions.tolist() for actions in suite.made[0].actions]

    first = play(1)
    assert play(2) != first and play(1) == first


def test_long_episodes_are_cut_and_a_cancelled_evaluation_says_so(
    parts: tuple[Evaluator, LadderSuite, Diary],
) -> None:
    evaluator, *_ = parts
    evaluator.max_steps = 2
    assert evaluator.evaluate(("up",), 0)[0].scores == (1, 2, 2, 2)
    with pytest.raises(EvaluationCancelled):
        evaluator.evaluate(("up",), 0, cancelled=lambda: True)


class TwoColumnDiary(Diary):
    """Has a column of its own for the task in training."""

    def __init__(self) -> None:
        super().__init__()
        self.columns: list[tuple[str, int]] = []

    def act(self, inputs: StepInput, state: torch.Tensor, *, column: str = "act") -> StepOutput:
        self.columns.append((column, len(inputs.first)))
        return super().act(inputs, state, column="base")

    def evaluated_columns(self, *, in_training: bool) -> tuple[str, ...]:
        return ("new", "old") if in_training else ("old",)


def test_a_task_in_training_is_played_by_both_columns_and_the_others_by_one() -> None:
    diary = TwoColumnDiary()
    evaluator = Evaluator(suite=LadderSuite(), network=diary, seed=1, episodes=4, max_steps=100, reward_clip="unit")
    up, far = evaluator.evaluate(("up", "far"), 0, training=("up",))
    assert (up.column, up.scores, dict(up.others)) == ("new", (1, 2, 3, 4), {"old": (1, 2, 3, 4)})
    assert (far.column, far.scores, dict(far.others)) == ("old", (2, 4, 6, 8), {})
    assert [rows for column, rows in diary.columns if column == "new"] == [4, 3, 2, 1]
    assert [rows for column, rows in diary.columns if column == "old"] == [8, 7, 5, 4, 2, 2, 1, 1]


def test_the_success_rate_is_that_of_the_last_steps_of_first_episodes(
    parts: tuple[Evaluator, LadderSuite, Diary],
) -> None:
    evaluator, suite, _ = parts
    (silent,) = evaluator.evaluate(("up",), 0)
    assert silent.success_rate is None and not silent.success_rates
    suite.made[0].succeeds = 3
    (done,) = evaluator.evaluate(("up",), 1)
    assert done.success_rate == 0.25 and done.success_rates == {"base": 0.25}
    up, far = evaluator.evaluate(("up", "far"), 1)
    assert (up.success_rate, far.success_rate) == (0.25, None), "each task tells for itself"


def test_a_task_that_once_told_of_success_has_none_where_it_is_silent(
    parts: tuple[Evaluator, LadderSuite, Diary],
) -> None:
    evaluator, suite, _ = parts
    evaluator.evaluate(("up",), 0)
    suite.made[0].succeeds = 1
    evaluator.evaluate(("up",), 1)
    suite.made[0].succeeds = None
    (silent,) = evaluator.evaluate(("up",), 2)
    assert silent.success_rate == 0


def test_an_episode_cut_by_a_rebuilt_environment_is_played_again_from_its_start(
    parts: tuple[Evaluator, LadderSuite, Diary],
) -> None:
    class Rebuilt(Ladder):
        """Environment 3 breaks at the third step; its episode of four steps begins anew."""

        def step(self, actions: np.ndarray) -> EnvStep:
            step = super().step(actions)
            broken = np.arange(self.num_envs) == 3
            if self.time == 3:
                return replace(step, reward=np.where(broken, 0, step.reward), valid=~broken, first=step.first | broken)
            over = broken & (self.time == 7)
            terminated = (step.terminated & ~broken) | over
            return replace(
                step, reward=np.ones(self.num_envs), terminated=terminated, truncated=step.truncated & ~broken
            )

        def take_faults(self) -> list[EnvironmentFaultError]:
            return [EnvironmentFaultError("up", 3, 3, "it broke")]

    evaluator, suite, _ = parts
    suite.make = lambda task, **_: Rebuilt(4)  # type: ignore[method-assign]
    (done,) = evaluator.evaluate(("up",), 0)
    assert done.scores == (1, 2, 3, 4) and [fault.slot for fault in evaluator.take_faults()] == [3]


def test_environments_of_finished_episodes_get_only_actions_that_their_states_allow() -> None:
    suite = make_suite("gym:BrokenStrictMask-v0", (), RunConfig())
    network = build_network(suite.spec, torso="mlp", lstm=False, lstm_size=4, seed=1)
    evaluator = Evaluator(suite=suite, network=network, seed=1, episodes=6, max_steps=20, reward_clip="none")
    (done,) = evaluator.evaluate(suite.tasks, 0)
    assert len(set(done.scores)) > 2, "some end early, and their environments are stepped on"
    assert done.steps == sum(done.scores) and evaluator.take_faults() == []
    evaluator.close()
