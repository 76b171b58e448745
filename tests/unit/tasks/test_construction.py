"""A changed attribute gives the environment that its source gives with that constant in place of the old one."""

from __future__ import annotations

import inspect
import re
import sys
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import (
    AcrobotEnv,
    CartPoleEnv,
    Continuous_MountainCarEnv,
    MountainCarEnv,
    PendulumEnv,
)
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.suites import make_suite
from clearl.tasks.construction import constants_kept
from clearl.tasks.single import list_parameters, make_env, make_vector

POLE = {
    "gravity": 5.0, "masscart": 2.0, "masspole": 0.5, "length": 2.0, "force_mag": 6.0, "tau": 0.05, "x_threshold": 0.05,
    "theta_threshold_radians": 0.1, "kinematics_integrator": "semi-implicit euler",
}  # fmt: skip
CHANGED: dict[str, tuple[type, dict[str, Any]]] = {
    "CartPole-v1": (CartPoleEnv, POLE),
    "MountainCar-v0": (
        MountainCarEnv,
        {"min_position": -0.5, "max_position": -0.45, "max_speed": 0.001, "force": 0.01, "gravity": 0.004},
    ),
    "MountainCarContinuous-v0": (
        Continuous_MountainCarEnv, {"power": 0.01, "max_speed": 0.001, "min_position": -0.5, "max_action": 0.5},
    ),
    "Pendulum-v1": (PendulumEnv, {"max_speed": 3, "max_torque": 5.0, "dt": 0.1, "m": 2.0, "l": 0.5}),
    "Acrobot-v1": (
        AcrobotEnv, {"LINK_LENGTH_1": 2.0, "LINK_MASS_2": 0.5, "LINK_MOI": 2.0, "dt": 0.1, "MAX_VEL_1": 1.5},
    ),
}  # fmt: skip
CASES = [(task, kind, name, value) for task, (kind, each) in CHANGED.items() for name, value in each.items()]


def rewritten(kind: type, name: str, value: Any) -> type:
    """Return the class that its source is with another constant: what an author of the environment would write."""
    source = inspect.getsource(kind)
    pattern = rf"(^        self\.{name} = |^    {name} = )\(?\n? *([^#\n)]+)"
    changed, count = re.subn(pattern, lambda found: f"{found[1]}{'(' * ('(' in found[0])}{value!r}", source, flags=re.M)
    assert count == 1, f"{name} is assigned once in {kind.__name__}"
    scope = dict(vars(sys.modules[kind.__module__]))
    exec(changed, scope)
    return scope[kind.__name__]


def attributes(env: Any) -> dict[str, Any]:
    """Return the attributes of an environment and the constants of its class, but for who made it."""
    found = {name: getattr(env, name) for name in dir(type(env)) if name.isupper()}
    return {**found, **{name: value for name, value in vars(env).items() if name not in ("spec", "_np_random_seed")}}


def episode(env: Any, steps: int = 300) -> list[Any]:
    env.action_space.seed(3)
    played: list[Any] = [env.reset(seed=7)[0]]
    for _ in range(steps):
        *answer, _ = env.step(env.action_space.sample())
        played.append(answer)
        if answer[2] or answer[3]:
            break
    return played


@pytest.mark.parametrize(("task", "kind", "name", "value"), CASES, ids=[f"{case[0]}-{case[2]}" for case in CASES])
def test_classic_control_equals_its_source_with_that_constant(task: str, kind: type, name: str, value: Any) -> None:
    made, reference = make_env(f"{task}?{name}={value}"), rewritten(kind, name, value)()
    assert type(made.unwrapped) is kind, "no class of ours is put in between"
    for key, expected in attributes(reference).items():
        np.testing.assert_equal(getattr(made.unwrapped, key), expected, err_msg=key)
    played = episode(made.unwrapped)
    np.testing.assert_equal(played, episode(reference))
    assert len(played) > 1 and repr(played) != repr(episode(make_env(task).unwrapped)), "the value matters"


@pytest.mark.parametrize(("name", "value"), POLE.items())
def test_a_registered_vector_equals_its_source_with_that_constant(name: str, value: Any) -> None:
    made, reference = make_vector(f"CartPole-v1?{name}={value}", 3), rewritten(CartPoleVectorEnv, name, value)(3)
    for key, expected in attributes(reference).items():
        np.testing.assert_equal(getattr(made.unwrapped, key), expected, err_msg=key)
    np.testing.assert_equal(made.reset(seed=7)[0], reference.reset(seed=7)[0])
    for step in range(60):
        actions = np.array([step % 2, 1, step % 3 > 0], np.int64)
        np.testing.assert_equal(made.step(actions)[:4], reference.step(actions)[:4])


@pytest.mark.parametrize("vector_entry_point", [False, True])
def test_a_suite_plays_the_derived_values(vector_entry_point: bool) -> None:
    task = "CartPole-v1?length=2&masspole=0.5"
    suite = make_suite(f"gym:{task}", (), RunConfig(vector_entry_point=vector_entry_point, torso="mlp"))
    envs: Any = suite.make(task, num_envs=2, seed=0)
    vector = getattr(envs, "_vector", None)
    unwrapped = vector.unwrapped if vector is not None else envs._envs[0]._env.unwrapped
    assert (unwrapped.polemass_length, unwrapped.total_mass) == (1.0, 1.5)
    envs.close()


def test_several_attributes_and_a_derived_one() -> None:
    pole = make_env("CartPole-v1?masspole=0.5&length=2&sutton_barto_reward=true").unwrapped
    assert (pole.polemass_length, pole.total_mass) == (1.0, 1.5)
    pole = make_env("CartPole-v1?length=2&polemass_length=7").unwrapped
    assert (pole.length, pole.polemass_length, pole.total_mass) == (2.0, 7.0, 1.1)
    assert make_env("CartPole-v1").unwrapped.polemass_length == 0.05, "nothing stays changed"
    assert "__setattr__" not in vars(CartPoleEnv) and "__wrapped__" not in vars(CartPoleEnv.__init__)


def test_constants_of_a_class_are_parameters() -> None:
    known = list_parameters("Acrobot-v1")
    assert {"LINK_LENGTH_1", "MAX_VEL_1", "dt"} <= set(known.attributes)
    with pytest.raises(ConfigError, match=r"LINK_MASS_1 is float \(1.0\), got 'heavy'"):
        make_env("Acrobot-v1?LINK_MASS_1=heavy")


class Room(gymnasium.Env):
    """Derives its walls from a local variable, from which `width` is set as well."""

    observation_space, action_space = gymnasium.spaces.Discrete(9), gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        size = 5
        self.width = size
        self.walls = [0] * size
        self.height = 4
        vars(self)["hidden"] = 3


gymnasium.register("Room-v0", entry_point=Room)  # pyright: ignore[reportArgumentType]


def test_an_unknown_dependence_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="width cannot be changed, as Room computes it from its local size"):
        make_env("Room-v0?width=7")
    assert make_env("Room-v0?height=7").unwrapped.height == 7
    with pytest.raises(ConfigError, match=r"hidden cannot be changed: Room does not set self\.hidden"):
        make_env("Room-v0?hidden=7")


def test_other_threads_construct_what_they_asked_for() -> None:
    found: list[float] = []
    with constants_kept(CartPoleEnv, {"length": 2.0}):
        other = threading.Thread(target=lambda: found.append(CartPoleEnv().polemass_length))
        other.start()
        other.join()
        found.append(CartPoleEnv().polemass_length)
    assert found == [0.05, 0.2]
