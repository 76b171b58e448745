"""The Ray runtime in one run: pairs a second into a batch, fairness among many workers, and `ray` against `local`.

    python -m benchmarks.ray [--only intake,fairness,rate] [--seconds 4] [--json FILE]

intake: real actors that send prepared Atari pairs, read as training reads them. fairness: 100 workers with speeds up to
three times apart on a clock of their own, without processes, behind a learner that is slower than all of them together.
rate: the same MinAtar run with either runtime, by turns.
"""

from __future__ import annotations

import argparse
import heapq
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from clearl.bench.endtoend import train
from clearl.config import RunConfig
from clearl.intake import Intake, Pairs
from clearl.replay.mixing import Mixer
from clearl.runtimes.distributed import next_to_read
from clearl.runtimes.messages import Message, Produce, Produced, Ready, Setup
from clearl.runtimes.program import Outlet, Places
from clearl.runtimes.ray import connected
from clearl.runtimes.remote import RemoteWorker
from clearl.runtimes.timing import Stopwatch
from clearl.tasks.cursor import Grant
from clearl.types import EnvSpec, UnrollLayout

ATARI = UnrollLayout(EnvSpec((1, 84, 84), "uint8", 18, stack=4, frames_per_step=4), 20)
TINY = UnrollLayout(EnvSpec((1,), "float32", 2), 1)
SLOTS, ACTORS, MANY = 8, 2, 100


class Prepared:
    """A worker's program without environments: the same pairs each time."""

    def __init__(self, outlet: Outlet, setup: Setup, places: Places) -> None:
        self.ready, self.watch = Ready((), 0), Stopwatch()
        pairs, rng = places.pairs(ATARI, len(setup.slots)), np.random.default_rng(0)
        for rows in (pairs.new, pairs.replay):
            rows["frames"][:] = rng.integers(0, 255, rows["frames"].shape, np.uint8)
        pairs.has_replay[:] = True

    def handle(self, message: Message) -> Iterator[Message]:
        yield Produced(0, 0, (), {}, {})

    def close(self) -> None: ...


PROGRAM = Prepared


def intake(seconds: float) -> dict[str, float]:
    """Pairs a second that reach a batch."""
    with tempfile.TemporaryDirectory() as run_dir, connected(None, cpus=ACTORS):
        import ray

        from clearl.runtimes.ray_actor import ChildActor, Luggage
        from clearl.runtimes.ray_child import PublishedWeights, RayChild, ReceivedPairs

        make: Any = ray.remote
        actor, luggage = make(concurrency_groups={"watch": 1})(ChildActor), Luggage(b"{}", (str(Path.cwd()),))
        weights, children = PublishedWeights(1), []
        weights.show(0, 0)
        taken = Intake(ATARI, 32, Mixer(0.5, 0), discount=0.99, reward_clip="unit")
        for index in range(ACTORS):
            slots = tuple(range(index * SLOTS, (index + 1) * SLOTS))
            child, pairs = RayChild(lambda setup: actor.remote(), lambda name, node: None, luggage), ReceivedPairs()
            child.begin(Setup("prepared", "benchmarks.ray", "", "", run_dir, 0, slots), [pairs, weights])
            children.append((child, pairs, slots))
        for child, _, _ in children:
            while not child.poll():
                ray.wait(child.awaited, timeout=0.1)
            child.send(Produce(()))
        count, started = 0, time.perf_counter()
        while (passed := time.perf_counter() - started) < seconds:
            ray.wait([ref for child, _, _ in children for ref in child.awaited], timeout=1.0)
            for child, pairs, slots in children:
                if child.poll():
                    for _ in taken.take(Pairs(slots, pairs.new, pairs.replay, pairs.has_replay, 0)):
                        pass
                    child.send(Produce(()))
                    count += len(slots)
        for child, _, _ in children:
            child.end()
    pair = {name: array.nbytes for name, array in ATARI.empty(1).items()}
    return {"pairs_per_s": count / passed, "pair_bytes": 2 * sum(pair.values())}


@dataclass
class Simulated:
    """What `next_to_read` looks at of a worker."""

    slots: list[int]
    unroll_s: float
    grant: Grant | None = None
    report: object | None = None
    turn: int = 0
    version: int = 0
    taken: int = 0

    def pairs(self) -> Pairs:
        rows = TINY.empty(1)
        return Pairs(self.slots, rows, rows, np.zeros(1, bool), self.version)


def fairness(batches: int = 400, update_s: float = 0.5) -> dict[str, float]:
    """Pairs taken from the busiest and the least busy of many workers, and how old the weights were."""
    rng = np.random.default_rng(0)
    workers = [Simulated([i], float(s)) for i, s in enumerate(rng.uniform(0.5, 1.5, MANY))]
    taken = Intake(TINY, 32, Mixer(0, 0), discount=1.0, reward_clip="none")
    now, grants, updates, lags = 0.0, 0, 0, []
    due: list[tuple[float, int]] = []
    while updates < batches:
        for index, worker in enumerate(workers):
            if worker.grant is None:
                grants += 1
                worker.grant, worker.turn, worker.version = Grant(0, ("t",)), grants, updates
                heapq.heappush(due, (now + worker.unroll_s, index))
        while due and due[0][0] <= now:
            workers[heapq.heappop(due)[1]].report = object()
        chosen = next_to_read(cast(list[RemoteWorker], workers), taken)
        if chosen is None:
            now = due[0][0]
            continue
        simulated = cast(Simulated, chosen)
        simulated.taken += 1
        for _, version in taken.take(simulated.pairs()):
            lags.append(updates - version)
            updates, now = updates + 1, now + update_s
        simulated.grant = simulated.report = None
    counts = [worker.taken for worker in workers]
    return {"workers": MANY, "max_over_min": max(counts) / min(counts), "mean_lag_updates": float(np.mean(lags))}


def rate(seconds: float) -> dict[str, float]:
    """Frames a second of the same run with both runtimes, and their ratio."""
    shared: dict[str, Any] = {
        "suite": "minatar", "tasks": ("breakout",), "workers": 2, "eval_every_frames": 10**12, "eval_episodes": 1,
        "eval_max_steps": 1, "learner_threads": 1, "record_every_updates": 10,
    }  # fmt: skip
    found = {runtime: train(RunConfig(runtime=runtime, **shared), seconds, 3000).frames_per_s for runtime in _BOTH}
    return {**found, "ray_over_local": found["ray"] / found["local"]}


_BOTH = ("local", "ray")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="intake,fairness,rate")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    measures = {"intake": lambda: intake(options.seconds), "fairness": fairness, "rate": lambda: rate(options.seconds)}
    found = {name: measures[name]() for name in options.only.split(",")}
    for name, figures in found.items():
        print(f"{name:9}", "  ".join(f"{key} {value:.4g}" for key, value in figures.items()))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
