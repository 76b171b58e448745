"""An agent never guesses an image's layout, refuses NaN, and leaves torch's threads as they are."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from clearl.acting.agent import Agent
from clearl.acting.agent_input import fit_frame
from clearl.acting.agent_tasks import agent_tasks, tasks_from_json, tasks_to_json
from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.nets.network import build_network
from clearl.spaces import discrete_spec
from clearl.suites import make_suite, minigrid

CUBE = discrete_spec((10, 10, 10), "bool", 6)


def test_a_cube_is_only_taken_with_its_layout() -> None:
    image = np.random.default_rng(0).random((10, 10, 10)) < 0.2
    with pytest.raises(ConfigError, match="channels=0.*channels=2"):
        fit_frame(image, CUBE)
    assert np.array_equal(fit_frame(image, CUBE, 0), image)
    assert np.array_equal(fit_frame(image, CUBE, 2), np.moveaxis(image, 2, 0))


def test_other_images_tell_their_layout_themselves() -> None:
    image = np.random.default_rng(0).random((10, 10, 4)) < 0.2
    assert np.array_equal(fit_frame(image, CUBE)[:4], np.moveaxis(image, 2, 0))
    assert np.array_equal(fit_frame(np.moveaxis(image, 2, 0), CUBE)[:4], np.moveaxis(image, 2, 0))
    with pytest.raises(ConfigError, match="does not fit"):
        fit_frame(np.zeros((12, 10, 10), bool), CUBE)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_is_refused_and_threads_are_put_back(bad: float) -> None:
    spec = discrete_spec((3,), "float32", 2)
    agent = Agent(build_network(spec, torso="mlp", lstm=False, lstm_size=8, seed=0), spec, reward_clip="none")
    threads = torch.get_num_threads()
    assert agent.act(np.zeros(3)) in (0, 1)
    with pytest.raises(ConfigError, match="NaN"):
        agent.act(np.array([0.0, bad, 0.0]))
    assert torch.get_num_threads() == threads


def an_agent_of(*games: str) -> Agent:
    """An agent that knows of its tasks what the file of an exported one says."""
    suite = make_suite("minatar", games, RunConfig())
    network = build_network(suite.spec, torso="minatar", lstm=False, lstm_size=8, seed=0)
    known = tasks_from_json(tasks_to_json(agent_tasks(suite)), suite.spec, "agent.json")
    return Agent(network, suite.spec, reward_clip="none", tasks=known)


def test_the_layout_of_an_image_is_stored_with_the_agent() -> None:
    image = np.random.default_rng(0).random((10, 10, 10)) < 0.2
    for games, task in (
        (("seaquest",), None),
        (("seaquest", "breakout"), "seaquest"),
        (("seaquest", "breakout"), None),
    ):
        agent = an_agent_of(*games)
        about = agent._about(task)
        frames, batched = agent._frames(about, image, None)
        assert not batched and np.array_equal(frames[0], np.moveaxis(image, 2, 0)), "as MinAtar shows its games"
        assert np.array_equal(agent._frames(about, np.stack([image] * 2), None)[0], np.repeat(frames, 2, axis=0))
        assert np.array_equal(agent._frames(about, image, 0)[0][0], image), "said otherwise"


def test_smaller_games_are_padded_and_other_shapes_refused() -> None:
    agent, image = an_agent_of("breakout"), np.random.default_rng(0).random((10, 10, 4)) < 0.2
    frames, _ = agent._frames(agent._about(None), image, None)
    assert np.array_equal(frames[0, :4], np.moveaxis(image, 2, 0)) and not frames[0, 4:].any()
    with pytest.raises(ConfigError, match=r"shape \(4, 10, 10\) instead of \(10, 10, 4\)"):
        agent.act(np.moveaxis(image, 2, 0))
    assert agent.act(np.moveaxis(image, 2, 0), channels=0) in range(6)


def seen_by_minigrid(count: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Observations as MiniGrid's environments give them, and the frames that training makes of them."""
    rng = np.random.default_rng(3)
    image = np.stack([rng.integers(0, n, (count, 7, 7)) for n in (11, 6, 3)], -1).astype(np.uint8)
    given = {"image": image, "direction": rng.integers(0, 4, count)}
    return {**given, "mission": np.array(["reach the goal"] * count)}, minigrid._planes(given)


@pytest.mark.parametrize("task", [None, "MiniGrid-DoorKey-5x5-v0"])
def test_an_agent_of_minigrid_takes_what_its_environments_show(task: str | None) -> None:
    """With one description for all tasks none must be named; the picture alone does not say where the agent looks."""
    suite = make_suite("minigrid", ("MiniGrid-DoorKey-5x5-v0", "MiniGrid-Empty-5x5-v0"), RunConfig())
    network = build_network(suite.spec, torso="minatar", lstm=False, lstm_size=8, seed=0)
    stored = json.loads(json.dumps(tasks_to_json(agent_tasks(suite)), sort_keys=True))
    agent = Agent(
        network, suite.spec, reward_clip="none", tasks=tasks_from_json(stored, suite.spec, "agent.json")
    )  # fmt: skip
    given, planes = seen_by_minigrid(3)
    about = agent._about(task)
    one = {key: values[1].item() if key != "image" else values[1] for key, values in given.items()}
    frames, batched = agent._frames(about, one, None)
    assert not batched and np.array_equal(frames[0], planes[1])
    frames, batched = agent._frames(about, given, None)
    assert batched and np.array_equal(frames, planes)
    assert np.array_equal(agent._frames(about, planes[0], None)[0][0], planes[0]), "a frame as training sees it"
    with pytest.raises(ConfigError, match="has image and direction; give the whole of it"):
        agent.act(one["image"], task=task or "MiniGrid-DoorKey-5x5-v0")
    with pytest.raises(ConfigError, match="part 'direction'.*outside of 0 to 3"):
        agent.act({**one, "direction": 4}, task=task)


def test_numbers_are_no_planes() -> None:
    with pytest.raises(ConfigError, match="other numbers than 0 and 1"):
        fit_frame(np.full((7, 7, 3), 2, np.uint8), discrete_spec((24, 7, 7), "bool", 7))
