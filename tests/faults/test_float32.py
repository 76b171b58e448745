"""No infinity in the buffer or the loss: what float32 cannot hold is a fault of the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from whole_runs import small_config

from clearl.errors import EnvironmentFaultError
from clearl.experiment import run


class Huge(gymnasium.Env[np.ndarray, Any]):
    """Gives one value that float32 cannot hold, at step 5."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Discrete(2)

    def __init__(self, where: str, **options: Any) -> None:
        super().__init__(**options)
        self.where = where
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.time = 0
        return np.zeros(2), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        now = self.time == 5
        observation: Any = np.array([1e39 if now and self.where == "observation" else 0.0, 1.0])
        if now and self.where == "ragged":
            observation = [1.0, [2.0, 3.0]]
        return observation, -1e39 if now and self.where == "reward" else 0.0, self.time == 20, False, {}


for _where in ("reward", "observation", "ragged", "nothing"):
    gymnasium.register(f"Huge{_where.capitalize()}-v0", Huge, kwargs={"where": _where})


def _config(where: str, **changes: Any):
    suite = {"suite": f"gym:Huge{where.capitalize()}-v0", "tasks": (), "torso": "mlp", "cycles": 1}
    return small_config(**{**suite, "frames_per_visit": 200, **changes})


@pytest.mark.parametrize("clip", ["unit", "none"])
@pytest.mark.parametrize(
    ("where", "said"),
    [("reward", "no finite number in float32"), ("observation", "beyond float32"), ("ragged", "no array")],
)
def test_the_environment_is_named_and_nothing_of_it_is_learnt(tmp_path: Path, where: str, said: str, clip: str) -> None:
    with pytest.raises(EnvironmentFaultError, match=said) as caught:
        run(_config(where, reward_clip=clip), tmp_path / "run", console=False)
    assert caught.value.task == f"Huge{where.capitalize()}-v0" and "learning_rate" not in str(caught.value)


def test_a_constructor_that_changes_torch_does_not_change_the_learner(tmp_path: Path) -> None:
    assert run(_config("nothing"), tmp_path / "run", console=False).status == "finished"
    assert torch.is_grad_enabled() and torch.get_default_dtype() == torch.float32
