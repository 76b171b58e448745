"""Labels stay with their records through everything, and stay out of what is drawn."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clearl.config import from_yaml
from clearl.records.run_dir import RunDir
from clearl.replay.codec import Codec
from clearl.replay.disk import DiskStore
from clearl.replay.framing import HEADER_NBYTES, open_record, pack_record, read_header, record_label
from clearl.replay.labels import (
    MAX_LABEL_NBYTES,
    UNKNOWN_TASK,
    Label,
    count_by_task,
    merged_by_task,
    pack_label,
    read_label,
    stored_name,
    task_name,
)
from clearl.replay.shard import ReplayShard
from clearl.replay.store import RamStore, Store
from clearl.spaces import discrete_spec
from clearl.unroll import UnrollLayout
from clearl.wiring import load_factory

TINY = UnrollLayout(discrete_spec((3,), "uint8", 2), 2)
OLD_RUN = Path(__file__).parents[2] / "data" / "version-0.1" / "finished"


def open_shard(store: Store, capacity: int = 20) -> ReplayShard:
    return ReplayShard(codec=Codec(TINY), capacity_unrolls=capacity, seed=1, slot=0, store=store)


def label_of(sequence: int) -> Label:
    return Label(f"task-{sequence // 30}", 10 * sequence, sequence / 4)


def fill(shard: ReplayShard, until: int) -> None:
    while (sequence := shard.next_sequence) < until:
        shard.insert(replace(TINY.empty(1)[0], last_action=np.array(sequence)), label_of(sequence))


def named(shard: ReplayShard) -> list[tuple[str, int]]:
    return sorted((task_name(task), frames) for task, frames in shard.labels().tolist())


def expected(shard: ReplayShard) -> list[tuple[str, int]]:
    return sorted(label_of(sequence)[:2] for sequence in shard.sequences().tolist())


@pytest.mark.parametrize("task", ["breakout", "gym:CartPole-v1?length=0.5", "Käse", "x" * 96])
def test_a_label_comes_back_as_it_was(task: str) -> None:
    packed = pack_label(Label(task, 1 << 40, -2.5))
    assert read_label(b"xyz" + packed, 3) == (task, 1 << 40, -2.5) and len(packed) <= MAX_LABEL_NBYTES


def test_long_names_are_cut_and_stay_different() -> None:
    one, two = "ü" * 400 + "a", "ü" * 400 + "b"
    assert stored_name(one) != stored_name(two)
    for task in (one, two):
        packed = pack_label(Label(task, 0, 0.0))
        assert len(packed) <= MAX_LABEL_NBYTES and read_label(packed, 0).task == stored_name(task)


def test_a_payload_is_drawn_without_its_label() -> None:
    record = pack_record(3, 7, 99, b"payload", Label("breakout", 5, 1.0))
    header = read_header(record)
    assert header is not None and record_label(record, header) == ("breakout", 5, 1.0)
    assert bytes(open_record(record, slot=3, sequence=7, number=99)) == b"payload"
    assert len(record) == HEADER_NBYTES + 13 + len("breakout") + 7
    shard = open_shard(RamStore())
    fill(shard, 10)
    for _ in range(50):
        payload = shard.draw()
        assert payload is not None
        assert bytes(payload) == shard.codec.encode(shard.codec.decode(payload))


@pytest.mark.parametrize("kind", ["ram", "disk"])
def test_labels_follow_their_unrolls(kind: str, tmp_path: Path) -> None:
    shard = open_shard(RamStore() if kind == "ram" else DiskStore(tmp_path, segment_nbytes=600))
    for until in (5, 20, 60, 200):
        fill(shard, until)
        assert named(shard) == expected(shard)
        shard.sync()
        shard.set_floor(until)  # rewrites segments on disk
    assert len(named(shard)) == 20
    shard.restore(200)
    assert named(shard) == expected(shard)
    if kind == "disk":
        again = open_shard(DiskStore(tmp_path, segment_nbytes=600))
        again.restore(200)
        assert named(again) == expected(again)


def test_replay_of_version_0_1_is_unknown(tmp_path: Path) -> None:
    path = Path(shutil.copytree(OLD_RUN, tmp_path / "run"))
    factory = load_factory(RunDir.open(path).config_text, path)
    shard = factory.shard(0)
    shard.restore(shard.recovered_next_sequence())
    assert shard.held > 0 and shard.quarantined == 0
    assert count_by_task([shard.labels()]).keys() == {UNKNOWN_TASK}
    assert from_yaml(RunDir.open(path).config_text).slots == 4


def test_counts_and_ages_by_task() -> None:
    shard = open_shard(RamStore(), 100)
    fill(shard, 60)
    counted = count_by_task([shard.labels()])
    assert counted == {"task-0": (30.0, 145.0), "task-1": (30.0, 445.0)}
    other = {"task-1": (10.0, 485.0), UNKNOWN_TASK: (2.0, math.nan)}
    assert merged_by_task([counted, other], 600) == {
        "task-0": {"unrolls": 30, "median_age_frames": 455},
        "task-1": {"unrolls": 40, "median_age_frames": 145},
        UNKNOWN_TASK: {"unrolls": 2, "median_age_frames": None},
    }
