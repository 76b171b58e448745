"""Measure how the cost grows: one section of a JSON file for each curve that `tools/performance_tables.py` draws.

    python -m benchmarks.growth [--only slots,workers,...] [--seconds 5] [--json build/growth.json]

slots, workers, batch, unroll: the rate of MinAtar training with `local` (Breakout, no evaluation). replay: an insert
and a sample against the unrolls held. memory: the processes of one run over its frames, its buffer filling, then full.
serve: the learner alone, fed with prepared unrolls by more and more light workers, and the rate of one real worker.
paper: the same two constants, and the bytes of a frame, with the settings of the paper's own runs. operations: the
floating-point operations of an update for each of its frames, counted by torch.

Sections that the file holds already are kept; those named by --only are measured again.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from benchmarks.replay import ATARI, SMALL, cpu_seconds, insert_cost_us, play, shard_of, small_row
from benchmarks.sections import Section, measure_sections, parser_of, say
from benchmarks.synthetic import serve

from clearl.bench.endtoend import train
from clearl.bench.work import learner as learner_work
from clearl.bench.workloads import workload
from clearl.config import RunConfig, resolve, to_yaml
from clearl.records.reader import read_rows
from clearl.records.schema import METRICS_FILE
from clearl.replay.disk import DiskStore
from clearl.replay.shard import ReplayShard
from clearl.runtimes.host import cores
from clearl.suites import make_suite
from clearl.wiring import ReplaySize, RunFactory

SLOTS = (4, 8, 16, 32, 64, 128, 256)
WORKERS = (1, 2, 3, 4)
BATCHES = (8, 16, 32, 64, 128)
UNROLLS = (5, 10, 20, 40, 80)
HELD = (1_000, 10_000, 100_000, 1_000_000)
SERVED = (1, 2, 4, 8, 16, 32, 64)
# The first and the last evaluation always take place: of one step of one episode, they cost nothing.
_QUIET: dict[str, Any] = {
    "tasks": ("breakout",), "eval_every_frames": 10**12, "eval_episodes": 1, "eval_max_steps": 1,
    "record_every_updates": 2,
}  # fmt: skip
_FIRST_GUESS = 4_000.0
_COSTS = 5
"""Measurements of an insert or a sample, of which the median counts."""
_GLANCE_S = 0.25
_BYTES_UNROLLS = 8
"""The least unrolls of each task from which the bytes of a frame are measured."""


def rates(configs: Callable[[], dict[int, RunConfig]]) -> Callable[[argparse.Namespace], Section]:
    """Return a section of frames per second of real runs, by the setting that changes."""

    def measured(options: argparse.Namespace) -> Section:
        rows, guess = [], _FIRST_GUESS
        for setting, config in configs().items():
            trained = train(config, options.seconds, guess)
            guess = trained.frames_per_s
            rows.append({"x": setting, "frames_per_s": trained.frames_per_s, "frames": trained.frames})
            say(f"  {setting}: {trained.frames_per_s:,.0f} frames/s")
        return rows

    return measured


def slots() -> dict[int, RunConfig]:
    """Vary the number of slots; no slot is in a batch twice, so that few slots make small batches."""
    return {n: workload("minatar", **_QUIET, slots=n, batch_unrolls=min(n, 32)) for n in SLOTS}


def workers() -> dict[int, RunConfig]:
    """Vary the number of worker processes, which share 32 slots."""
    return {n: workload("minatar", **_QUIET, workers=n) for n in WORKERS}


def batches() -> dict[int, RunConfig]:
    """Vary the unrolls of an update, out of 128 slots."""
    return {n: workload("minatar", **_QUIET, slots=128, batch_unrolls=n) for n in BATCHES}


def unrolls() -> dict[int, RunConfig]:
    """Vary the steps of an unroll."""
    return {n: workload("minatar", **_QUIET, unroll_steps=n) for n in UNROLLS}


def replay(options: argparse.Namespace) -> Section:
    """Measure the microseconds of one core for an insert that stays and for a sample, in a full shard on disk.

    Tiny unrolls are really held, so that the index shows. Atari's are 6 KB each: its shard has the index of one that
    lost its records, which costs an insert the same.
    """
    rows, atari = [], play("space_invaders", 4)[0]
    with tempfile.TemporaryDirectory(prefix="clearl-bench-") as directory:
        for held in (held for held in HELD if held <= options.held):
            tiny = shard_of(SMALL, held, DiskStore(Path(directory) / f"tiny-{held}"))
            row = small_row()
            filling_s = cpu_seconds(lambda shard=tiny, n=held, row=row: [shard.insert(row) for _ in range(n)])
            large = shard_of(ATARI, held, DiskStore(Path(directory) / f"atari-{held}"))
            large.restore(held)
            rows.append(
                {
                    "held": held,
                    "filling_s": filling_s,
                    "insert_us": _median(lambda shard=tiny, row=row: insert_cost_us(shard, row, 300)),
                    "sample_us": _median(lambda shard=tiny: _sample_cost_us(shard, 2000)),
                    "atari_insert_us": _median(lambda shard=large: insert_cost_us(shard, atari, 300)),
                    "index_bytes": tiny.index_nbytes,
                }
            )
            tiny.close()
            large.close()
            say(f"  {held:,} held: insert {rows[-1]['insert_us']:.0f} us, sample {rows[-1]['sample_us']:.0f} us")
    return rows


def memory(options: argparse.Namespace) -> Section:
    """Measure the bytes of one MinAtar run's processes and of its replay in RAM, over its frames; half of them fit."""
    seconds = 6 * options.seconds
    frames = int(seconds * 2 * _FIRST_GUESS)
    config = workload(
        "minatar", **_QUIET, replay_store="ram", frames_per_visit=frames, buffer_frames=max(frames // 2, 32 * 20)
    )
    rows = []
    with tempfile.TemporaryDirectory(prefix="clearl-bench-") as directory:
        file, out = Path(directory) / "config.yaml", Path(directory) / "run"
        file.write_text(to_yaml(config))
        command = [sys.executable, "-m", "clearl", "run", "--config", str(file), "--out", str(out), "--quiet"]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while child.poll() is None:
            time.sleep(_GLANCE_S)
            last = next((row for row in reversed(_rows(out / METRICS_FILE)) if row["kind"] == "train"), None)
            nbytes = resident_bytes(child.pid)
            if last and (not rows or last["frames"] > rows[-1]["frames"]):
                rows.append({"frames": last["frames"], "bytes": nbytes, "replay_bytes": last["replay"]["bytes"]})
        if child.returncode:
            sys.exit(f"the measured run failed with code {child.returncode}")
    say(f"  {len(rows)} points up to {rows[-1]['frames']:,} frames")
    return [{**row, "buffer_frames": config.buffer_frames} for row in rows]


def served(options: argparse.Namespace) -> Section:
    """Measure the learner alone, all cores as its threads, by the number of workers that share 64 slots."""
    rows = []
    for name in ("minatar", "atari"):
        config = workload(name, slots=64, learner_threads=cores())
        config = replace(config, tasks=config.tasks[:1])
        produced = one_worker(config, options.seconds)
        for count in SERVED:
            done = serve(config, workers=count, seconds=options.seconds / 2)
            rows.append({"workload": name, "workers": count, **_as_json(done), **produced})
            say(f"  {name}, {count} workers: {done.updates_per_s:.1f} updates/s, {done.frames_per_s:,.0f} frames/s")
    return rows


def papers_runs() -> list[tuple[str, RunConfig, RunConfig]]:
    """Return the name of each of the paper's runs, its settings, and those that can be measured here."""
    atari, dmlab = (resolve(flags={"preset": preset}) for preset in ("paper-atari", "paper-dmlab"))
    # DMLab is in no package registry. ViZDoom has its picture, repeats and number of actions, and stands in for it.
    stand_in = replace(dmlab, suite="vizdoom", tasks=("health_gathering", "my_way_home", "deadly_corridor"))
    return [("Atari", atari, atari), ("DMLab", dmlab, stand_in)]


def operations(options: argparse.Namespace) -> Section:
    """Count floating-point operations of an update of the paper's networks, for each environment frame of its batch."""
    with _threads(cores()):
        return [
            {"run": run, "flops_per_frame": learner_work(measured, 1).flops_per_frame}
            for run, _, measured in papers_runs()
        ]


def paper(options: argparse.Namespace) -> Section:
    """Measure learner, worker and bytes with the networks, unrolls and batches of the paper's own runs."""
    rows = []
    for run, config, measured in papers_runs():
        config_here = replace(measured, learner_threads=cores())
        done = serve(config_here, workers=4, seconds=2 * options.seconds)
        rows.append(
            {
                "run": run,
                "measured_on": measured.suite,
                "total_frames": len(config.tasks) * config.cycles * (config.frames_per_visit or 0),
                "buffer_share": config.buffer_share,
                "waste_share": config.replay_waste_share,
                **_as_json(done),
                **one_worker(measured, options.seconds),
            }
        )
        say(f"  {run}: learner {done.frames_per_s:,.0f}, worker {rows[-1]['worker_frames_per_s']:,.0f} frames/s")
    return rows


def one_worker(config: RunConfig, seconds: float) -> dict[str, float]:
    """Measure one worker on one core: frames per second, and bytes of replay for each frame; means over the tasks."""
    each, slots = seconds / len(config.tasks), min(config.slots, 16)
    costs_s, nbytes = [], []
    with tempfile.TemporaryDirectory(prefix="clearl-bench-") as directory, _threads(1):
        suite = make_suite(config.suite, config.tasks, config)
        parts = RunFactory(config, suite, Path(directory), ReplaySize(1000, "ram"))
        for task in suite.tasks:
            worker = parts.worker(list(range(slots)), parts.network())
            new, made, started = parts.layout.empty(slots), -1, 0.0
            with torch.inference_mode():
                while made < 1 or (made * slots < _BYTES_UNROLLS or time.perf_counter() - started < each):
                    worker.act([task] * slots, new)
                    worker.recall()
                    worker.remember(new)
                    made += 1
                    started = started or time.perf_counter()  # the first round builds the environments
            costs_s.append((time.perf_counter() - started) / (made * slots * parts.layout.frames))
            counters = worker.replay_counters()
            nbytes.append(counters["bytes"] / (counters["held"] * parts.layout.frames))
            worker.close()
    return {"worker_frames_per_s": 1 / statistics.mean(costs_s), "replay_bytes_per_frame": statistics.mean(nbytes)}


SECTIONS: dict[str, Callable[[argparse.Namespace], Section]] = {
    "slots": rates(slots),
    "workers": rates(workers),
    "batch": rates(batches),
    "unroll": rates(unrolls),
    "replay": replay,
    "memory": memory,
    "serve": served,
    "paper": paper,
    "operations": operations,
}


def main() -> None:
    """Measure the missing sections, about 8 minutes in all with 5 seconds a run."""
    parser = parser_of(__doc__, SECTIONS, file="build/growth.json", seconds=5.0)
    parser.add_argument("--held", type=int, default=HELD[-1], help="most unrolls held in section replay")
    measure_sections(parser, SECTIONS, ("torch", "numpy"))


def resident_bytes(pid: int) -> int:
    """Return the memory of a process and all below it, shared pages counted once; 0 if it has exited."""
    return sum(_proportional_bytes(each) for each in _family(pid))


def _family(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            listed = children.read_text().split()
        except OSError:
            continue  # it ended in between
        for child in listed:
            yield from _family(int(child))


def _proportional_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def _rows(path: Path) -> list[dict[str, Any]]:
    return read_rows(path) if path.exists() else []


def _as_json(done: Any) -> dict[str, float]:
    names = ("updates_per_s", "pairs_per_s", "frames_per_s", "lag_updates")
    return {name: getattr(done, name) for name in names}


def _sample_cost_us(shard: ReplayShard, samples: int) -> float:
    return 1e6 * cpu_seconds(lambda: [shard.sample() for _ in range(samples)]) / samples


def _median(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(_COSTS))


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


if __name__ == "__main__":
    main()
