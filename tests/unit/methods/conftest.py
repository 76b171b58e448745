"""Batches for methods that do not care where they come from."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from clearl.spaces import TaskSpec
from clearl.types import Batch


def make_batch(spec: TaskSpec, *, steps: int = 5, columns: int = 6, core_size: int = 0, seed: int = 0) -> Batch:
    """Random numbers in every field; the odd columns are replay, and the last action is not in the mask."""
    rng = torch.Generator().manual_seed(seed)
    actions, shape = spec.action.choices[0], (steps, columns)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=rng)

    mask = torch.ones(columns, actions, dtype=torch.bool)
    mask[:, -1] = False
    observation = normal(steps + 1, columns, *spec.observation.shapes[""])
    return Batch(
        observation=observation if spec.observation.frame_dtype == "float32" else observation > 0,
        first=torch.rand(steps + 1, columns, generator=rng) < 0.2,
        last_action=torch.randint(actions - 1, (steps + 1, columns), generator=rng),
        last_reward=normal(steps + 1, columns),
        core_state=normal(columns, core_size),
        action=torch.randint(actions - 1, shape, generator=rng),
        reward=normal(*shape),
        discount=torch.full(shape, 0.9),
        valid=torch.rand(shape, generator=rng) < 0.9,
        mask=mask,
        behaviour_policy=normal(*shape, actions),
        behaviour_value=normal(*shape),
        is_replay=torch.arange(columns) % 2 == 1,
    )


@pytest.fixture
def a_batch() -> Callable[..., Batch]:
    return make_batch
