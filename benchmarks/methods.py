"""Measure what EWC, online EWC and Progress & Compress add to the learner's step, and the cost of a visit's end.

    python benchmarks/methods.py [--workloads atari,minatar] [--repeats 7] [--json FILE]

All methods take turns within one run, so that the ratios hold on a machine that others use too. Limits: EWC with six
tasks at most 1.15 times the baseline's step on the Atari net, Progress & Compress at most 2.2 times in either phase.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from clearl.config import RunConfig
from clearl.learning.learner import Learner
from clearl.methods.baseline import Baseline
from clearl.methods.ewc import Ewc, OnlineEwc
from clearl.methods.method import Method
from clearl.methods.progress_compress import ProgressCompress
from clearl.nets.network import build_network
from clearl.spaces import TaskSpec, discrete_spec
from clearl.types import Batch, Visit

TASKS, STEPS, COLUMNS = 6, 20, 32
LIMITS = {"ewc": 1.15, "online-ewc": 1.15, "progress": 2.2, "compress": 2.2}
WORKLOADS: dict[str, tuple[TaskSpec, str, bool]] = {
    "atari": (discrete_spec((1, 84, 84), "uint8", 18, stack=4, frames_per_step=4), "impala_shallow", False),
    "atari-lstm": (discrete_spec((1, 84, 84), "uint8", 18, stack=4, frames_per_step=4), "impala_shallow", True),
    "minatar": (discrete_spec((10, 10, 10), "bool", 6), "minatar", False),
    "minatar-lstm": (discrete_spec((10, 10, 10), "bool", 6), "minatar", True),
}
VISIT_FRAMES = 1000
METHODS: dict[str, tuple[Callable[[], Method], int]] = {
    "baseline": (lambda: Baseline(), 0),
    "ewc": (lambda: Ewc(Baseline()), 0),
    "online-ewc": (lambda: OnlineEwc(Baseline()), 0),
    "progress": (lambda: ProgressCompress(Baseline()), 0),
    "compress": (lambda: ProgressCompress(Baseline()), VISIT_FRAMES - 1),
}
"""The function that makes each, and the moment of a visit at which it is measured."""


def main() -> None:
    """Measure and print; the exit code says whether the Atari net keeps within the limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = [row for name in options.workloads.split(",") for row in measure(name, options.repeats)]
    print(f"{'workload':14} {'method':12} {'step ms':>9} {'x baseline':>11} {'limit':>6} {'switch s':>9}")
    for row in rows:
        print(
            f"{row['workload']:14} {row['method']:12} {row['step_ms']:9.1f} {row['ratio']:11.3f} "
            f"{LIMITS.get(row['method'], 1.0):6.2f} {row['switch_s']:9.2f}"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    over = [r for r in rows if r["workload"] == "atari" and r["ratio"] > LIMITS.get(r["method"], 1.0)]
    raise SystemExit(f"over the limit: {[row['method'] for row in over]}" if over else 0)


def measure(workload: str, repeats: int) -> list[dict]:
    """Time one learner step of each method, in turns, after six tasks have been visited."""
    spec, torso, lstm = WORKLOADS[workload]
    learners, switches = {}, {}
    for name, (make, _) in METHODS.items():
        method = make()
        network = method.build_network(lambda: build_network(spec, torso=torso, lstm=lstm, lstm_size=256, seed=0))
        config = RunConfig(torso=torso, lstm=lstm)
        learners[name] = Learner(network=network, method=method, config=config, batch_frames=1, total_frames=None)
        switches[name] = visit_tasks(learners[name], a_batch(spec, network.core_size))
    times: dict[str, list[float]] = {name: [] for name in METHODS}
    for repeat in range(repeats + 1):
        for name, (_, position) in METHODS.items():
            taken = one_step(learners[name], a_batch(spec, learners[name].network.core_size), position)
            if repeat:  # the first step of each warms up
                times[name].append(taken)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    return [
        {"workload": workload, "method": name, "step_ms": 1e3 * medians[name], "switch_s": switches[name],
         "ratio": statistics.median(a / b for a, b in zip(times[name], times["baseline"], strict=True))}
        for name in METHODS
    ]  # fmt: skip


def visit_tasks(learner: Learner, batch: Batch) -> float:
    """Make two updates on each of six tasks; return the seconds of one end of a visit after 100 batches."""
    method, seconds = learner.method, 0.0
    if not method.needs_boundaries:
        return seconds
    for index in range(TASKS):
        begin = time.perf_counter()
        method.visit(learner.network, a_visit(index, 0))
        seconds = 50 * (time.perf_counter() - begin)
        for _ in range(2):
            learner.update(batch, a_visit(index, VISIT_FRAMES - 1))
    return seconds


def one_step(learner: Learner, batch: Batch, position: int) -> float:
    begin = time.perf_counter()
    learner.update(batch, a_visit(TASKS - 1, position) if learner.method.needs_boundaries else None)
    return time.perf_counter() - begin


def a_visit(index: int, position: int) -> Visit:
    start = index * VISIT_FRAMES
    return Visit(index, (f"task {index}",), start + position, start, start + VISIT_FRAMES)


def a_batch(spec: TaskSpec, core_size: int) -> Batch:
    """Make noise in the shapes of experience."""
    rng = torch.Generator().manual_seed(0)
    shape, actions, dtype = (STEPS, COLUMNS), spec.action.choices[0], spec.observation.frame_dtype.name
    noise = torch.randint(
        2 if dtype == "bool" else 256, (STEPS + 1, COLUMNS, *spec.observation.shapes[""]), generator=rng
    )
    return Batch(
        observation=noise.to(getattr(torch, dtype)),
        first=torch.rand(STEPS + 1, COLUMNS, generator=rng) < 0.02,
        last_action=torch.randint(actions, (STEPS + 1, COLUMNS), generator=rng),
        last_reward=torch.zeros(STEPS + 1, COLUMNS),
        core_state=torch.zeros(COLUMNS, core_size),
        action=torch.randint(actions, shape, generator=rng),
        reward=torch.randn(shape, generator=rng),
        discount=torch.full(shape, 0.99),
        valid=torch.ones(shape, dtype=torch.bool),
        mask=torch.ones(COLUMNS, actions, dtype=torch.bool),
        behaviour_policy=torch.zeros(*shape, actions),
        behaviour_value=torch.zeros(shape),
        is_replay=torch.zeros(COLUMNS, dtype=torch.bool),
    )


if __name__ == "__main__":
    main()
