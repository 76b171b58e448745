"""Compare arms of a report with one of them, paired by seed.

    python tools/paired_arms.py docs/results/e0ce-short/e0ce-short/summary.json clear-both

An effect is the cumulative score over that of the other arm with the same seed, mean of the tasks on the log scale.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from clearl.report.stats import mean_interval

Summary = dict[str, Any]


def log_ratios(summary: Summary, arm: str, other: str) -> dict[int, float]:
    """Return by seed the mean over tasks of the log ratio of cumulative scores; seeds that both arms have."""
    ours, theirs = _logs(summary["arms"][arm]), _logs(summary["arms"][other])
    return {seed: float(np.mean(ours[seed] - theirs[seed])) for seed in ours if seed in theirs}


def _logs(arm: dict[str, Any]) -> dict[int, np.ndarray]:
    """Return by seed the log of the cumulative score of each task; seeds that lack a task are left out."""
    tasks = [arm["tasks"][name]["cumulative"]["per_seed"] for name in sorted(arm["tasks"])]
    rows = zip(arm["seeds"], zip(*tasks, strict=True), strict=True)
    return {seed: np.log(scores) for seed, scores in rows if None not in scores}


def table(summary: Summary, other: str) -> str:
    """Write one row for each other arm, the highest effect first."""
    found = {arm: log_ratios(summary, arm, other) for arm in summary["arms"] if arm != other}
    lines = [f"| arm | cumulative score over that of {other} | 95 % interval | seeds |", "|---|---|---|---|"]
    for arm, ratios in sorted(found.items(), key=lambda item: -np.mean(list(item[1].values()))):
        interval = mean_interval(np.array(list(ratios.values())))
        assert interval is not None, f"{arm} and {other} share no seed"
        low, high = interval.low, interval.high
        bounds = "" if low is None or high is None else f"{np.exp(low):.2f} to {np.exp(high):.2f}"
        lines.append(f"| {arm} | {np.exp(interval.value):.2f} | {bounds} | {len(ratios)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), sys.argv[2]))
