"""An agent never guesses an image's layout, refuses NaN, and leaves torch's threads as they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from clearl.acting.agent import Agent, fit_frame
from clearl.errors import ConfigError
from clearl.nets.network import build_network
from clearl.spaces import discrete_spec

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
