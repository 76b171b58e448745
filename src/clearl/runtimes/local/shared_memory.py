"""Memory that processes share: it has no name, so the system frees it when the last of them exits."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

import google_crc32c
import numpy as np

from clearl.nets.network import PolicyNetwork
from clearl.nets.weights import FlatWeights
from clearl.replay.codec import max_payload_nbytes
from clearl.runtimes.host import anonymous_file
from clearl.unroll import Payload, Unroll, UnrollLayout

_ALIGN = 64


class SharedBlock:
    """Bytes shared with the processes that are sent `descriptor`."""

    def __init__(self, descriptor: int, nbytes: int) -> None:
        self.descriptor, self.nbytes = descriptor, nbytes
        self.memory = mmap.mmap(descriptor, nbytes)

    @staticmethod
    def create(nbytes: int) -> SharedBlock:
        """Allocate zeroed memory."""
        descriptor = anonymous_file("clearl")
        os.ftruncate(descriptor, nbytes)
        return SharedBlock(descriptor, nbytes)

    @staticmethod
    def received(descriptor: int, nbytes: int) -> SharedBlock:
        """Return the memory behind a descriptor that another process shared."""
        if os.fstat(descriptor).st_size < nbytes:
            raise ValueError(f"a shared block of {os.fstat(descriptor).st_size} bytes, where {nbytes} are needed")
        return SharedBlock(descriptor, nbytes)

    def close(self) -> None:
        """Close the descriptor; the memory is freed with the last view of it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class SharedPairs:
    """The pairs of one worker, which the learner reads: new unrolls as arrays, `draws` packed ones a slot.

    Each payload has room for the longest possible; memory that was never written to takes no space.
    """

    def __init__(self, block: SharedBlock, layout: UnrollLayout, slots: int, draws: int) -> None:
        self.block = block
        whole, new_nbytes = memoryview(block.memory), layout.buffer_nbytes(slots)
        self.new: Unroll = layout.views(whole[:new_nbytes], slots)
        numbers = np.frombuffer(whole, np.int64, slots + slots * draws, new_nbytes)
        self.sequences, self._lengths = numbers[:slots], numbers[slots:]
        self._payloads, self._room = whole[new_nbytes + numbers.nbytes :], max_payload_nbytes(layout)

    @property
    def replay(self) -> list[Payload | None]:
        """`draws` payloads for each slot in turn, None where it has nothing to replay; not copied."""
        starts = range(0, len(self._lengths) * self._room, self._room)
        return [
            self._payloads[start : start + length] if length else None
            for start, length in zip(starts, self._lengths.tolist(), strict=True)
        ]

    def put_replay(self, payloads: Sequence[Payload | None]) -> None:
        """Write the payloads where `replay` reads them."""
        lengths = [0 if payload is None else len(payload) for payload in payloads]
        for index, payload in enumerate(payloads):
            if payload is not None:
                place = self._payloads[index * self._room : (index + 1) * self._room]
                place[: len(payload)] = payload
        self._lengths[:] = lengths

    def close(self) -> None:
        self.block.close()

    @staticmethod
    def nbytes(layout: UnrollLayout, slots: int, draws: int) -> int:
        return layout.buffer_nbytes(slots) + slots * 8 + slots * draws * (8 + max_payload_nbytes(layout))


class SharedWeights:
    """The newest weights, written by one process and read by many; a reader never gets a mixture of two versions.

    Two buffers take turns. The writer fills the one that is not published and then publishes it, so a reader has the
    time of a whole update to copy. A checksum over numbers and weights decides whether it got one version: that holds
    on processors that let other cores see writes out of order, and needs no lock that a dying process could keep.
    """

    _HEAD = np.dtype([("version", np.int64), ("frames", np.int64), ("checksum", np.int64)])

    def __init__(self, block: SharedBlock, size: int) -> None:
        self.block, self.size = block, size
        memory = memoryview(block.memory)
        self._shown = np.frombuffer(memory, np.int64, 1)
        stride = _place_nbytes(size)
        starts = [_ALIGN + turn * stride for turn in (0, 1)]
        self._heads = [np.frombuffer(memory, self._HEAD, 1, start) for start in starts]
        self._weights = [np.frombuffer(memory, np.float32, size, start + _ALIGN) for start in starts]

    @staticmethod
    def nbytes(size: int) -> int:
        return _ALIGN + 2 * _place_nbytes(size)

    def buffer(self) -> np.ndarray:
        """Return the buffer for the next weights, [size] float32; nobody reads it until `publish`."""
        return self._weights[self._hidden()]

    def publish(self, version: int, frames: int) -> None:
        """Publish what was written into `buffer`."""
        hidden = self._hidden()
        checksum = _checksum(version, frames, self._weights[hidden])
        self._heads[hidden][0] = (version, frames, checksum)
        self._shown[0] += 1

    def read_into(self, weights: np.ndarray) -> tuple[int, int]:
        """Copy the newest weights; return their version and frames."""
        while True:
            published = int(self._shown[0]) % 2
            version, frames, checksum = (int(value) for value in self._heads[published][0])
            np.copyto(weights, self._weights[published])
            if checksum == _checksum(version, frames, weights):
                return version, frames

    def version(self) -> int:
        """Return the published version without a check: good for "has anything changed?"."""
        return int(self._heads[int(self._shown[0]) % 2]["version"][0])

    def close(self) -> None:
        self.block.close()

    def _hidden(self) -> int:
        return (int(self._shown[0]) + 1) % 2


class SharedEndpoints:
    """A child's ends of shared memory: a worker's pairs first, the weights last."""

    def __init__(self, descriptors: Sequence[int]) -> None:
        self.descriptors = descriptors

    def weights(self, network: PolicyNetwork) -> WeightReader:
        return WeightReader(network, self.descriptors[-1])

    def pairs(self, layout: UnrollLayout, slots: int, draws: int) -> SharedPairs:
        block = SharedBlock.received(self.descriptors[0], SharedPairs.nbytes(layout, slots, draws))
        return SharedPairs(block, layout, slots, draws)


class WeightReader:
    """Loads published weights into a network."""

    def __init__(self, network: PolicyNetwork, descriptor: int) -> None:
        self._flat = FlatWeights(network)
        self._copy = np.zeros(self._flat.size, np.float32)
        block = SharedBlock.received(descriptor, SharedWeights.nbytes(self._flat.size))
        self._weight_store = SharedWeights(block, self._flat.size)
        self._read: tuple[int, int] | None = None

    def read(self) -> tuple[int, int]:
        """Load the newest weights; return their (updates, frames)."""
        if self._read is None or self._weight_store.version() != self._read[0]:
            self._read = self._weight_store.read_into(self._copy)
            self._flat.read_from(self._copy)
        return self._read


def _place_nbytes(size: int) -> int:
    return _ALIGN + -(-4 * size // _ALIGN) * _ALIGN


def _checksum(version: int, frames: int, weights: np.ndarray) -> int:
    # Never 0, which is what memory holds before anything was written.
    return google_crc32c.extend(google_crc32c.value(b"%d/%d" % (version, frames)), weights.tobytes()) + 1
