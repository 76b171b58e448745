"""Arms compared with one of them, paired by seed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import t

sys.path.insert(0, str(Path(__file__).parents[2]))  # tools are no part of the package

from tools import paired_arms


def arm(seeds: list[int], **scores: Sequence[float | None]) -> dict[str, Any]:
    return {"seeds": seeds, "tasks": {task: {"cumulative": {"per_seed": each}} for task, each in scores.items()}}


def test_pairs_are_of_the_same_seed_and_tasks_count_alike_on_the_log_scale() -> None:
    summary = {
        "arms": {
            "base": arm([3, 1, 2], a=[10.0, 5.0, 8.0], b=[100.0, 200.0, 50.0]),
            "new": arm([1, 2, 3, 4], a=[10.0, 8.0, None, 9.0], b=[100.0, 100.0, 7.0, 7.0]),
        }
    }
    ratios = paired_arms.log_ratios(summary, "new", "base")
    assert ratios == {1: pytest.approx(0.0), 2: pytest.approx(np.log(2) / 2)}


def test_rows_have_the_geometric_mean_with_students_interval_best_first() -> None:
    base, up, down = [2.0, 4.0, 8.0], [3.0, 4.8, 10.4], [1.0, 2.0, 4.0]
    summary = {"arms": {name: arm([0, 1, 2], a=each) for name, each in {"base": base, "down": down, "up": up}.items()}}
    logs = np.log([1.5, 1.2, 1.3])
    half = t.ppf(0.975, 2) * logs.std(ddof=1) / np.sqrt(3)
    low, high = np.exp(logs.mean() - half), np.exp(logs.mean() + half)
    _, _, *rows = paired_arms.table(summary, "base").splitlines()
    assert rows[0] == f"| up | {np.exp(logs.mean()):.2f} | {low:.2f} to {high:.2f} | 3 |"
    assert rows[1] == "| down | 0.50 | 0.50 to 0.50 | 3 |"
