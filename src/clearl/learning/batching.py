"""Turn pairs into batches of B pairs: one or more unrolls of each pair, at most one new unroll of each slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from clearl.acting.preprocess import as_tensor, cleared, clip_reward, copied, observe
from clearl.replay.codec import Codec
from clearl.replay.mixing import Mixer, Part, Picks
from clearl.spaces import MASK_FIELD, ObservationSpec
from clearl.types import Batch
from clearl.unroll import Payload, Unroll, UnrollLayout, as_plain, from_named, from_plain

_SMALL_NBYTES = 1024


@dataclass(frozen=True)
class Pairs:
    """The pairs of one worker: for each of its slots a new unroll and packed ones of its shard, where it holds any."""

    slots: Sequence[int]
    new: Unroll
    replay: Sequence[Payload | None]
    """The same number of draws for each slot, one slot after the other; None where a shard is empty."""
    version: int
    """Updates that had led to the acting weights."""

    @property
    def draws(self) -> int:
        """Replayed unrolls of each slot."""
        return len(self.replay) // len(self.slots)

    @property
    def has_replay(self) -> np.ndarray:
        """[slots] bool: which slots have all their replayed unrolls."""
        there = np.array([payload is not None for payload in self.replay])
        return np.all(there.reshape(-1, self.draws), axis=1)


class Staging:
    """The unrolls of one batch: its B pairs in the order of arrival, then the unrolls replayed on top of them."""

    def __init__(self, codec: Codec, batch_unrolls: int, most_on_top: int) -> None:
        self.rows, self._codec = codec.layout.empty(batch_unrolls + most_on_top), codec
        arrays = self.rows.named()
        self._small = [name for name, array in arrays.items() if array[0].nbytes <= _SMALL_NBYTES]
        self._large = [name for name in arrays if name not in self._small]
        self.is_replay = np.arange(batch_unrolls + most_on_top) >= batch_unrolls
        self.versions = np.zeros(batch_unrolls, np.int64)
        self.slots: list[int] = []
        self.on_top = 0
        self._packed: dict[int, bytes] = {}

    @property
    def room(self) -> int:
        """Pairs that still fit in."""
        return len(self.versions) - len(self.slots)

    @property
    def room_on_top(self) -> int:
        """Replayed unrolls that still fit in beyond the pairs."""
        return len(self.is_replay) - len(self.versions) - self.on_top

    @property
    def filled(self) -> np.ndarray:
        """Indices of the unrolls in `rows`: of the pairs first, on top last."""
        whole = len(self.versions)
        return np.r_[: len(self.slots), whole : whole + self.on_top]

    def add(self, pairs: Pairs, indices: np.ndarray, picks: Picks) -> None:
        """Add the pairs at `indices`. A replayed unroll replaces the new one, or is put on top if both are taken."""
        place, new = len(self.slots), picks.new[indices]
        here = np.arange(place, place + len(indices))
        self.is_replay[here] = ~new
        self.versions[here] = pairs.version
        self.slots += [pairs.slots[index] for index in indices.tolist()]
        self._copy(pairs.new, here[new], indices[new])
        replayed = np.flatnonzero(picks.replayed[indices])
        for position, index in zip(here[replayed].tolist(), indices[replayed].tolist(), strict=True):
            for draw in range(picks.replayed[index]):
                payload = pairs.replay[index * pairs.draws + draw]
                assert payload is not None, "the mixer chooses replay only where there is some"
                self._packed[self._next_on_top() if picks.new[index] else position] = bytes(payload)

    def clear(self) -> None:
        """Empty it for another batch."""
        self.slots.clear()
        self.on_top = 0

    def unpack(self) -> Staging:
        """Unpack the replayed unrolls: after the copies, which a worker waits for."""
        self._codec.decode_each(list(self._packed.values()), self.rows, list(self._packed))
        self._packed.clear()
        return self

    def _next_on_top(self) -> int:
        self.on_top += 1
        return len(self.versions) + self.on_top - 1

    def _copy(self, source: Unroll, here: np.ndarray, there: np.ndarray) -> None:
        to, arrays = self.rows.named(), source.named()
        for name in self._small:
            to[name][here] = arrays[name][there]
        for name in self._large:  # indexing with arrays would make a copy in between
            staged, sent = to[name], arrays[name]
            for i, j in zip(here.tolist(), there.tolist(), strict=True):
                staged[i] = sent[j]


class Intake:
    """Fills batches of B pairs from what workers send; each unroll is copied or unpacked straight into its batch.

    One batch is open at a time as long as only pairs that `accepts` agrees to are taken. A pair whose slot is in the
    open batch already waits in one of its own, which only happens after a resume with another number of workers.
    """

    def __init__(self, codec: Codec, batch_unrolls: int, mixer: Mixer, *, discount: float, reward_clip: str):
        self.codec, self.batch_unrolls, self.mixer = codec, batch_unrolls, mixer
        self.discount, self.reward_clip = discount, reward_clip
        self._free: list[Staging] = []
        self._open = [self._empty()]

    @property
    def waiting_slots(self) -> list[list[int]]:
        """The slots in each batch that is not full."""
        return [list(staging.slots) for staging in self._open]

    def accepts(self, slots: Sequence[int]) -> bool:
        """Return whether pairs of these slots go into the open batch and, once that is full, into the next."""
        return len(self._open) == 1 and not set(self._open[0].slots) & set(slots[: self._open[0].room])

    def take(self, pairs: Pairs) -> list[Staging]:
        """Read all pairs, so that the worker may write again; return the full batches, for `batch`."""
        divided = self._divide(pairs.slots)
        parts = [Part(indices, staging.room_on_top) for staging, indices in divided]
        picks = self.mixer.choose(pairs.has_replay, parts)
        for staging, indices in divided:
            staging.add(pairs, indices, picks)
        full = [staging for staging in self._open if not staging.room]
        self._open = [staging for staging in self._open if staging.room] or [self._empty()]
        return full

    def batch(self, full: Staging) -> tuple[Batch, float]:
        """Return the batch and the mean version of the weights that acted in its pairs; `full` is used again."""
        end = self.batch_unrolls + full.on_top
        batch = make_batch(
            full.unpack().rows[:end], full.is_replay[:end], self.codec.layout, self.discount, self.reward_clip
        )
        full.clear()
        self._free.append(full)
        return batch, float(full.versions.mean())

    def state(self) -> tuple[dict[str, np.ndarray], list[int]]:
        """Return the unrolls that wait for a full batch, batch by batch, and the slots of their pairs."""
        parts = [self._waiting(number, staging.unpack()) for number, staging in enumerate(self._open)]
        rows = {name: as_plain(np.concatenate([part[name] for part in parts])) for name in parts[0]}
        return rows, [slot for staging in self._open for slot in staging.slots]

    def restore(self, rows: Mapping[str, np.ndarray], slots: Sequence[int]) -> None:
        """Restore `state`."""
        numbers = rows.get("batch", np.zeros(len(slots), np.int64))  # none before version 0.2
        self._open, left = [], [int(slot) for slot in slots]
        for number in range(int(numbers.max(initial=0)) + 1):
            staging, chosen = self._empty(), numbers == number
            on_top = rows["is_replay"][chosen] & (self.mixer.most_on_top(self.batch_unrolls) > 0)
            staging.on_top = int(on_top.sum())
            staging.slots, left = left[: len(on_top) - staging.on_top], left[len(on_top) - staging.on_top :]
            for name, array in from_named(rows)[chosen].named().items():
                staged = staging.rows.named()[name]
                staged[staging.filled] = from_plain(array, staged.dtype)
            staging.is_replay[staging.filled] = rows["is_replay"][chosen]
            staging.versions[: len(staging.slots)] = rows["version"][chosen][~on_top]
            self._open.append(staging)
        if left:
            raise ValueError(f"{len(left)} slots of waiting unrolls have no unroll")

    def _waiting(self, number: int, staging: Staging) -> dict[str, np.ndarray]:
        filled = staging.filled
        versions = np.zeros(len(filled), np.int64)  # unrolls replayed on top have none
        versions[: len(staging.slots)] = staging.versions[: len(staging.slots)]
        more = {"version": versions, "batch": np.full(len(filled), number)}
        return staging.rows[filled].named() | {"is_replay": staging.is_replay[filled]} | more

    def _divide(self, slots: Sequence[int]) -> list[tuple[Staging, np.ndarray]]:
        """Divide pairs among batches: each goes into the oldest that has room for it and not its slot."""
        taken = [set(staging.slots) for staging in self._open]
        indices: list[list[int]] = [[] for _ in self._open]
        for index, slot in enumerate(slots):
            place = 0
            while place < len(taken) and (slot in taken[place] or len(taken[place]) == self.batch_unrolls):
                place += 1
            if place == len(taken):
                self._open.append(self._empty())
                taken.append(set())
                indices.append([])
            taken[place].add(slot)
            indices[place].append(index)
        divided = zip(self._open, indices, strict=True)
        return [(staging, np.array(chosen, np.int64)) for staging, chosen in divided if chosen]

    def _empty(self) -> Staging:
        if self._free:
            return self._free.pop()
        return Staging(self.codec, self.batch_unrolls, self.mixer.most_on_top(self.batch_unrolls))


def make_batch(rows: Unroll, is_replay: np.ndarray, layout: UnrollLayout, discount: float, reward_clip: str) -> Batch:
    """Copy unrolls, slot axis first, into the time-major batch that methods see."""
    stack = layout.spec.observation.stack
    reward = clip_reward(rows.reward, reward_clip)
    first = rows.first[:, stack - 1 :]
    last_action = np.concatenate([rows.last_action[:, None], rows.action], axis=1)
    last_reward = np.concatenate([clip_reward(rows.last_reward, reward_clip)[:, None], reward], axis=1)
    return Batch(
        observation=_observations(rows, layout.spec.observation),
        first=_time_major(first),
        last_action=_time_major(cleared(last_action, first)),
        last_reward=_time_major(np.where(first, np.float32(0), last_reward)),
        core_state=torch.from_numpy(rows.core_state.copy()),
        action=_time_major(rows.action),
        reward=_time_major(reward),
        discount=_time_major(np.where(rows.terminated, np.float32(0), np.float32(discount))),
        valid=_time_major(rows.valid),
        mask=_masks(rows, layout.spec.observation),
        behaviour_policy=_time_major(rows.policy),
        behaviour_value=_time_major(rows.value),
        is_replay=torch.from_numpy(is_replay.copy()),
    )


def _observations(rows: Unroll, spec: ObservationSpec) -> torch.Tensor:
    shown = observe(rows.frames, rows.first, spec).swapaxes(0, 1)
    if spec.stack > 1 and not spec.is_record:
        return torch.from_numpy(shown)  # a copy already
    return as_tensor(copied(shown))


def _masks(rows: Unroll, spec: ObservationSpec) -> torch.Tensor:
    """Return the masks [B, mask_size], or [T, B, mask_size] where they change from state to state."""
    if not spec.mask_size:
        return torch.from_numpy(rows.mask.copy())
    allowed = rows.frames[MASK_FIELD][:, spec.stack - 1 : -1] & rows.mask[:, None]
    return _time_major(allowed)


def _time_major(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(array.swapaxes(0, 1), order="C", copy=True))
