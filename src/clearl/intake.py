"""Pairs become batches: the learner takes one unroll of each pair, and no slot is in a batch twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from clearl.preprocess import clip_reward, stack_frames
from clearl.replay.mixing import Mixer
from clearl.types import Batch, Rows, UnrollLayout


@dataclass(frozen=True)
class Pairs:
    """What one worker sends: for each of its slots a new unroll and, where `has_replay`, one from its shard."""

    slots: Sequence[int]
    new: Rows
    replay: Rows
    has_replay: np.ndarray  # [n] bool
    version: int
    """Updates that the acting weights had behind them."""


class Intake:
    """Fills a batch of B unrolls from the pairs of workers. Unrolls are copied once, straight into the batch."""

    def __init__(self, layout: UnrollLayout, batch_unrolls: int, mixer: Mixer, *, discount: float, reward_clip: str):
        self.layout, self.batch_unrolls, self.mixer = layout, batch_unrolls, mixer
        self.discount, self.reward_clip = discount, reward_clip
        self._staged = layout.empty(batch_unrolls)
        self._is_replay = np.zeros(batch_unrolls, bool)
        self._versions = np.zeros(batch_unrolls, np.int64)
        self._slots: list[int] = []

    def accepts(self, pairs: Pairs) -> bool:
        """Whether these pairs can be taken now without a slot being in the batch twice."""
        room = self.batch_unrolls - len(self._slots)
        return not set(self._slots) & set(list(pairs.slots)[:room])

    def take(self, pairs: Pairs) -> Iterator[tuple[Batch, float]]:
        """Read all pairs; a (batch, mean version) for each time the batch is full."""
        chosen = self.mixer.choose(pairs.has_replay)
        for i, slot in enumerate(pairs.slots):
            place, source = len(self._slots), pairs.replay if chosen[i] else pairs.new
            for name, staged in self._staged.items():
                staged[place] = source[name][i]
            self._is_replay[place] = chosen[i]
            self._versions[place] = pairs.version
            self._slots.append(slot)
            if len(self._slots) == self.batch_unrolls:
                self._slots.clear()
                yield self._batch(), float(self._versions.mean())

    def state(self) -> tuple[Rows, list[int]]:
        """The unrolls that wait for a full batch, and their slots."""
        count = len(self._slots)
        waiting = {name: staged[:count].copy() for name, staged in self._staged.items()}
        return waiting | {"is_replay": self._is_replay[:count].copy(), "version": self._versions[:count].copy()}, list(
            self._slots
        )

    def restore(self, rows: Rows, slots: Sequence[int]) -> None:
        """Take up `state` again."""
        self._slots = [int(slot) for slot in slots]
        for name, staged in self._staged.items():
            staged[: len(slots)] = rows[name]
        self._is_replay[: len(slots)] = rows["is_replay"]
        self._versions[: len(slots)] = rows["version"]

    def _batch(self) -> Batch:
        return make_batch(self._staged, self._is_replay, self.layout, self.discount, self.reward_clip)


def make_batch(rows: Rows, is_replay: np.ndarray, layout: UnrollLayout, discount: float, reward_clip: str) -> Batch:
    """Rows of unrolls, slot axis first, as the time-major batch that methods see. Makes a copy."""
    stack = layout.spec.stack
    reward = clip_reward(rows["reward"], reward_clip)
    first = rows["first"][:, stack - 1 :]
    last_action = np.concatenate([rows["last_action"][:, None], rows["action"]], axis=1)
    last_reward = np.concatenate([clip_reward(rows["last_reward"], reward_clip)[:, None], reward], axis=1)
    return Batch(
        observation=_observations(rows, stack),
        first=_time_major(first),
        last_action=_time_major(np.where(first, 0, last_action)),
        last_reward=_time_major(np.where(first, np.float32(0), last_reward)),
        core_state=torch.from_numpy(rows["core_state"].copy()),
        action=_time_major(rows["action"]),
        reward=_time_major(reward),
        discount=_time_major(np.where(rows["terminated"], np.float32(0), np.float32(discount))),
        valid=_time_major(rows["valid"]),
        mask=torch.from_numpy(rows["mask"].copy()),
        behaviour_logits=_time_major(rows["logits"]),
        behaviour_value=_time_major(rows["value"]),
        is_replay=torch.from_numpy(is_replay.copy()),
    )


def _observations(rows: Rows, stack: int) -> torch.Tensor:
    if stack == 1:
        return _time_major(rows["frames"])
    return torch.from_numpy(stack_frames(rows["frames"], rows["first"], stack).swapaxes(0, 1))  # a copy already


def _time_major(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(array.swapaxes(0, 1), order="C", copy=True))
