"""Vector environments of Gymnasium's, in each of its autoreset modes."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from clearl.config import RunConfig
from clearl.errors import ConfigError, EnvironmentFaultError
from clearl.runtimes.timing import Stopwatch, TimedSuite
from clearl.suites import make_suite
from clearl.suites.environments import EnvironmentSuite
from clearl.tasks.gymnasium_vectors import GymnasiumVector
from clearl.tasks.vectors import combine
from clearl.testing.suites import SUITE_CHECKS


class Clock(gymnasium.Env[Any, Any]):
    """Shows episode and time. Odd episodes die after 3 steps, even ones (the first is 0) are cut after 4."""

    observation_space = Dict({"now": Box(-1.0, 99.0, (2,), np.float32), "place": Discrete(5)})
    action_space = Discrete(3)
    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self) -> None:
        self.episode = -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self.see(), {"action_mask": self.allowed()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.allowed()[action], "a masked action"
        self.time += 1
        died, cut = self.episode % 2 == 1 and self.time == 3, self.episode % 2 == 0 and self.time == 4
        info = {"action_mask": self.allowed(), "success": self.time == 2 and self.episode == 2}
        return self.see(), float(10 * self.episode + self.time), died, cut, info

    def see(self) -> dict[str, Any]:
        return {"now": np.array([self.episode, self.time], np.float32), "place": np.int64(self.time)}

    def allowed(self) -> np.ndarray:
        return np.array([1, 1, self.time % 2], np.int8)


def make_clocks(num_envs: int, autoreset_mode: str, max_episode_steps: int | None = None) -> SyncVectorEnv:
    return SyncVectorEnv([Clock] * num_envs, autoreset_mode=autoreset_mode)


class StrictClock(Clock):
    """Never allows the first action, and the last one every other time."""

    def allowed(self) -> np.ndarray:
        return np.array([0, 1, self.time % 2], np.int8)


def make_strict_clocks(num_envs: int, autoreset_mode: str, max_episode_steps: int | None = None) -> SyncVectorEnv:
    return SyncVectorEnv([StrictClock] * num_envs, autoreset_mode=autoreset_mode)


class AskedClocks(SyncVectorEnv):
    """Has masks in a method that nothing asks."""

    def __init__(self, num_envs: int, max_episode_steps: int | None = None) -> None:
        super().__init__([Clock] * num_envs)

    def action_masks(self) -> np.ndarray:
        return np.ones((self.num_envs, 3), bool)


MODES = ("NextStep", "SameStep", "Disabled")
gymnasium.register("AskedClocks-v0", vector_entry_point=AskedClocks)  # pyright: ignore[reportArgumentType]  # a class is one
for mode in MODES:
    clocks: Any = partial(make_clocks, autoreset_mode=mode)
    gymnasium.register(f"Clocks{mode}-v0", vector_entry_point=clocks)
    strict: Any = partial(make_strict_clocks, autoreset_mode=mode)
    gymnasium.register(f"StrictClocks{mode}-v0", vector_entry_point=strict)


def vector_of(task: str, num_envs: int = 2, **settings: Any) -> GymnasiumVector:
    envs = make_suite(f"gym:{task}", (), RunConfig(**settings)).make(task, num_envs=num_envs, seed=0)
    assert isinstance(envs, GymnasiumVector)
    return envs


def told(mode: str, steps: int) -> list[tuple[Any, ...]]:
    """(episode, time, one-hot place), reward, end, valid, first of each step."""
    envs = vector_of(f"Clocks{mode}-v0")
    frames = envs.reset()
    assert frames["now"].tolist() == [[0, 0]] * 2 and frames["action mask"].tolist() == [[True, True, False]] * 2
    played = []
    for _ in range(steps):
        answer = envs.step(np.zeros(2, np.int64))
        frame = answer.frames[1]
        end = "died" if answer.terminated[1] else "cut" if answer.truncated[1] else ""
        assert answer.frames["place"][1].argmax() == frame["now"][1]
        flags = answer.valid[1], answer.first[1]
        played.append((*frame["now"].astype(int), float(answer.reward[1]), end, *flags))
        for values in vars(answer).values():
            np.testing.assert_array_equal(values[0], values[1], err_msg="both clocks run alike")
    envs.close()
    return played


def test_a_vector_that_resets_in_the_next_step() -> None:
    assert told("NextStep", 10) == [
        (0, 1, 1.0, "", True, False),
        (0, 2, 2.0, "", True, False),
        (0, 3, 3.0, "", True, False),
        (0, 4, 4.0, "cut", True, False),
        (1, 0, 0.0, "", False, True),
        (1, 1, 11.0, "", True, False),
        (1, 2, 12.0, "", True, False),
        (1, 3, 13.0, "died", True, False),
        (2, 0, 0.0, "", False, True),
        (2, 1, 21.0, "", True, False),
    ]


@pytest.mark.parametrize("mode", ["SameStep", "Disabled"])
def test_vectors_that_reset_at_once_or_on_demand(mode: str) -> None:
    assert told(mode, 11) == [
        (0, 1, 1.0, "", True, False),
        (0, 2, 2.0, "", True, False),
        (0, 3, 3.0, "", True, False),
        (0, 4, 4.0, "cut", True, False),  # the frame that the value is bootstrapped from
        (1, 1, 0.0, "", False, True),  # its first step was played unseen
        (1, 2, 12.0, "", True, False),
        (2, 0, 13.0, "died", True, True),
        (2, 1, 21.0, "", True, False),
        (2, 2, 22.0, "", True, False),
        (2, 3, 23.0, "", True, False),
        (2, 4, 24.0, "cut", True, False),
    ]


@pytest.mark.parametrize("mode", MODES)
def test_success_and_masks_of_states(mode: str) -> None:
    envs = vector_of(f"Clocks{mode}-v0")
    envs.reset()
    successes, masks = {}, []
    for _ in range(13):
        answer = envs.step(np.zeros(2, np.int64))
        episode, time = answer.frames["now"][0].astype(int).tolist()
        assert answer.success is not None
        if answer.valid[0] and not answer.first[0]:
            successes[episode, time] = bool(answer.success[0])
        if not (answer.terminated | answer.truncated)[0] or answer.first[0]:
            masks.append(answer.frames["action mask"][0].tolist() == [True, True, time % 2 == 1])
    assert all(masks)
    assert {place for place, success in successes.items() if success} >= {(2, 2), (2, 3), (2, 4)}
    assert not any(success for (episode, time), success in successes.items() if episode < 2 or time < 2)


@pytest.mark.parametrize("mode", MODES)
def test_no_masked_action_is_ever_played(mode: str) -> None:
    """Clocks check it. The policy takes the last option wherever its frame allows it."""
    envs = vector_of(f"Clocks{mode}-v0")
    frames = envs.reset()
    for _ in range(30):
        frames = envs.step(np.where(frames["action mask"][:, 2], 2, 0)).frames


@pytest.mark.parametrize("mode", MODES)
def test_the_first_action_that_a_frame_allows_is_always_one(mode: str) -> None:
    """Strict clocks never allow action 0; a frame whose mask is missing would lead to it."""
    envs = vector_of(f"StrictClocks{mode}-v0")
    frames, played = envs.reset(), set()
    for _ in range(30):
        step = envs.step(frames["action mask"].argmax(1))
        frames = step.frames
        played |= {tuple(row) for row in frames["now"].astype(int).tolist()}
    assert {(3, 1), (3, 2), (4, 3)} <= played


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("timed", [False, True], ids=["inline", "in a worker"])
def test_environments_that_no_slot_plays_get_actions_that_their_states_allow(mode: str, timed: bool) -> None:
    """The first environment of three has left its vector; the clocks refuse masked actions."""
    suite: Any = make_suite(f"gym:StrictClocks{mode}-v0", (), RunConfig())
    suite = TimedSuite(suite, Stopwatch(), lambda building: None) if timed else suite
    envs = suite.make(suite.tasks[0], num_envs=3, seed=0)
    envs.reset()
    left = combine([(envs, 1), (envs, 2)])
    times = [left.step(np.ones(2, np.int64)).frames["now"][:, 1].astype(int).tolist() for _ in range(3)]
    assert times == [[1, 1], [2, 2], [3, 3]] and envs.allowed_actions().tolist() == [1, 1, 1]
    for _ in range(20):
        left.step(np.ones(2, np.int64))
    left.close()


def test_masks_that_a_vector_is_not_asked_for_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"AskedClocks-v0 is a vector.*action_masks is not called.*info\[\"action_mask"
    ):
        vector_of("AskedClocks-v0")


@pytest.mark.parametrize("check", SUITE_CHECKS, ids=lambda check: check.__name__)
def test_a_registered_vector_keeps_the_contract_of_suites(check: Any) -> None:
    if check.__name__ != "leaves_the_stack_to_the_network":  # it makes the suite by its bare name
        check(make_suite("gym:CartPole-v1", (), RunConfig(vector_entry_point=True)), 60)


def test_an_entry_point_is_used_where_it_is_asked_for() -> None:
    alone = make_suite("gym:CartPole-v1", (), RunConfig()).make("CartPole-v1", num_envs=2, seed=0)
    assert not isinstance(alone, GymnasiumVector)
    envs = vector_of("CartPole-v1", 3, vector_entry_point=True)
    start = envs.reset(seed=5)
    assert np.array_equal(start, envs.reset(seed=5)) and not np.array_equal(start, envs.reset(seed=6))
    ends = 0
    for _ in range(80):
        answer = envs.step(np.zeros(3, np.int64))
        assert (answer.reward[answer.valid] == 1).all() and not answer.reward[~answer.valid].any()
        ends += int(answer.terminated.sum())
    assert ends >= 15


def test_parameters_are_keywords_or_attributes_of_the_vector() -> None:
    task = "CartPole-v1?sutton_barto_reward=true"
    envs = vector_of(task, 1, vector_entry_point=True)
    envs.reset()
    assert envs.step(np.zeros(1, np.int64)).reward == 0
    with pytest.raises(ConfigError, match="CartPole-v1 'lenth'; did you mean 'length'"):
        vector_of("CartPole-v1?lenth=2", 1, vector_entry_point=True)
    with pytest.raises(ConfigError, match="num_envs is no parameter of a task"):
        vector_of("CartPole-v1?num_envs=2", 1, vector_entry_point=True)


def test_settings_that_a_vector_cannot_follow_are_refused() -> None:
    with pytest.raises(ConfigError, match="CartPole-v1 is a vector environment, which action_repeat cannot change"):
        vector_of("CartPole-v1", vector_entry_point=True, action_repeat=2)


class Unsaid(SyncVectorEnv):
    """Does not say how it resets."""

    def __init__(self, num_envs: int, max_episode_steps: int | None = None) -> None:
        super().__init__([Clock] * num_envs)
        self.metadata = {"autoreset_mode": "sometimes"}


class Faulty(SyncVectorEnv):
    """Resets in the same step, and hides what an episode ended with; `wrong` is another fault."""

    def __init__(self, num_envs: int, wrong: str = "", max_episode_steps: int | None = None) -> None:
        super().__init__([Clock] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
        self.wrong = wrong

    def step(self, actions: Any) -> Any:
        observations, reward, terminated, truncated, info = super().step(actions)
        info.pop("final_obs", None)
        if self.wrong == "raises":
            raise RuntimeError("the motor is on fire")
        if self.wrong == "reward":
            reward[1] = np.nan
        if self.wrong == "unbatched":
            observations = {name: part[0] for name, part in observations.items()}
        if self.wrong == "info":
            info = None
        if self.wrong == "outside":
            observations["place"][1] = 9
        return observations, reward, terminated, truncated, info


gymnasium.register("Unsaid-v0", vector_entry_point=Unsaid)  # pyright: ignore[reportArgumentType]  # a class is one
gymnasium.register("FaultyVector-v0", vector_entry_point=Faulty)  # pyright: ignore[reportArgumentType]


@pytest.mark.filterwarnings("ignore:.*autoreset_mode")
def test_an_unknown_autoreset_mode_is_named() -> None:
    with pytest.raises(ConfigError, match="does not say how it resets .metadata..autoreset_mode.. is 'sometimes'."):
        vector_of("Unsaid-v0")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("", r"slot 0, step 4: a truncated episode needs its last observation in info..final_obs"),
        ("raises", "slot 0, step 1: step of the vector raised RuntimeError: the motor is on fire"),
        ("reward", "slot 1, step 1: the reward is nan"),
        ("info", "slot 0, step 1: info of the vector is None; return a dict"),
        ("unbatched", "slot 0, step 1: the observations are no batch of 2"),
        ("outside", "slot 1, step 1: the observation's part 'place' is 9, outside of its space"),
    ],
)
def test_faults_are_named_with_their_place(wrong: str, message: str) -> None:
    envs = vector_of(f"FaultyVector-v0?wrong={wrong}" if wrong else "FaultyVector-v0")
    envs.reset()
    with pytest.raises(EnvironmentFaultError, match=message):
        for _ in range(5):
            envs.step(np.zeros(2, np.int64))


def test_actions_that_are_not_finite_never_reach_a_vector() -> None:
    class Pushed(Clock):
        action_space = Box(-1.0, 1.0, (2,), np.float32)

    class PushedSuite(EnvironmentSuite):
        name = "pushed"

        def make_env(self, task: str) -> Any:
            raise AssertionError

    suite = PushedSuite(("a",), RunConfig(), make_vector=lambda task, count: SyncVectorEnv([Pushed] * count))
    envs = suite.make("a", num_envs=2, seed=0)
    envs.reset()
    with pytest.raises(EnvironmentFaultError, match="slot 1, step 0: the policy chose the action .nan, 0.0."):
        envs.step(np.array([[0, 0], [np.nan, 0]], np.float32))
