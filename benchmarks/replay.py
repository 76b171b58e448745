"""Measure replay: bytes per Atari frame, inserts and reads a second, disk against RAM, cost against size.

python benchmarks/replay.py [--json FILE]: about a minute and a half. Rates are per second of one core's time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from clearl.replay.codec import Codec
from clearl.replay.disk import DiskStore
from clearl.replay.framing import HEADER_NBYTES
from clearl.replay.reservoir import Reservoir
from clearl.replay.shard import ReplayShard
from clearl.replay.store import RamStore, Store
from clearl.spaces import discrete_spec
from clearl.unroll import Unroll, UnrollLayout

GAMES = ("space_invaders", "krull", "beam_rider", "hero", "star_gunner", "ms_pacman")
ATARI = UnrollLayout(discrete_spec((1, 84, 84), "uint8", 18, stack=4, frames_per_step=4), 20)
SMALL = UnrollLayout(discrete_spec((4,), "uint8", 3), 5)
REPEATS = 5


def play(game: str, unrolls: int, envs: int = 4) -> list[Unroll]:
    """Play at random, seeded; return unrolls with logits and values as incompressible as real ones."""
    from ale_py.vector_env import AtariVectorEnv

    rng = np.random.default_rng(0)
    env = AtariVectorEnv(game, num_envs=envs, full_action_space=True, stack_num=1)
    steps, stack = ATARI.unroll_steps, ATARI.spec.observation.stack
    frames = [env.reset(seed=0)[0].copy()]
    for _ in range(steps * -(-unrolls // envs) + stack):
        frames.append(env.step(rng.integers(0, 18, envs))[0].copy())
    env.close()
    rows = []
    for index in range(unrolls):
        start = index // envs * steps
        row = ATARI.empty(1)[0]
        row.frames[:] = np.stack([frame[index % envs] for frame in frames[start : start + steps + stack]])
        row.action[:] = rng.integers(0, 18, steps)
        for array in (row.policy, row.value, row.reward):
            array[:] = rng.normal(size=array.shape)
        rows.append(row)
    return rows


def small_row() -> Unroll:
    """Return a tiny unroll, so that the cost of the index shows."""
    return SMALL.empty(1)[0]


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def shard_of(layout: UnrollLayout, capacity: int, store: Store) -> ReplayShard:
    return ReplayShard(codec=Codec(layout), capacity_unrolls=capacity, seed=0, slot=0, store=store)


def measure_bytes(unrolls: dict[str, list[Unroll]]) -> dict[str, float]:
    """Measure the bytes of a record per stored frame, logits included, for each game."""
    codec, stored = Codec(ATARI), ATARI.unroll_steps + ATARI.spec.observation.stack
    return {
        game: statistics.mean(len(codec.encode(row)) + HEADER_NBYTES for row in rows) / stored
        for game, rows in unrolls.items()
    }


def measure_rates(shard: ReplayShard, rows: list[Unroll], inserts: int) -> dict[str, float]:
    """Measure inserts and warm reads a second."""
    target = ATARI.empty(1)

    def read() -> None:
        payload = shard.draw()
        assert payload is not None
        shard.codec.decode_each([payload], target, [0])

    inserting = cpu_seconds(lambda: [shard.insert(rows[i % len(rows)]) for i in range(inserts)])
    reading = cpu_seconds(lambda: [read() for _ in range(inserts)])
    shard.close()
    return {"inserts": inserts / inserting, "reads": inserts / reading}


def compare_stores(directory: Path, rows: list[Unroll], inserts: int) -> dict[str, dict[str, float]]:
    """Measure both stores by turns, as the machine may be shared; return medians of the rates and of the ratios."""
    ram, disk = [], []
    for repeat in range(REPEATS):
        ram.append(measure_rates(shard_of(ATARI, inserts, RamStore()), rows, inserts))
        store = DiskStore(directory / f"rates-{repeat}")
        disk.append(measure_rates(shard_of(ATARI, inserts, store), rows, inserts))
    result: dict[str, dict[str, float]] = {"ram": {}, "disk": {}}
    for name in ("inserts", "reads"):
        result["ram"][name] = statistics.median(one[name] for one in ram)
        result["disk"][name] = statistics.median(one[name] for one in disk)
        ratios = [d[name] / r[name] for d, r in zip(disk, ram, strict=True)]
        result["disk"][f"{name}_over_ram"] = statistics.median(ratios)
    return result


def insert_cost_us(shard: ReplayShard, row: Unroll, accepted: int) -> float:
    """Measure the microseconds per unroll that a full shard inserts."""
    start, before = time.process_time(), shard.next_sequence
    taken = 0
    while taken < accepted:
        taken += shard._reservoir.place()[1] is not None
        shard.insert(row)
    spent = time.process_time() - start
    assert shard.next_sequence > before
    return 1e6 * spent / accepted


def measure_growth(directory: Path, rows: list[Unroll], large: int) -> dict[str, float]:
    """Cost of an insert at `large` unrolls held over that at 1000: tiny unrolls really held, and Atari's with the
    index of a shard that lost its records."""
    small, result = small_row(), {}
    big = shard_of(SMALL, large, DiskStore(directory / "big"))
    result["seconds_to_insert_all"] = cpu_seconds(lambda: [big.insert(small) for _ in range(large)])
    atari = shard_of(ATARI, large, DiskStore(directory / "atari-big"))
    atari.restore(large)
    for name, layout, row, full in (("tiny", SMALL, small, big), ("atari", ATARI, rows[0], atari)):
        at_large, at_1k = [], []
        for repeat in range(8):
            at_large.append(insert_cost_us(full, row, 500))
            thousand = shard_of(layout, 1000, DiskStore(directory / f"{name}-1k-{repeat}"))
            for _ in range(1000):
                thousand.insert(row)
            at_1k.append(insert_cost_us(thousand, row, 500))
            thousand.close()
        result[f"{name}_us_at_1k"] = statistics.median(at_1k)
        result[f"{name}_us_at_large"] = statistics.median(at_large)
        result[f"{name}_ratio"] = result[f"{name}_us_at_large"] / result[f"{name}_us_at_1k"]
    result["index_bytes_per_unroll"] = big.index_nbytes / large
    result["tiny_reads_per_s_at_large"] = 5000 / cpu_seconds(lambda: [big.sample() for _ in range(5000)])
    big.close()
    result["reopen_and_restore_s"] = cpu_seconds(lambda: reopen(shard_of(SMALL, large, DiskStore(directory / "big"))))
    return result


def reopen(shard: ReplayShard) -> None:
    shard.restore(shard.recovered_next_sequence())
    shard.close()


def measure_paper_scale() -> dict[str, float]:
    """Measure the index of 450M frames: 5.6M unrolls out of 11.2M, rebuilt from the hash."""
    reservoir = Reservoir(1, 5_625_000)
    seconds = cpu_seconds(lambda: reservoir.advance(11_250_000))
    return {"rebuild_s": seconds, "index_mb": (reservoir.nbytes + 12 * reservoir.capacity) / 1e6}


def run(directory: Path, unrolls_per_game: int, inserts: int, large: int) -> dict[str, dict[str, float]]:
    unrolls = {game: play(game, unrolls_per_game) for game in GAMES}
    rows = [row for group in zip(*unrolls.values(), strict=True) for row in group]
    per_frame = measure_bytes(unrolls)
    return {
        "bytes_per_stored_frame": {**per_frame, "mean": statistics.mean(per_frame.values())},
        **compare_stores(directory, rows, inserts),
        "growth": measure_growth(directory, rows, large),
        "paper_scale": measure_paper_scale(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--inserts", type=int, default=2000)
    parser.add_argument("--large", type=int, default=1_000_000)
    parser.add_argument("--unrolls-per-game", type=int, default=120)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        result = run(Path(directory), arguments.unrolls_per_game, arguments.inserts, arguments.large)
    for part, figures in result.items():
        print(part)
        for name, value in figures.items():
            print(f"  {name:32s} {value:12,.2f}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
