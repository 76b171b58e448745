from __future__ import annotations

import re

import broken_envs  # noqa: F401 - registers them
import numpy as np
import pytest

from clearl.config import RunConfig
from clearl.errors import ConfigError, EnvironmentFaultError
from clearl.suites import make_suite
from clearl.tasks.vectors import take_faults


def test_ids_can_stand_in_the_name_of_the_suite() -> None:
    suite = make_suite("gym:CartPole-v1,Acrobot-v1", (), RunConfig())
    assert suite.tasks == ("CartPole-v1", "Acrobot-v1")
    assert make_suite("gym:CartPole-v1,Acrobot-v1", ("Acrobot-v1",), RunConfig()).tasks == ("Acrobot-v1",)
    assert make_suite("gym", ("Acrobot-v1",), RunConfig()).tasks == ("Acrobot-v1",)


def test_smaller_tasks_are_padded_and_masked() -> None:
    suite = make_suite("gym:CartPole-v1,Acrobot-v1", (), RunConfig())
    assert suite.spec.observation.frame_shape == (6,)
    assert suite.spec.action.choices[0] == 3
    assert suite.mask("CartPole-v1").tolist() == [True, True, False]
    assert suite.mask("Acrobot-v1").all()
    frames = suite.make("CartPole-v1", num_envs=4, seed=0).reset()
    assert frames[:, :4].all()
    assert not frames[:, 4:].any()


def test_images_put_their_channels_first_and_actions_start_at_zero() -> None:
    suite = make_suite("gym:BrokenPicture-v0", (), RunConfig())
    assert suite.spec.observation.frame_shape == (3, 4, 6)
    assert suite.spec.observation.frame_dtype == "uint8"
    envs = suite.make("BrokenPicture-v0", num_envs=1, seed=0)
    frames = envs.reset()
    assert frames[0, 0, 1, 2] == 100
    assert int(frames.astype(int).sum()) == 100
    for action in (0, 1):
        assert envs.step(np.array([action])).valid.all()
    picture = suite.render("BrokenPicture-v0", frames[0])
    assert picture.shape == (4, 6, 3)
    assert picture[1, 2].tolist() == [100, 0, 0]


def test_a_module_can_be_imported_for_its_id() -> None:
    suite = make_suite("gym:broken_envs:BrokenWalk-v0", (), RunConfig())
    assert suite.tasks == ("broken_envs:BrokenWalk-v0",)
    assert suite.make("broken_envs:BrokenWalk-v0", num_envs=1, seed=0).reset().shape == (1, 3)


def test_an_action_is_held_for_several_frames_and_their_rewards_add_up() -> None:
    suite = make_suite("gym:CartPole-v1", (), RunConfig(action_repeat=4))
    assert suite.spec.frames_per_step == 4
    envs = suite.make("CartPole-v1", num_envs=1, seed=0)
    envs.reset()
    assert envs.step(np.array([0])).reward[0] == 4


def test_the_stack_is_the_networks_business() -> None:
    suite = make_suite("gym:CartPole-v1", (), RunConfig(frame_stack=3))
    assert suite.spec.observation.stack == 3
    assert suite.spec.observation.shapes[""] == (12,)


def test_vectors_are_drawn_as_bars_to_both_sides() -> None:
    suite = make_suite("gym:CartPole-v1,Acrobot-v1", (), RunConfig())
    picture = suite.render("CartPole-v1", np.array([5, -5, 0, 0, 0, 0], np.float32))
    assert picture.shape == (4 * 8, 128, 3)
    assert picture[3, 100].any()
    assert not picture[3, 20].any()
    assert picture[11, 20].any()
    assert not picture[11, 100].any()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gym", "no default tasks"),
        ("gym:CartPol-v1", "did you mean 'CartPole-v1'"),
        ("gym:CartPole-v9", "v0"),
        ("gym:no_such_module:Env-v0", "No module named"),
        ("gym:BrokenSpoken-v0", "gymnasium.wrappers.TransformAction"),
        ("gym:CartPole-v1,Pendulum-v1", "CartPole-v1 has discrete actions, Pendulum-v1 continuous ones"),
        ("gym:BrokenToldStory-v0", "--wrappers FlattenObservation"),
        ("gym:CartPole-v1,BrokenPicture-v0", "images and vectors"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_with_a_remedy(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_suite(name, (), RunConfig())


@pytest.mark.parametrize("names", ["g=2,g=2.0", "g=2&m=3,m=3&g=2"])
def test_two_names_of_one_task_are_refused(names: str) -> None:
    one, other = (f"Pendulum-v1?{listed}" for listed in names.split(","))
    with pytest.raises(ConfigError, match=re.escape(f"{one} and {other} are two names of one task")):
        make_suite(f"gym:{one},{other}", (), RunConfig())


def test_a_task_that_the_name_does_not_list_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'CartPole-v1'"):
        make_suite("gym:CartPole-v1", ("CartPole-v2",), RunConfig())


def test_an_environment_that_cannot_be_built_shows_its_traceback() -> None:
    with pytest.raises(EnvironmentFaultError, match="OSError: no such device") as caught:
        make_suite("gym:BrokenRaisesInInit-v0", (), RunConfig())
    assert "broken_envs.py" in str(caught.value)


def test_masks_of_states_are_found_and_kept_with_their_frames() -> None:
    suite = make_suite("gym:BrokenMasked-v0", (), RunConfig())
    assert suite.spec.observation.mask_size == 2
    envs = suite.make("BrokenMasked-v0", num_envs=2, seed=0)
    assert envs.reset()["action mask"].tolist() == [[True, True]] * 2
    envs.close()


@pytest.mark.parametrize(
    ("name", "wrappers"), [("Asked", ()), ("Untold", ("broken_envs:ActionMasker",)), ("StrictMask", ())]
)
def test_masks_of_the_environment_or_of_a_wrapper_reach_the_frames(name: str, wrappers: tuple[str, ...]) -> None:
    suite = make_suite(f"gym:Broken{name}-v0", (), RunConfig(wrappers=wrappers))
    assert suite.spec.observation.mask_size == 2
    envs = suite.make(f"Broken{name}-v0", num_envs=2, seed=0)
    frames, masks = envs.reset(), []
    for _ in range(60):
        masks += frames["action mask"].tolist()
        frames = envs.step(frames["action mask"].argmax(1)).frames  # another action raises
    assert masks[:4] == [[False, True]] * 2 + [[True, False]] * 2 and take_faults(envs) == []
    envs.close()


@pytest.mark.parametrize("setting", ["action_repeat", "sticky_action_probability"])
def test_settings_that_repeat_actions_are_refused_where_states_have_masks(setting: str) -> None:
    config = RunConfig(**{setting: 0.5 if "sticky" in setting else 2})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=f"BrokenAsked-v0 has action masks, and {setting} repeats actions"):
        make_suite("gym:BrokenWalk-v0,BrokenAsked-v0", (), config)
    assert make_suite("gym:BrokenWalk-v0", (), config).spec.observation.mask_size == 0


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("AllMasked", "allows no action at all"),
        ("LongMask", "has 5 flags instead of 2"),
        ("RaggedMask", r"is \[\[1\], \[1, 0\]\]; give an array of flags"),
    ],
)
def test_a_mask_that_cannot_be_is_named_with_task_slot_and_step(name: str, problem: str) -> None:
    suite = make_suite(f"gym:Broken{name}-v0", (), RunConfig())
    envs = suite.make(f"Broken{name}-v0", num_envs=2, seed=0)
    envs.reset()
    envs.step(np.zeros(2, np.int64))
    faults = [str(fault) for fault in take_faults(envs)]
    assert len(faults) == 2
    for slot, told in enumerate(faults):
        assert re.search(f"Broken{name}-v0', slot {slot}, step 1: action_mask {problem}", told)
    with pytest.raises(EnvironmentFaultError, match=f"slot 0, step 2: action_mask {problem}"):
        envs.step(np.zeros(2, np.int64))  # what fails again at once is not built a third time
    envs.close()


@pytest.mark.parametrize("name", ["FrozenLake-v1", "Blackjack-v1", "Pendulum-v1", "MountainCarContinuous-v0"])
def test_environments_of_every_kind_are_stepped(name: str) -> None:
    suite = make_suite(f"gym:{name}", (), RunConfig())
    envs = suite.make(name, num_envs=3, seed=0)
    frames, action = envs.reset(), suite.spec.action
    for _ in range(5):
        frames = envs.step(np.zeros((3, *action.shape), action.dtype)).frames
    assert frames.shape[0] == 3 and suite.render(name, frames[0]).dtype == np.uint8
    envs.close()


def test_an_action_that_is_not_finite_never_reaches_an_environment() -> None:
    envs = make_suite("gym:Pendulum-v1", (), RunConfig()).make("Pendulum-v1", num_envs=2, seed=0)
    envs.reset()
    with pytest.raises(EnvironmentFaultError, match="slot 1, step 0: the policy chose the action"):
        envs.step(np.array([[0.0], [np.nan]], np.float32))
    envs.close()
