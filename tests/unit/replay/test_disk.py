"""The disk store: crashes, full disks, damage, waste, and few open files."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from failing_calls import FailingCalls

from clearl.errors import ConfigError, CorruptFileError, StorageError
from clearl.replay.codec import Codec
from clearl.replay.disk import DiskStore
from clearl.replay.framing import ShardKey, pack_record
from clearl.replay.segments import FilePool
from clearl.replay.shard import ReplayShard
from clearl.seeding import derive, unroll_number, unroll_numbers
from clearl.spaces import discrete_spec
from clearl.unroll import UnrollLayout

TINY = UnrollLayout(discrete_spec((3,), "uint8", 2), 2)


def stamped(sequence: int, frames: np.ndarray | None = None, layout: UnrollLayout = TINY):
    row = replace(layout.empty(1)[0], last_action=np.array(sequence))
    return row if frames is None else replace(row, frames=frames)


def open_shard(directory: Path, capacity: int = 20, *, slot: int = 0, seed: int = 1, layout=TINY, **store):
    return ReplayShard(
        codec=Codec(layout), capacity_unrolls=capacity, seed=seed, slot=slot, store=DiskStore(directory, **store)
    )


def top(capacity: int, count: int, *, slot: int = 0, seed: int = 1) -> list[int]:
    numbers = unroll_numbers(derive(seed, "reservoir", slot), np.arange(count))
    return sorted(np.argsort(numbers)[::-1][:capacity].tolist())


def fill(shard: ReplayShard, until: int) -> None:
    while shard.next_sequence < until:
        shard.insert(stamped(shard.next_sequence))


def disk(shard: ReplayShard) -> DiskStore:
    assert isinstance(shard._store, DiskStore)
    return shard._store


def drawn(shard: ReplayShard, draws: int = 400) -> set[int]:
    return {int(sample.last_action) for _ in range(draws) if (sample := shard.sample()) is not None}


def test_a_reopened_shard_goes_on_exactly_like_one_that_never_stopped(tmp_path):
    lived = open_shard(tmp_path / "a")
    stopped = open_shard(tmp_path / "b")
    for shard in (lived, stopped):
        fill(shard, 300)
        shard.sync()
        assert drawn(shard, 7)  # how often was drawn before a checkpoint must not matter after it
    fill(stopped, 350)  # after the checkpoint; must not be seen again
    stopped.close()
    stopped = open_shard(tmp_path / "b")
    stopped.restore(300)
    for sequence in range(300, 420):
        lived.insert(stamped(sequence))
        stopped.insert(stamped(sequence))
        a, b = lived.sample(), stopped.sample()
        assert a is not None and b is not None and int(a.last_action) == int(b.last_action)
    assert lived.sequences().tolist() == stopped.sequences().tolist() == top(20, 420)


def test_a_shard_in_use_can_go_back(tmp_path):
    shard = open_shard(tmp_path, segment_nbytes=1000)
    fill(shard, 90)
    shard.restore(60)
    assert shard.sequences().tolist() == top(20, 60) and drawn(shard) == set(top(20, 60)) - {59}
    fill(shard, 90)
    assert shard.sequences().tolist() == top(20, 90) and shard.quarantined == 0


def test_an_earlier_process_s_unrolls_are_not_written_over_by_accident(tmp_path):
    shard = open_shard(tmp_path)
    fill(shard, 5)
    shard.close()
    shard = open_shard(tmp_path)
    assert shard.recovered_next_sequence() == 5 and shard.next_sequence == 0
    with pytest.raises(StorageError, match="restore"):
        shard.insert(stamped(0))
    shard.restore(0)
    assert shard.insert(stamped(0)) == 0 and shard.held == 1
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == shard.nbytes


WRITER = """
import sys
from pathlib import Path
import numpy as np
from clearl.replay.codec import Codec
from dataclasses import replace
from clearl.replay.disk import DiskStore
from clearl.replay.shard import ReplayShard
from clearl.spaces import discrete_spec
from clearl.unroll import UnrollLayout
layout = UnrollLayout(discrete_spec((1, 84, 84), "uint8", 18, stack=4), 20)
store = DiskStore(Path(sys.argv[1]), segment_nbytes=1 << 20)
shard = ReplayShard(codec=Codec(layout), capacity_unrolls=30, seed=1, slot=0, store=store)
shard.restore(shard.recovered_next_sequence())
row = layout.empty(1)[0]
rng = np.random.default_rng(0)
while True:
    row.frames[:] = rng.integers(0, 256, row.frames.shape, np.uint8)
    row = replace(row, last_action=np.array(shard.next_sequence))
    if shard.next_sequence % 17 == 0:
        shard.set_floor(shard.next_sequence)
    print(shard.insert(row), flush=True)
"""


def test_sigkill_loses_nothing_that_was_acknowledged(tmp_path):
    """A writer is killed at eight moments, also in the middle of writing 170 KB and of replacing segments."""
    layout = UnrollLayout(discrete_spec((1, 84, 84), "uint8", 18, stack=4), 20)
    acknowledged, environment = -1, {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    for kill in range(8):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert writer.stdout is not None
        for _ in range(25 + 7 * kill):
            acknowledged = max(acknowledged, int(writer.stdout.readline()))
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().splitlines(keepends=True)
        acknowledged = max([acknowledged, *(int(line) for line in rest if line.endswith("\n"))])
        writer.stdout.close()
        writer.wait()

        shard = open_shard(tmp_path, 30, layout=layout, segment_nbytes=1 << 20)
        recovered = shard.recovered_next_sequence()
        shard.restore(max(recovered, acknowledged + 1))
        assert recovered <= acknowledged + 2  # at most one was written and not yet acknowledged
        assert shard.sequences().tolist() == top(30, shard.next_sequence)
        assert shard.quarantined == 0
        held = set(shard.sequences().tolist())
        assert drawn(shard, 60) <= held
        assert not list(tmp_path.glob("*.tmp"))
        shard.close()


@pytest.fixture(params=["file system", "file size"])
def small_disk(tmp_path, request):
    """A file system of one megabyte; or a limit on the size of a file, also where there is no right to mount."""
    mounted = tmp_path / "small"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mounted)]
    wanted = request.param == "file system" and shutil.which("mount") is not None
    if wanted and subprocess.run(command, capture_output=True).returncode == 0:
        yield mounted
        subprocess.run(["umount", "--lazy", str(mounted)], check=True)  # lazy: a failed test leaves files open
    else:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
        yield mounted
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_named_and_the_shard_goes_on_when_there_is_room(small_disk):
    layout = UnrollLayout(discrete_spec((1, 30, 100), "uint8", 2), 5)
    rng = np.random.default_rng(0)
    noise = [rng.integers(0, 256, (6, 1, 30, 100), np.uint8) for _ in range(200)]
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(300_000))
    shard = open_shard(small_disk / "slot", 100, layout=layout, segment_nbytes=4 << 20)
    with pytest.raises(StorageError) as caught:
        while shard.next_sequence < 100:
            shard.insert(stamped(shard.next_sequence, noise[shard.next_sequence], layout))
    full = shard.next_sequence
    assert 20 < full < 60
    assert str(small_disk / "slot" / "00000000.seg") in str(caught.value)
    assert re.search(r"00000000.seg: .*\(18\d+ bytes needed, \d+ free\)", str(caught.value))
    assert shard.sequences().tolist() == list(range(full))
    assert (small_disk / "slot" / "00000000.seg").stat().st_size == shard.nbytes
    with pytest.raises(StorageError):
        shard.insert(stamped(full, noise[full], layout))

    ballast.unlink()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert shard.insert(stamped(full, noise[full], layout)) == full
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    shard.close()
    shard = open_shard(small_disk / "slot", 100, layout=layout, segment_nbytes=4 << 20)
    shard.restore(shard.recovered_next_sequence())
    assert shard.sequences().tolist() == list(range(full + 1)) and shard.quarantined == 0
    for _ in range(30):
        sample = shard.sample()
        assert sample is not None and (sample.frames == noise[int(sample.last_action)]).all()
    shard.close()


def test_space_is_reclaimed_under_the_floor_and_only_there(tmp_path):
    shard = open_shard(tmp_path, 30, waste_share=0.4, segment_nbytes=2000)
    fill(shard, 2000)
    shard.sync()
    unreclaimed = shard.nbytes
    shard.set_floor(1000)  # no sync there: nothing before 2000 is known to be safe to drop
    assert shard.nbytes == unreclaimed
    fill(shard, 2500)
    shard.set_floor(2000)
    held = sum(int(length) for length in disk(shard)._length[:30])
    assert shard.nbytes < unreclaimed / 2
    assert shard.counters()["waste_bytes"] <= 0.4 * shard.nbytes + 2 * 2000
    assert held <= shard.nbytes == sum(path.stat().st_size for path in tmp_path.iterdir())
    shard.close()
    shard = open_shard(tmp_path, 30)
    shard.restore(2000)  # still possible
    assert shard.sequences().tolist() == top(30, 2000)
    assert drawn(shard) == set(top(30, 2000)) - {1999}


def test_small_segments_are_joined(tmp_path):
    shard = open_shard(tmp_path, 30, waste_share=0.2, segment_nbytes=1000)
    for until in range(100, 5000, 100):
        fill(shard, until)
        shard.sync()
        shard.set_floor(until)
    # Held: 30 records of 58 bytes, two segments full. Written: 180, eleven segments if none were ever joined.
    assert shard.counters()["segments"] <= 4
    assert shard.sequences().tolist() == top(30, 4900)


def test_a_crash_between_joining_and_removing_leaves_copies_that_do_no_harm(tmp_path):
    shard = open_shard(tmp_path, 50, segment_nbytes=2000)
    fill(shard, 50)
    shard.close()
    first, second = sorted(tmp_path.iterdir())[:2]
    first.write_bytes(first.read_bytes() + second.read_bytes())
    shard = open_shard(tmp_path, 50, segment_nbytes=2000)
    shard.restore(50)
    assert shard.sequences().tolist() == list(range(50)) and shard.quarantined == 0
    assert shard.counters()["waste_bytes"] == 0
    fill(shard, 60)
    shard.close()
    shard = open_shard(tmp_path, 50)
    shard.restore(50)
    assert shard.sequences().tolist() == list(range(50))


def test_every_truncation_of_the_last_segment_keeps_all_that_is_whole(tmp_path):
    shard = open_shard(tmp_path / "whole")
    fill(shard, 4)
    shard.close()
    content = (tmp_path / "whole" / "00000000.seg").read_bytes()
    ends = np.cumsum(disk(shard)._length[:4])
    for length in range(len(content)):
        cut = tmp_path / "cut"
        cut.mkdir()
        (cut / "00000000.seg").write_bytes(content[:length])
        shard = open_shard(cut)
        whole = int((ends <= length).sum())
        assert shard.recovered_next_sequence() == whole
        assert (cut / "00000000.seg").stat().st_size == (int(ends[whole - 1]) if whole else 0)
        assert shard.counters()["torn_bytes"] == length - (int(ends[whole - 1]) if whole else 0)
        shard.restore(whole)
        assert shard.sequences().tolist() == list(range(whole))
        fill(shard, 4)
        assert shard.sequences().tolist() == [0, 1, 2, 3]
        shard.close()
        assert (cut / "00000000.seg").read_bytes() == content
        shutil.rmtree(cut)


def test_damage_in_the_middle_is_counted_and_what_follows_is_kept(tmp_path):
    shard = open_shard(tmp_path)
    fill(shard, 10)
    start, length = int(disk(shard)._offset[4]), int(disk(shard)._length[4])
    shard.close()
    path = tmp_path / "00000000.seg"
    whole = path.read_bytes()
    for broken in (
        whole[:start] + bytes(length) + whole[start + length :],  # a record of zeros
        whole[: start + 8] + b"\xff\xff\xff\x7f" + whole[start + 12 :],  # a length that goes beyond the file
        whole[: start + 8] + b"\x01\x00\x00\x00" + whole[start + 12 :],  # a length shorter than the header
        whole[: start + 40] + whole[start + 50 :],  # bytes missing
        whole[: start + 40] + b"CLR1CLR1" * 9 + whole[start + 40 :],  # false starts
    ):
        path.write_bytes(broken)
        shard = open_shard(tmp_path)
        assert shard.quarantined == 1
        shard.restore(10)
        assert shard.sequences().tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        assert drawn(shard, 100) == {0, 1, 2, 3, 5, 6, 7, 8, 9} and shard.counters()["lost"] == 1
        shard.close()


def test_a_record_that_goes_bad_while_in_use_is_quarantined(tmp_path):
    shard = open_shard(tmp_path)
    fill(shard, 6)
    with open(tmp_path / "00000000.seg", "r+b") as file:
        file.seek(int(disk(shard)._offset[2]) + 50)
        file.write(b"\x00\x01\x02\x03")
    assert drawn(shard, 100) == {0, 1, 3, 4, 5}
    assert shard.quarantined == 1 and shard.held == 5
    (tmp_path / "00000000.seg").unlink()
    disk(shard)._files.drop(str(tmp_path / "00000000.seg"))
    assert shard.sample() is None and shard.held == 0 and shard.quarantined == 6


def test_a_passing_error_costs_no_record_and_a_lasting_one_costs_it(tmp_path):
    shard = open_shard(tmp_path / "a")
    fill(shard, 20)
    with FailingCalls(tmp_path, 0).injected() as calls:
        assert shard.sample() is not None
    assert len(calls.failed) == 1 and shard.counters()["quarantined"] == 0
    with FailingCalls(tmp_path, 0, 1).injected() as calls:
        shard.sample()
    assert len(calls.failed) == 2 and shard.counters()["quarantined"] == 1


def test_records_that_went_bad_are_found_when_space_is_reclaimed(tmp_path):
    shard = open_shard(tmp_path, 10, waste_share=0.1, segment_nbytes=1200)
    fill(shard, 60)
    shard.sync()
    position = int(np.argmin(disk(shard)._segment[:10]))
    path = tmp_path / f"{int(disk(shard)._segment[position]):08d}.seg"
    sequence = int(shard._reservoir.sequences[position])
    content = bytearray(path.read_bytes())
    content[int(disk(shard)._offset[position]) + 40] ^= 1
    path.write_bytes(bytes(content))
    shard.set_floor(60)
    assert shard.quarantined == 1 and shard.counters()["lost"] == 1
    assert shard.sequences().tolist() == [s for s in top(10, 60) if s != sequence]
    assert drawn(shard) == set(shard.sequences().tolist()) - {59}


def test_records_of_another_slot_or_seed_are_not_taken_for_ours(tmp_path):
    for slot, seed in ((0, 1), (1, 1), (0, 2)):
        shard = open_shard(tmp_path / f"{slot}-{seed}", slot=slot, seed=seed)
        fill(shard, 5)
        shard.close()
    for other in ("1-1", "0-2"):
        shard = open_shard(tmp_path / other)
        assert shard.recovered_next_sequence() == 0 and shard.quarantined == 5


def test_a_link_or_a_directory_in_the_place_of_a_segment_is_refused(tmp_path):
    (tmp_path / "secret").write_bytes(b"x" * 100)
    for name, make in (("link", "symlink_to"), ("directory", "mkdir")):
        slot = tmp_path / name
        slot.mkdir()
        target = slot / "00000000.seg"
        target.symlink_to(tmp_path / "secret") if make == "symlink_to" else target.mkdir()
        with pytest.raises(CorruptFileError, match="00000000.seg"):
            open_shard(slot)
    assert (tmp_path / "secret").read_bytes() == b"x" * 100


def test_a_pickle_and_other_rubbish_is_only_counted(tmp_path):
    for number, content in enumerate((b"\x80\x04\x95cos\nsystem\n", os.urandom(5000), bytes(5000))):
        (tmp_path / f"{number:08d}.seg").write_bytes(content)
    (tmp_path / "readme.txt").write_text("not ours")
    (tmp_path / "00000009.seg.tmp").write_text("left over")
    shard = open_shard(tmp_path)
    assert shard.recovered_next_sequence() == 0 and shard.quarantined == 2 and shard.counters()["torn_bytes"] == 5000
    assert (tmp_path / "readme.txt").exists() and not list(tmp_path.glob("*.tmp"))
    fill(shard, 30)
    assert shard.sequences().tolist() == top(20, 30)


def test_an_index_of_a_million_takes_at_most_42_bytes_an_unroll(tmp_path):
    """The whole index at a million unrolls, and so at most 236 MB for the 5.6 million of the paper's largest buffer."""
    capacity = 1_000_000
    shard = open_shard(tmp_path, capacity)
    shard._reservoir.advance(2 * capacity)
    shard._reservoir.threshold  # noqa: B018  sorts the part that is evicted next
    disk(shard)._reserve(capacity)
    shard._tasks, shard._frames = np.zeros(capacity, np.uint16), np.zeros(capacity, np.int64)
    assert capacity * 38 <= shard.index_nbytes <= capacity * 42
    assert not any(isinstance(value, list | dict) and len(value) > 1000 for value in vars(shard._store).values())


def test_a_store_that_was_never_closed_does_not_haunt_the_next_one(tmp_path):
    files = FilePool()
    fill(open_shard(tmp_path / "a", files=files), 20)
    shutil.rmtree(tmp_path / "a")
    fill(open_shard(tmp_path / "a", files=files), 20)
    again = open_shard(tmp_path / "a", files=FilePool())
    assert again.recovered_next_sequence() == 20


def test_many_shards_share_few_open_files(tmp_path):
    files = FilePool(limit=10)
    before = len(os.listdir("/proc/self/fd"))
    shards = [open_shard(tmp_path / str(slot), slot=slot, files=files, segment_nbytes=1000) for slot in range(40)]
    for shard in shards:
        fill(shard, 60)
    assert sum(shard.counters()["segments"] for shard in shards) > 100
    for shard in shards:
        assert drawn(shard, 30) and len(os.listdir("/proc/self/fd")) - before <= 10
        shard.sync()
    for shard in shards:
        shard.close()
    assert len(files) == 0 and len(os.listdir("/proc/self/fd")) == before


def test_what_put_returns_from_is_in_the_file(tmp_path):
    stream = derive(1, "reservoir", 0)
    store = DiskStore(tmp_path)
    store.open(ShardKey(0, stream, 10, 1000))
    record = pack_record(0, 0, unroll_number(stream, 0), b"payload")
    store.put(0, record)
    assert (tmp_path / "00000000.seg").read_bytes() == record == store.get(0)
    store.close()


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0])
def test_a_waste_share_out_of_range_is_refused(tmp_path, share):
    with pytest.raises(ConfigError, match="replay_waste_share"):
        DiskStore(tmp_path, waste_share=share)
