"""A parameter that changes in the middle of an episode: the value moves, nothing restarts, the physics are the new."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from clearl.acting.slots import SlotEnvironments
from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.suites import make_suite
from clearl.suites.control import ControlSuite
from clearl.suites.gymnasium import GymnasiumSuite
from clearl.tasks.in_play import attributes_in_play
from clearl.tasks.single import make_env

AT_ONCE: dict[str, Any] = {"protocol": "drift", "drift_applied": "at-once", "torso": "mlp"}
POLES = ("CartPole-v1?length=0.5", "CartPole-v1?length=1", "CartPole-v1?length=2&masspole=0.2")
PENDULUMS = ("pendulum", "pendulum?g=5", "pendulum@1?g=2&m=2")


def slots_of(suite: GymnasiumSuite | ControlSuite, count: int) -> SlotEnvironments:
    return SlotEnvironments(
        lambda task, n, seed: suite.make(task, num_envs=n, seed=seed), range(count), 0, suite.change
    )


def gym_suite(*tasks: str, **settings: Any) -> GymnasiumSuite:
    suite = make_suite(f"gym:{','.join(tasks)}", (), RunConfig(**AT_ONCE, **settings))
    assert isinstance(suite, GymnasiumSuite)
    return suite


def test_what_depends_on_a_parameter_is_found_by_comparison() -> None:
    found = attributes_in_play(POLES, make_env)
    assert found[POLES[0]] == {"length": 0.5, "polemass_length": 0.05, "masspole": 0.1, "total_mass": 1.1}
    assert found[POLES[1]] == {"length": 1.0, "polemass_length": 0.1, "masspole": 0.1, "total_mass": 1.1}
    assert found[POLES[2]] == {"length": 2.0, "polemass_length": 0.4, "masspole": 0.2, "total_mass": 1.2}
    assert attributes_in_play(("Pendulum-v1", "Pendulum-v1?g=2"), make_env)["Pendulum-v1?g=2"] == {"g": 2}


def test_the_value_moves_inside_an_episode_and_nothing_restarts() -> None:
    """A reference pole whose attributes are set by hand at the same steps goes through the same states."""
    suite = gym_suite(*POLES)
    slots, reference = slots_of(suite, 3), make_env("CartPole-v1").unwrapped
    (start,) = slots.assign([POLES[0]] * 3)
    reference.reset(seed=0)
    envs: Any = slots.groups[0].envs
    reference.state = np.array(envs._envs[1].unwrapped.state)
    assert np.allclose(start.frames[1], reference.state)
    for step in range(12):
        task = POLES[step // 4]
        assert slots.assign([POLES[0], task, POLES[0]]) == [], "no episode begins"
        expected = make_env(task).unwrapped
        for name in ("length", "masspole", "total_mass", "polemass_length"):
            setattr(reference, name, getattr(expected, name))
        group = next(group for group in slots.groups if 1 in group.slots)
        assert group.task == task
        answer = group.envs.step(np.full(len(group.slots), step % 2))
        for other in slots.groups:
            if other is not group:
                other.envs.step(np.zeros(len(other.slots), np.int64))
        place = group.slots.tolist().index(1)
        np.testing.assert_array_equal(answer.frames[place], reference.step(step % 2)[0])
        assert not answer.first.any() and not answer.terminated.any() and answer.valid.all()
    assert slots.starts == 1, "every slot was started once"
    slots.close()


def test_pendulums_change_their_gravity_in_full_swing() -> None:
    suite = make_suite("control", PENDULUMS, RunConfig(**AT_ONCE, suite="control"))
    assert isinstance(suite, ControlSuite)
    slots = slots_of(suite, 4)
    slots.assign([PENDULUMS[0]] * 4)
    for moved in range(5):
        assert slots.assign([PENDULUMS[2]] * moved + [PENDULUMS[0]] * (4 - moved)) == []
        for group in slots.groups:
            state = group.envs.get_state()
            assert state is not None
            fresh = suite.make(group.task, num_envs=len(group.slots), seed=9)
            fresh.set_state(state)
            actions = np.full((len(group.slots), 1), 0.3, np.float32)
            one, other = group.envs.step(actions), fresh.step(actions)
            np.testing.assert_array_equal(one.frames, other.frames)
            np.testing.assert_array_equal(one.reward, other.reward)
            assert (state["steps"] == moved).all(), "the episode goes on"
    assert slots.starts == 1


class Fuel(gymnasium.Env):
    """`tank` is used up in play; `colour` is kept in an object; `seed_offset` is read by reset."""

    observation_space, action_space = gymnasium.spaces.Box(-9, 9, (2,)), gymnasium.spaces.Discrete(2)

    def __init__(self, tank: float = 9.0, colour: str = "red", size: int = 2, silent: int = 0) -> None:
        self.tank, self.paint = tank, object() if colour == "red" else {colour}
        self.observation_space = gymnasium.spaces.Box(-9, 9, (size,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.tank = self.tank + (options or {}).get("extra", 0)
        return self.observation_space.sample(), {}

    def step(self, action: int) -> Any:
        self.tank -= 1
        return self.observation_space.sample(), 0.0, False, False, {}


gymnasium.register("Fuel-v0", entry_point=Fuel)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("tasks", "problem"),
    [
        (("Pendulum-v1?x_init=1", "Pendulum-v1?x_init=2"), "parameter x_init of Pendulum-v1 .* construction or reset"),
        (("Fuel-v0?silent=1", "Fuel-v0?silent=2"), "parameter silent of Fuel-v0 cannot be applied at once: .*paint"),
        (("Fuel-v0?colour=a", "Fuel-v0?colour=b"), "parameter colour of Fuel-v0 .* keeps it in paint, a set"),
        (("Fuel-v0?colour=a&tank=1.0", "Fuel-v0?colour=a&tank=2.0"), "parameter tank of .*tank, .* changes in play"),
        (("Fuel-v0?colour=a&size=2", "Fuel-v0?colour=a&size=3"), "the spaces of its environment change with it"),
        (("CartPole-v1?x_threshold=1", "CartPole-v1?x_threshold=2"), "the spaces of its environment change with it"),
        (("CartPole-v1?length=1", "Acrobot-v1"), "CartPoleEnv and AcrobotEnv are different environments"),
    ],
)
def test_what_cannot_be_applied_at_once_is_refused_by_name(tasks: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        gym_suite(*tasks)


def test_suites_vectors_and_protocols_that_cannot_are_refused() -> None:
    with pytest.raises(ConfigError, match="suite minatar takes parameters at construction only; set drift_applied"):
        make_suite("minatar", ("breakout", "freeway"), RunConfig(protocol="drift", drift_applied="at-once"))
    with pytest.raises(ConfigError, match="drift_applied at-once changes single environments only"):
        gym_suite(*POLES, vector_entry_point=True)
    with pytest.raises(ConfigError, match="drift_applied at-once is for protocol drift, but protocol is 'overlap'"):
        RunConfig(protocol="overlap", drift_applied="at-once")
