"""Pairs become batches: the learner takes one unroll of each pair, and no slot is in a batch twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from clearl.acting.preprocess import cleared, clip_reward, stack_frames
from clearl.replay.codec import Codec
from clearl.replay.mixing import Mixer
from clearl.types import Batch
from clearl.unroll import Payload, Unroll, UnrollLayout, from_named

_SMALL_NBYTES = 1024


@dataclass(frozen=True)
class Pairs:
    """What one worker sends: for each of its slots a new unroll and, where there is one, a packed one of its shard."""

    slots: Sequence[int]
    new: Unroll
    replay: Sequence[Payload | None]
    version: int
    """Updates that the acting weights had behind them."""


class Staging:
    """The unrolls of one batch, in the order of their coming."""

    def __init__(self, codec: Codec, batch_unrolls: int) -> None:
        self.rows, self._codec = codec.layout.empty(batch_unrolls), codec
        arrays = self.rows.named()
        self._small = [name for name, array in arrays.items() if array[0].nbytes <= _SMALL_NBYTES]
        self._large = [name for name in arrays if name not in self._small]
        self.is_replay = np.zeros(batch_unrolls, bool)
        self.versions = np.zeros(batch_unrolls, np.int64)
        self.slots: list[int] = []
        self._packed: dict[int, bytes] = {}

    @property
    def room(self) -> int:
        return len(self.is_replay) - len(self.slots)

    def add(self, pairs: Pairs, start: int, chosen: np.ndarray) -> None:
        """The pairs from `start` on, one for each of `chosen`: replay where it is true."""
        place, count = len(self.slots), len(chosen)
        self.is_replay[place : place + count] = chosen
        self.versions[place : place + count] = pairs.version
        self.slots += list(pairs.slots[start : start + count])
        self._copy(pairs.new, np.flatnonzero(~chosen), place, start)
        replayed = np.flatnonzero(chosen)
        for here, there in zip((place + replayed).tolist(), (start + replayed).tolist(), strict=True):
            payload = pairs.replay[there]
            assert payload is not None, "the mixer chooses replay only where there is some"
            self._packed[here] = bytes(payload)

    def unpack(self) -> Staging:
        """Unpack what was replayed: later than the copying, since for that a worker waits."""
        self._codec.decode_each(list(self._packed.values()), self.rows, list(self._packed))
        self._packed.clear()
        return self

    def _copy(self, source: Unroll, indices: np.ndarray, place: int, start: int) -> None:
        here, there = place + indices, start + indices
        to, arrays = self.rows.named(), source.named()
        for name in self._small:
            to[name][here] = arrays[name][there]
        for name in self._large:  # indexing with arrays would make a copy in between
            staged, sent = to[name], arrays[name]
            for i, j in zip(here.tolist(), there.tolist(), strict=True):
                staged[i] = sent[j]


class Intake:
    """Fills batches of B unrolls from the pairs of workers; each is copied or unpacked straight into its batch."""

    def __init__(self, codec: Codec, batch_unrolls: int, mixer: Mixer, *, discount: float, reward_clip: str):
        self.codec, self.batch_unrolls, self.mixer = codec, batch_unrolls, mixer
        self.discount, self.reward_clip = discount, reward_clip
        self._staging = Staging(codec, batch_unrolls)
        self._free: list[Staging] = []

    def accepts(self, slots: Sequence[int]) -> bool:
        """Whether pairs of these slots can be taken now without a slot being in the batch twice."""
        return not set(self._staging.slots) & set(slots[: self._staging.room])

    def take(self, pairs: Pairs) -> list[Staging]:
        """Read all pairs, so that their places may be written to again; what is full now, to be made a `batch` of."""
        has_replay = np.array([payload is not None for payload in pairs.replay])
        chosen, start, full = self.mixer.choose(has_replay), 0, []
        while start < len(chosen):
            some = chosen[start : start + self._staging.room]
            self._staging.add(pairs, start, some)
            start += len(some)
            if not self._staging.room:
                full.append(self._staging)
                self._staging = self._free.pop() if self._free else Staging(self.codec, self.batch_unrolls)
        return full

    def batch(self, full: Staging) -> tuple[Batch, float]:
        """The batch and the mean version of its unrolls; `full` is used again."""
        batch = make_batch(full.unpack().rows, full.is_replay, self.codec.layout, self.discount, self.reward_clip)
        full.slots.clear()
        self._free.append(full)
        return batch, float(full.versions.mean())

    def state(self) -> tuple[dict[str, np.ndarray], list[int]]:
        """The unrolls that wait for a full batch, and their slots."""
        waiting, count = self._staging.unpack(), len(self._staging.slots)
        rows = {name: staged[:count].copy() for name, staged in waiting.rows.named().items()}
        rows |= {"is_replay": waiting.is_replay[:count].copy(), "version": waiting.versions[:count].copy()}
        return rows, list(waiting.slots)

    def restore(self, rows: Mapping[str, np.ndarray], slots: Sequence[int]) -> None:
        """Take up `state` again."""
        waiting = self._staging.unpack()
        waiting.slots = [int(slot) for slot in slots]
        for name, array in from_named(rows).named().items():
            waiting.rows.named()[name][: len(slots)] = array
        waiting.is_replay[: len(slots)] = rows["is_replay"]
        waiting.versions[: len(slots)] = rows["version"]


def make_batch(rows: Unroll, is_replay: np.ndarray, layout: UnrollLayout, discount: float, reward_clip: str) -> Batch:
    """Unroll of unrolls, slot axis first, as the time-major batch that methods see. Makes a copy."""
    stack = layout.spec.observation.stack
    reward = clip_reward(rows.reward, reward_clip)
    first = rows.first[:, stack - 1 :]
    last_action = np.concatenate([rows.last_action[:, None], rows.action], axis=1)
    last_reward = np.concatenate([clip_reward(rows.last_reward, reward_clip)[:, None], reward], axis=1)
    return Batch(
        observation=_observations(rows, stack),
        first=_time_major(first),
        last_action=_time_major(cleared(last_action, first)),
        last_reward=_time_major(np.where(first, np.float32(0), last_reward)),
        core_state=torch.from_numpy(rows.core_state.copy()),
        action=_time_major(rows.action),
        reward=_time_major(reward),
        discount=_time_major(np.where(rows.terminated, np.float32(0), np.float32(discount))),
        valid=_time_major(rows.valid),
        mask=torch.from_numpy(rows.mask.copy()),
        behaviour_policy=_time_major(rows.policy),
        behaviour_value=_time_major(rows.value),
        is_replay=torch.from_numpy(is_replay.copy()),
    )


def _observations(rows: Unroll, stack: int) -> torch.Tensor:
    if stack == 1:
        return _time_major(rows.frames)
    return torch.from_numpy(stack_frames(rows.frames, rows.first, stack).swapaxes(0, 1))  # a copy already


def _time_major(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(array.swapaxes(0, 1), order="C", copy=True))
