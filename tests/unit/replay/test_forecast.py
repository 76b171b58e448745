"""The bytes are forecast before the start, and what does not fit is refused with the numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clearl.errors import ConfigError
from clearl.replay.codec import Codec
from clearl.replay.disk import DiskStore
from clearl.replay.forecast import (
    cautious_unroll_nbytes,
    forecast_bytes,
    free_disk_nbytes,
    free_ram_nbytes,
    unrolls_within,
)
from clearl.replay.labels import Label
from clearl.replay.shard import ReplayShard
from clearl.replay.store import RamStore, choose_store, open_store
from clearl.spaces import discrete_spec
from clearl.unroll import UnrollLayout

ATARI = UnrollLayout(discrete_spec((1, 84, 84), "uint8", 18, stack=4, frames_per_step=4), 20)
GB = 10**9


def test_the_cautious_forecast_covers_scalars_that_cannot_be_compressed(layout, make_row):
    row = make_row(layout, 0)
    if len(layout.spec.observation.frame_shape) == 3:  # pictures are expected to be compressible, all else is not
        row = replace(row, frames=np.zeros_like(row.frames))
    assert len(Codec(layout).encode(row)) <= cautious_unroll_nbytes(layout)


def test_a_sample_makes_the_forecast_exact_for_data_of_its_kind(tmp_path):
    rng = np.random.default_rng(0)
    sample = ATARI.empty(10)
    sample.frames[:, :, :, 20:30] = rng.integers(0, 256, sample.frames[:, :, :, 20:30].shape)
    forecast = forecast_bytes(ATARI, 10 * 80, sample=sample)
    shard = ReplayShard(codec=Codec(ATARI), capacity_unrolls=10, seed=0, slot=0, store=DiskStore(tmp_path))
    for index in range(10):
        shard.insert(sample[index], Label("ALE/SpaceInvaders-v", 0, 0.0))  # 32 bytes
    assert forecast.measured and forecast.unrolls == 10
    assert shard.nbytes == pytest.approx(forecast.disk_nbytes * 0.5, rel=1e-3)
    assert forecast.ram_nbytes == pytest.approx(shard.nbytes, rel=0.02)


def test_450_million_frames_need_5_6_million_places_in_the_index():
    forecast = forecast_bytes(ATARI, 450_000_000)
    assert forecast.unrolls == 5_625_000 and forecast.disk_index_nbytes < 240_000_000


def choose(kind, *, ram: int, disk: int, remote: str = ""):
    return choose_store(
        kind, layout=ATARI, capacity_frames=8_000_000, directory=Path("/"), free_ram=ram * GB, free_disk=disk * GB,
        remote=remote,
    )  # fmt: skip


def test_auto_takes_the_disk_then_ram_and_says_the_numbers():
    # 100,000 unrolls of at most 30 KB: 3 GB of RAM or, with half of it waste, 6 GB of disk.
    kind, sentence = choose("auto", ram=100, disk=100)
    assert kind == "disk" and "100,000 unrolls" in sentence and "on disk" in sentence
    assert "6.0 GB of disk (100.0 GB free)" in sentence and "3.0 GB of RAM (100.0 GB free)" in sentence
    assert choose("auto", ram=100, disk=6)[0] == "ram"
    assert choose("ram", ram=100, disk=100)[0] == "ram"
    assert choose("disk", ram=1, disk=100)[0] == "disk"


def test_auto_takes_ram_before_a_remote_file_system_and_says_what_that_costs():
    kind, sentence = choose("auto", ram=100, disk=100, remote="nfs4")
    assert kind == "ram" and "since nfs4 is no file system of this machine" in sentence
    assert "a worker that is killed loses its share" in sentence
    assert choose("auto", ram=1, disk=100, remote="nfs4")[0] == "disk"
    assert choose("disk", ram=100, disk=100, remote="nfs4")[0] == "disk"


@pytest.mark.parametrize(("kind", "ram", "disk"), [("auto", 3, 6), ("ram", 3, 100), ("disk", 100, 6)])
def test_what_does_not_fit_is_refused_with_the_numbers(kind, ram, disk):
    with pytest.raises(ConfigError) as caught:
        choose(kind, ram=ram, disk=disk)
    message = str(caught.value)
    assert f"({disk:.1f} GB free)" in message and f"({ram:.1f} GB free)" in message
    assert "buffer_frames" in message and kind in message


@pytest.mark.parametrize("kind", ["disk", "ram"])
def test_a_full_buffer_stays_within_its_budget(kind, tmp_path, layout, make_row):
    budget, slots = max(40 * layout.nbytes, 100_000), 2
    unrolls = unrolls_within(budget, layout, kind, slots=slots, waste_share=0.5)
    assert forecast_bytes(layout, (unrolls + 1) * slots * layout.frames).disk_nbytes > budget or kind == "ram"
    store = open_store(kind, tmp_path)
    shard = ReplayShard(codec=Codec(layout), capacity_unrolls=unrolls, seed=0, slot=0, store=store)
    for index in range(3 * unrolls):
        row = make_row(layout, index)
        shard.insert(replace(row, frames=np.zeros_like(row.frames)))
    assert unrolls > 1 and shard.nbytes <= budget / slots


def test_a_budget_below_one_unroll_a_slot_is_refused_with_the_least():
    least = unrolls_within(10**9, ATARI, "auto", slots=1, waste_share=0.5)
    with pytest.raises(
        ConfigError, match=r"replay_budget must be at least 482.7 KB, one unroll of .* for each of 8 slots"
    ):
        unrolls_within(10**5, ATARI, "auto", slots=8, waste_share=0.5)
    assert least == unrolls_within(10**9, ATARI, "disk", slots=1, waste_share=0.5)


def test_free_bytes_are_those_of_this_machine(tmp_path):
    assert 10**6 < free_ram_nbytes() < 10**15
    assert abs(free_disk_nbytes(tmp_path / "not" / "yet" / "there") - free_disk_nbytes(tmp_path)) < GB


def test_open_store(tmp_path):
    assert isinstance(open_store("ram", tmp_path), RamStore)
    store = open_store("disk", tmp_path / "slot", waste_share=0.25)
    assert isinstance(store, DiskStore) and store.directory == tmp_path / "slot"
