"""Measure the Ray runtime: pairs a second into a batch, fairness among many workers, and `ray` against `local`.

    python -m benchmarks.ray [--only intake,many,minatar,atari] [--seconds 40] [--json build/ray.json]

intake: worker processes without environments that send prepared Atari pairs, read as training reads them; nothing is
learnt. many: 100 light workers within this process, speeds up to three times apart and together twice as fast as the
learner, which is a real one, in real time. minatar, atari: the same run with either runtime by turns, 1 to 4 workers;
the second half of each run counts.

Sections that the file holds already are kept; those named by --only are measured again. About 15 minutes in all.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from statistics import mean
from typing import Any

import numpy as np
from benchmarks.sections import Section, measure_sections, parser_of, say
from benchmarks.synthetic import PreparedFactory, prepared, serve, take_in

from clearl.bench.endtoend import train
from clearl.bench.workloads import workload

MANY = 100
WORKERS = (1, 2, 3, 4)
RUNTIMES = ("local", "ray")
_WARM_SHARE = 0.5
"""The share of a run that is not counted: in the first seconds Ray starts evaluators, among others."""
_SPEEDS = (0.5, 1.5)
_SURPLUS = 2.0
"""The speed of all workers together over that of the learner."""
_GUESSES = {"minatar": 15_000.0, "atari": 5_000.0}
# The first and the last evaluation always take place: of one step of one episode, they cost nothing.
_QUIET: dict[str, Any] = {
    "eval_every_frames": 10**12, "eval_episodes": 1, "eval_max_steps": 1, "record_every_updates": 1,
}  # fmt: skip


def intake(options: Namespace) -> Section:
    """Measure the pairs a second that reach a batch, by runtime."""
    config = workload("atari", workers=2, slots=32)
    codec = PreparedFactory(config).codec
    _, packed = prepared(codec, config.slots)
    nbytes = codec.layout.nbytes + round(mean(map(len, packed)))
    found = {runtime: take_in(runtime, config, seconds=options.seconds).pairs_per_s for runtime in RUNTIMES}
    rows = [
        {"runtime": runtime, "workers": config.workers, "pairs_per_s": rate, "pair_bytes": nbytes}
        for runtime, rate in found.items()
    ]
    return _told(rows)


def many(options: Namespace) -> Section:
    """Count the pairs of the busiest and the least busy of many workers, and measure the age of their weights."""
    config = workload("minatar", slots=MANY, learner_threads=1, tasks=("breakout",))
    at_most = serve(config, workers=MANY, seconds=options.seconds / 2).pairs_per_s
    mean_s = MANY / (_SURPLUS * at_most)
    speeds = np.random.default_rng(0).uniform(*_SPEEDS, MANY)
    done = serve(
        config, workers=MANY, seconds=2 * options.seconds, unroll_s=lambda index: mean_s * float(speeds[index])
    )
    most, fewest = max(done.pairs_by_worker), min(done.pairs_by_worker)
    rows = [
        {
            "workers": MANY, "pairs_per_s": done.pairs_per_s, "pairs_per_s_without_waiting": at_most,
            "most_pairs": most, "fewest_pairs": fewest, "max_over_min": most / max(fewest, 1),
            "lag_updates": done.lag_updates,
        }
    ]  # fmt: skip
    return _told(rows)


def _told(rows: Section) -> Section:
    """Report what was measured, and return it."""
    for row in rows:
        shown = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in row.items()}
        say("  " + "  ".join(f"{name} {value}" for name, value in shown.items()))
    return rows


def rates(name: str) -> Callable[[Namespace], Section]:
    """Return a section of frames a second with both runtimes, by the number of workers, and their ratio."""

    def measured(options: Namespace) -> Section:
        rows, guess = [], _GUESSES[name]
        for count in WORKERS:
            config = workload(name, **_QUIET, workers=count)
            config = replace(config, tasks=config.tasks[:1])
            found = {}
            for runtime in RUNTIMES if count % 2 else reversed(RUNTIMES):
                placed = replace(config, runtime=runtime)
                found[runtime] = guess = train(placed, options.seconds, guess, warm_share=_WARM_SHARE).frames_per_s
            rows.append({"workload": name, "workers": count, **found, "ray_over_local": found["ray"] / found["local"]})
            say(f"  {count} workers: ray {found['ray']:,.0f}, local {found['local']:,.0f} frames/s")
        return rows

    return measured


SECTIONS: dict[str, Callable[[Namespace], Section]] = {
    "intake": intake,
    "many": many,
    "minatar": rates("minatar"),
    "atari": rates("atari"),
}


def main() -> None:
    """Measure the missing sections, about 15 minutes in all."""
    measure_sections(parser_of(__doc__, SECTIONS, file="build/ray.json", seconds=40.0), SECTIONS, ("ray", "torch"))


if __name__ == "__main__":
    main()
