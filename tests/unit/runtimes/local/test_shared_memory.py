from __future__ import annotations

import os
import subprocess
import sys
from unittest.mock import ANY

import numpy as np
import pytest

from clearl.replay.codec import max_payload_nbytes
from clearl.runtimes.local import shared_memory
from clearl.runtimes.local.shared_memory import SharedBlock, SharedPairs, SharedWeights
from clearl.spaces import discrete_spec
from clearl.unroll import UnrollLayout

SIZE = 300_000
WRITER = f"""
import sys
from clearl.runtimes.local.shared_memory import SharedBlock, SharedWeights
weights = SharedWeights(SharedBlock.received(int(sys.argv[1]), SharedWeights.nbytes({SIZE})), {SIZE})
for version in range(2, 1_000_000):
    weights.buffer()[:] = version
    weights.publish(version, 10 * version)
"""


@pytest.fixture
def weight_store():
    block = SharedBlock.create(SharedWeights.nbytes(SIZE))
    made = SharedWeights(block, SIZE)
    made.buffer()[:] = 1
    made.publish(1, 10)
    yield made
    block.close()


def hammer(weight_store: SharedWeights, reads: int) -> set[int]:
    """Read while another process writes without a pause; the versions seen, each of which must be whole."""
    command = [sys.executable, "-c", WRITER, str(weight_store.block.descriptor)]
    with subprocess.Popen(command, pass_fds=[weight_store.block.descriptor]) as writer:
        try:
            weights, seen = np.zeros(SIZE, np.float32), set()
            while len(seen) < reads:
                version, frames = weight_store.read_into(weights)
                assert (weights == version).all() and frames == 10 * version, "torn"
                seen.add(version)
            return seen
        finally:
            writer.kill()


def test_a_reader_never_gets_a_mixture_of_two_versions(weight_store: SharedWeights) -> None:
    assert len(hammer(weight_store, 100)) == 100


def test_without_the_checksum_it_would(weight_store: SharedWeights, monkeypatch: pytest.MonkeyPatch) -> None:
    def copy_in_parts(to: np.ndarray, source: np.ndarray) -> None:
        for start in range(0, SIZE, 1000):
            to[start : start + 1000] = source[start : start + 1000]

    monkeypatch.setattr(shared_memory, "_checksum", lambda *_: ANY)
    monkeypatch.setattr(np, "copyto", copy_in_parts)
    with pytest.raises(AssertionError, match="torn"):
        hammer(weight_store, 100_000)


def test_the_newest_version_is_read_and_the_last_one_stays_while_the_next_is_written(
    weight_store: SharedWeights,
) -> None:
    weights = np.zeros(SIZE, np.float32)
    weight_store.buffer()[:] = 5
    assert weight_store.read_into(weights) == (1, 10) and (weights == 1).all()
    weight_store.publish(2, 20)
    assert weight_store.version() == 2
    assert weight_store.read_into(weights) == (2, 20) and (weights == 5).all()


def test_several_replayed_unrolls_of_a_slot_lie_apart() -> None:
    layout = UnrollLayout(discrete_spec((2,), "uint8", 4), 5)
    block = SharedBlock.create(SharedPairs.nbytes(layout, 2, 3))
    pairs, longest = SharedPairs(block, layout, 2, 3), max_payload_nbytes(layout)
    payloads = [bytes([65 + number]) * (longest - number) for number in range(6)]
    pairs.sequences[:] = 7, 8
    pairs.put_replay(payloads)
    pairs.new.reward[:] = 5.0
    assert pairs.replay == payloads and pairs.sequences.tolist() == [7, 8]
    block.close()


def test_pairs_of_a_block_lie_apart_and_are_seen_by_another_mapping() -> None:
    layout = UnrollLayout(discrete_spec((2, 3, 3), "uint8", 4, stack=2), 5, core_size=3)
    block = SharedBlock.create(SharedPairs.nbytes(layout, 3, 1))
    writer = SharedPairs(block, layout, 3, 1)
    reader = SharedPairs(SharedBlock.received(os.dup(block.descriptor), block.nbytes), layout, 3, 1)
    assert reader.replay == [None, None, None] and len(writer.new.named()) == len(layout.fields)
    longest = max_payload_nbytes(layout)
    for payloads in ([b"a" * longest, b"b" * longest, b"c" * longest], [b"d", None, b"ef"], [None, b"g", None]):
        for number, array in enumerate(writer.new.named().values(), start=len(payloads[0] or b"")):
            array[...] = number % 2 if array.dtype == bool else number % 100
        writer.put_replay(payloads)
        writer.sequences[:] = 7, 8, len(payloads[0] or b"")
        for number, (name, array) in enumerate(reader.new.named().items(), start=len(payloads[0] or b"")):
            assert (array == (number % 2 if array.dtype == bool else number % 100)).all(), name
        assert reader.replay == payloads
        assert reader.sequences.tolist() == [7, 8, len(payloads[0] or b"")]
    with pytest.raises(ValueError):
        writer.put_replay([None, b"x" * (longest + 1), None])
    reader.block.close()
    block.close()


def test_a_block_that_is_too_small_is_refused() -> None:
    block = SharedBlock.create(100)
    with pytest.raises(ValueError, match="100 bytes"):
        SharedBlock.received(block.descriptor, 101)
    block.close()


def test_blocks_have_no_name_in_the_file_system() -> None:
    block = SharedBlock.create(4096)
    target = os.readlink(f"/proc/self/fd/{block.descriptor}")
    assert target.endswith("(deleted)") and not os.path.exists(target)
    block.close()
