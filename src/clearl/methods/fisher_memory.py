"""The experience that a Fisher information is estimated from: some of the last steps of a visit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from clearl.errors import ConfigError
from clearl.growth import Growth
from clearl.nets.network import StepInput
from clearl.seeding import generator
from clearl.types import Batch
from clearl.unroll import as_plain, from_plain

Windows = dict[str, Tensor]
"""Pieces of unrolls, window axis first: the inputs [N, L, ...], valid [N, L], core_state [N, S], and mask [N, A], or
[N, L, A] of unrolls whose states have masks of their own."""

STEPS_PER_UNROLL = 4
"""Steps of one unroll that are used for a network with a memory: each costs a backward pass over the unroll."""


class FisherMemory:
    """Keeps `steps` new steps, drawn at random, of each of the last `batches` batches of a visit.

    A network without a memory needs single steps. One with a memory needs the steps before them as well, so whole
    unrolls are kept, and up to 4 steps of each are used.
    """

    def __init__(self, *, batches: int, steps: int, seed: int) -> None:
        if batches < 1 or steps < 1:
            raise ConfigError(f"fisher_batches and fisher_steps must be at least 1, got {batches} and {steps}")
        self.batches, self.steps, self.seed = batches, steps, seed
        self.added = 0
        """Batches taken in since `clear`."""
        self._ring: Windows = {}  # [batches, windows of a batch, ...]

    def add(self, batch: Batch, *, visit: int) -> None:
        """Keep some new experience of `batch` in place of the oldest."""
        rng = generator(self.seed, "fisher memory", visit, self.added)
        windows = _windows(batch, self.steps, rng)
        if windows is None:
            return
        if not self._ring:
            self._ring = {name: part.new_zeros(self.batches, *part.shape) for name, part in windows.items()}
        for name, part in windows.items():
            self._ring[name][self.added % self.batches] = part
        self.added += 1

    def clear(self) -> None:
        """Forget everything: another task begins."""
        self.added, self._ring = 0, {}

    def windows(self) -> Windows:
        """Return all that is kept; empty where nothing is."""
        return {name: part.flatten(0, 1) for name, part in self.tensors().items()}

    def tensors(self) -> dict[str, Tensor]:
        return {name: part[: min(self.added, self.batches)] for name, part in self._ring.items()}

    def grown(self, tensors: Mapping[str, Tensor], growth: Growth) -> dict[str, Tensor]:
        """Fit the result of `tensors` to observations, actions and masks of the larger spaces."""
        spec = growth.old.observation
        dtype = spec.record_dtype if spec.is_record else spec.frame_dtype
        change: dict[str, Callable[[np.ndarray], np.ndarray]] = {
            "observation": lambda shown: as_plain(growth.observation(from_plain(shown, dtype))),
            "last_action": growth.action,
            "mask": growth.mask,
        }
        return {
            name: torch.from_numpy(change[name](part.cpu().numpy())) if name in change else part
            for name, part in tensors.items()
        }

    def restore(self, tensors: Mapping[str, Tensor], added: int) -> None:
        self.added, self._ring = added, {}
        for name, part in tensors.items():
            self._ring[name] = part.new_zeros(self.batches, *part.shape[1:])
            self._ring[name][: len(part)] = part


def _windows(batch: Batch, steps: int, rng: np.random.Generator) -> Windows | None:
    """Take `steps` single steps, or as many whole unrolls as have that many steps to use; None if nothing is new."""
    inputs = {name: getattr(batch, name)[:-1] for name in StepInput._fields} | {"valid": batch.valid}
    usable = batch.valid & (batch.is_replay == 0)
    if batch.core_state.shape[1] == 0:
        time, column = _draw(usable.nonzero(), steps, rng).unbind(1)
        parts = {name: part[time, column].unsqueeze(1) for name, part in inputs.items()}
        mask = batch.mask[column] if batch.mask.dim() == 2 else batch.mask[time, column]
    else:
        unrolls = max(1, steps // (4 * STEPS_PER_UNROLL))
        column = _draw(usable.any(0).nonzero(), unrolls, rng).squeeze(1)
        parts = {name: part[:, column].transpose(0, 1) for name, part in inputs.items()}
        mask = batch.mask[column] if batch.mask.dim() == 2 else batch.mask[:, column].transpose(0, 1)
    if not len(column):
        return None
    return parts | {"mask": mask, "core_state": batch.core_state[column]}


def _draw(rows: Tensor, count: int, rng: np.random.Generator) -> Tensor:
    """Draw `count` of the rows, some twice only if there are fewer; none if there are none."""
    if not len(rows):
        return rows
    return rows[torch.from_numpy(rng.choice(len(rows), count, replace=len(rows) < count)).to(rows.device)]
