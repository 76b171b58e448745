"""The Ray runtime in one run: pairs a second into a batch, fairness among many workers, and `ray` against `local`.

    python -m benchmarks.ray [--only intake,many,minatar,atari] [--seconds 40] [--json build/ray.json]

intake: worker processes without environments that send prepared Atari pairs, read as training reads them; nothing is
learnt. many: 100 light workers within this process, speeds up to three times apart and together twice as fast as the
learner, which is a real one, in real time. minatar, atari: the same run with either runtime by turns, 1 to 4 workers;
the second half of each run counts.

Sections that the file holds already are kept; those named by --only are measured again. About 15 minutes in all.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from benchmarks.synthetic import PreparedFactory, prepared, serve, take_in

from clearl.bench.endtoend import train
from clearl.bench.workloads import workload
from clearl.records.run_dir import describe_versions
from clearl.runtimes.host import cores

Section = list[dict[str, Any]]

MANY = 100
WORKERS = (1, 2, 3, 4)
RUNTIMES = ("local", "ray")
_WARM_SHARE = 0.5
"""Of a run that is not counted: in the first seconds Ray starts evaluators, among others."""
_SPEEDS = (0.5, 1.5)
_SURPLUS = 2.0
"""How many times as fast as the learner all workers are together."""
_GUESSES = {"minatar": 15_000.0, "atari": 5_000.0}
# The first and the last evaluation always take place: of one step of one episode, they cost nothing.
_QUIET: dict[str, Any] = {
    "eval_every_frames": 10**12, "eval_episodes": 1, "eval_max_steps": 1, "record_every_updates": 1,
}  # fmt: skip


def intake(seconds: float) -> Section:
    """Pairs a second that reach a batch, by runtime."""
    config = workload("atari", workers=2, slots=32)
    codec = PreparedFactory(config).codec
    _, packed = prepared(codec, config.slots)
    nbytes = codec.layout.nbytes + round(mean(map(len, packed)))
    found = {runtime: take_in(runtime, config, seconds=seconds).pairs_per_s for runtime in RUNTIMES}
    return [
        {"runtime": runtime, "workers": config.workers, "pairs_per_s": rate, "pair_bytes": nbytes}
        for runtime, rate in found.items()
    ]


def many(seconds: float) -> Section:
    """Pairs taken from the busiest and the least busy of many workers, and how old the weights were."""
    config = workload("minatar", slots=MANY, learner_threads=1, tasks=("breakout",))
    at_most = serve(config, workers=MANY, seconds=seconds / 2).pairs_per_s
    mean_s = MANY / (_SURPLUS * at_most)
    speeds = np.random.default_rng(0).uniform(*_SPEEDS, MANY)
    done = serve(config, workers=MANY, seconds=2 * seconds, unroll_s=lambda index: mean_s * float(speeds[index]))
    most, fewest = max(done.pairs_by_worker), min(done.pairs_by_worker)
    return [
        {
            "workers": MANY, "pairs_per_s": done.pairs_per_s, "pairs_per_s_without_waiting": at_most,
            "most_pairs": most, "fewest_pairs": fewest, "max_over_min": most / max(fewest, 1),
            "lag_updates": done.lag_updates,
        }
    ]  # fmt: skip


def rates(name: str) -> Callable[[float], Section]:
    """Frames a second of the same run with both runtimes, by the number of workers, and their ratio."""

    def measured(seconds: float) -> Section:
        rows, guess = [], _GUESSES[name]
        for count in WORKERS:
            config = workload(name, **_QUIET, workers=count)
            config = replace(config, tasks=config.tasks[:1])
            found = {}
            for runtime in RUNTIMES if count % 2 else reversed(RUNTIMES):
                placed = replace(config, runtime=runtime)
                found[runtime] = guess = train(placed, seconds, guess, warm_share=_WARM_SHARE).frames_per_s
            rows.append({"workload": name, "workers": count, **found, "ray_over_local": found["ray"] / found["local"]})
            _say(f"  {count} workers: ray {found['ray']:,.0f}, local {found['local']:,.0f} frames/s")
        return rows

    return measured


SECTIONS: dict[str, Callable[[float], Section]] = {
    "intake": intake,
    "many": many,
    "minatar": rates("minatar"),
    "atari": rates("atari"),
}


def main() -> None:
    """Measure what is missing, print it, and write the file after each section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"measure these again: {', '.join(SECTIONS)}")
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--json", type=Path, default=Path("build/ray.json"))
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else list(SECTIONS)
    if unknown := [name for name in wanted if name not in SECTIONS]:
        parser.error(f"no such section: {', '.join(unknown)}")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(options.json.read_text()) if options.json.exists() else {"v": 1, "sections": {}}
    for name in wanted:
        if name in found["sections"] and not options.only:
            continue
        _say(name)
        started = time.monotonic()
        found["sections"][name] = SECTIONS[name](options.seconds)
        found |= {"cores": cores(), "versions": describe_versions("ray", "torch")}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
        for row in found["sections"][name]:
            print(f"{name:8}", "  ".join(f"{key} {_shown(value)}" for key, value in row.items()))
        _say(f"  {time.monotonic() - started:.0f} s")


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
