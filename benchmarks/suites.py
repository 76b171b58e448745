"""Measure the steps a second of every suite's environments in one process, beside MinAtar's Breakout in the same run.

python benchmarks/suites.py [--suites minatar,atari] [--seconds 2] [--envs 16] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from clearl.config import RunConfig
from clearl.errors import MissingExtraError
from clearl.seeding import generator
from clearl.suites import SUITES, make_suite
from clearl.tasks.suite import Suite

MORE_TASKS = {
    "minatar": ("breakout", "space_invaders", "asterix", "seaquest", "freeway", "breakout@1"),
    "gym": ("CartPole-v1", "Acrobot-v1"),
}


@dataclass(frozen=True)
class Speed:
    """The cost of one task."""

    suite: str
    task: str
    build_s: float
    reset_s: float
    steps_per_s: float
    frames_per_s: float
    ratio_to_breakout: float = 0.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", default=",".join(SUITES))
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    reference = measure(make_suite("minatar", ("breakout",), RunConfig()), "breakout", options.envs, options.seconds)
    rows = []
    print(f"{'task':45} {'build s':>8} {'reset s':>8} {'steps/s':>9} {'frames/s':>9} {'x breakout':>10}")
    for name in options.suites.split(","):
        try:
            suite = make_suite(name, MORE_TASKS.get(name, ()), RunConfig())
        except MissingExtraError as error:
            print(f"{name}: {error}")
            continue
        for task in suite.tasks:
            speed = measure(suite, task, options.envs, options.seconds)
            ratio = speed.steps_per_s / reference.steps_per_s
            rows.append(asdict(speed) | {"ratio_to_breakout": ratio})
            print(
                f"{name + ' ' + task:45} {speed.build_s:8.2f} {speed.reset_s:8.2f} {speed.steps_per_s:9.0f} "
                f"{speed.frames_per_s:9.0f} {ratio:10.3f}"
            )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def measure(suite: Suite, task: str, num_envs: int, seconds: float) -> Speed:
    """Play at random for about `seconds`."""
    allowed = np.flatnonzero(suite.mask(task))
    actions = generator(0, "benchmark").choice(allowed, (1000, num_envs))
    start = time.perf_counter()
    envs = suite.make(task, num_envs=num_envs, seed=0)
    built = time.perf_counter()
    envs.reset()
    begin = time.perf_counter()
    steps = 0
    while time.perf_counter() - begin < seconds:
        envs.step(actions[steps % len(actions)])
        steps += 1
    rate = steps * num_envs / (time.perf_counter() - begin)
    envs.close()
    return Speed(suite.name, task, built - start, begin - built, rate, rate * suite.spec.frames_per_step)


if __name__ == "__main__":
    main()
