"""The robots of MuJoCo: directions, numbers of the world, sizes of parts."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from clearl.config import RunConfig
from clearl.errors import ConfigError, MissingExtraError
from clearl.suites import make_suite
from clearl.suites.mujoco import ROBOTS, MujocoSuite, make_robot

installed = pytest.mark.skipif(importlib.util.find_spec("mujoco") is None, reason="needs the extra mujoco")


def play(task: str, steps: int = 15) -> tuple[np.ndarray, list[float]]:
    """Observations and rewards of one episode with actions that depend on nothing."""
    env, rng = make_robot(task), np.random.default_rng(0)
    seen, rewards = [env.reset(seed=0)[0]], []
    for _ in range(steps):
        observation, reward, *_ = env.step(rng.uniform(-1, 1, env.action_space.shape).astype(np.float32))
        seen.append(observation)
        rewards.append(float(reward))
    env.close()
    return np.array(seen), rewards


@installed
@pytest.mark.parametrize("probe", [name for name in ROBOTS if name != "hopper"])
def test_the_spec_of_robots_is_known_without_mujoco(probe: str) -> None:
    config = RunConfig(suite="mujoco", tasks=("hopper?size=1.5",), protocol="probe", probe_task=probe, action_repeat=2)
    assert MujocoSuite.spec_for(config) == make_suite("mujoco", config.tasks, config).spec


@installed
@pytest.mark.parametrize("name", ROBOTS)
def test_a_robot_is_gymnasiums_with_its_direction_in_front(name: str) -> None:
    import gymnasium

    seen, rewards = play(name)
    env, rng = gymnasium.make(ROBOTS[name].env_id), np.random.default_rng(0)
    np.testing.assert_array_equal(seen[0, 1:], env.reset(seed=0)[0])
    for step in range(15):
        observation, reward, *_ = env.step(rng.uniform(-1, 1, env.action_space.shape or ()).astype(np.float32))
        np.testing.assert_array_equal(seen[step + 1, 1:], observation)
        assert rewards[step] == reward
    assert (seen[:, 0] == (1 if ROBOTS[name].has_direction else 0)).all()


@installed
@pytest.mark.parametrize("name", [name for name, robot in ROBOTS.items() if robot.has_direction])
def test_backward_turns_the_reward_for_speed_round_and_is_seen(name: str) -> None:
    forward, gains = play(name)
    backward, losses = play(f"{name}?direction=backward")
    np.testing.assert_array_equal(forward[:, 1:], backward[:, 1:])
    assert (backward[:, 0] == -1).all()
    _, rest = play(f"{name}?forward_reward_weight=0")
    np.testing.assert_allclose(np.array(gains) + losses, 2 * np.array(rest), atol=1e-9)
    assert not np.allclose(gains, losses)
    doubled = play(f"{name}?direction=backward&forward_reward_weight=2")[1]
    np.testing.assert_allclose(np.array(doubled) - rest, 2 * (np.array(losses) - rest), atol=1e-9)


@installed
@pytest.mark.parametrize(("name", "factor"), [(name, each) for name, robot in ROBOTS.items() for each in robot.factors])
def test_every_factor_changes_the_play_and_one_leaves_it(name: str, factor: str) -> None:
    standard, _ = play(name)
    np.testing.assert_array_equal(play(f"{name}?{factor}=1")[0], standard)
    other, _ = play(f"{name}?{factor}=1.5")
    np.testing.assert_array_equal(other[0], standard[0])
    assert not np.array_equal(other, standard)


@installed
def test_factors_change_what_they_name() -> None:
    def model(task: str) -> Any:
        return make_robot(task).unwrapped.model

    standard = model("half_cheetah")
    np.testing.assert_allclose(model("half_cheetah?gravity=2").opt.gravity, [0, 0, -19.62])
    np.testing.assert_allclose(model("half_cheetah?friction=0.5").geom_friction, standard.geom_friction / 2)
    feet = model("half_cheetah?foot=1.25")
    scaled = {feet.geom(i).name for i in range(feet.ngeom) if feet.geom_size[i, 0] != standard.geom_size[i, 0]}
    assert scaled == {"bfoot", "ffoot"} and feet.geom("bfoot").size[0] == pytest.approx(1.25 * 0.046)
    # The description asks for 14 kg in all; heavier feet leave less for the rest.
    assert feet.body("bfoot").mass[0] > standard.body("bfoot").mass[0]
    assert feet.body_mass.sum() == pytest.approx(14)
    both = model("half_cheetah?size=2&foot=1.5")
    assert both.geom("torso").size[0] == pytest.approx(2 * 0.046)
    assert both.geom("bfoot").size[0] == pytest.approx(3 * 0.046)
    assert model("reacher?size=2").geom("target").size[0] == pytest.approx(0.009)


@installed
@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("half_chetah", "did you mean 'half_cheetah'"),
        ("half_cheetah?graviti=2", "did you mean 'gravity'"),
        ("reacher?direction=backward", "unknown parameter of reacher 'direction'"),
        ("swimmer?gravity=2", "did you mean 'viscosity'"),
        ("ant?direction=up", "direction is forward or backward, got 'up'"),
        ("ant?gravity=0", "above 0 and at most 100, got 0"),
        ("ant?gravity=heavy", "got 'heavy'"),
        ("ant?friction=true", "got True"),
        ("ant?xml_file=mine.xml", "unknown parameter of ant 'xml_file'"),
    ],
)
def test_bad_tasks_say_what_is_known(task: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_suite("mujoco", (task,), RunConfig())


@installed
def test_robots_of_different_sizes_share_one_network() -> None:
    suite = make_suite("mujoco", ("half_cheetah", "reacher", "ant?gravity=0.5"), RunConfig())
    assert suite.spec.observation.frame_shape == (106,) and suite.spec.action.bounded == (True,) * 8
    assert suite.mask("reacher").sum() == 2 and suite.mask("half_cheetah").sum() == 6
    frames = suite.make("reacher", num_envs=2, seed=0).reset()
    assert not frames[:, 0].any() and frames[:, 1:11].any() and not frames[:, 11:].any()


def test_a_missing_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"suite mujoco needs the package 'mujoco'.*clearl\[mujoco\]"):
        make_suite("mujoco", (), RunConfig())


def test_known_tasks_need_no_package() -> None:
    assert "half_cheetah?direction=backward" in MujocoSuite.known_tasks
    assert "reacher" in MujocoSuite.known_tasks and "reacher?direction=backward" not in MujocoSuite.known_tasks
