"""Over seeds: mean, standard deviation, and intervals by bootstrap (SciPy's; without SciPy there are none).

A percentile bootstrap over few seeds is too narrow. Simulated on normal scores, its nominal 95 % interval of a mean
holds the truth in 75 % of cases at 3 seeds, 84 % at 5 and 91 % at 10; that of a difference of two arms in 80, 88 and
93 %.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MIN_SEEDS = 3
"""Below this, an interval would say more about the method of making intervals than about the runs."""
RESAMPLES = 2000
CONFIDENCE = 0.95
_SEED = 0


@dataclass(frozen=True)
class Stat:
    """A number over seeds; None stands for what could not be measured."""

    per_seed: tuple[float | None, ...]

    @property
    def values(self) -> np.ndarray:
        return np.array([value for value in self.per_seed if value is not None], dtype=float)

    @property
    def mean(self) -> float | None:
        return float(self.values.mean()) if self.values.size else None

    @property
    def std(self) -> float | None:
        """The sample's standard deviation; one seed has none."""
        return float(self.values.std(ddof=1)) if self.values.size > 1 else None

    def to_json(self) -> dict[str, Any]:
        return {"mean": self.mean, "std": self.std, "per_seed": list(self.per_seed)}


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval; no bounds where they cannot be had."""

    value: float
    low: float | None = None
    high: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {"value": self.value, "low": self.low, "high": self.high}


def iqm(scores: np.ndarray) -> Interval | None:
    """The interquartile mean of normalised scores [seeds, tasks], with a bootstrap stratified by task."""
    if scores.shape[0] < MIN_SEEDS or not scores.shape[1]:
        return None
    from scipy.stats import trim_mean

    def statistic(*columns: np.ndarray, axis: int = -1) -> Any:
        return trim_mean(np.concatenate(columns, axis=axis), 0.25, axis=axis)

    return _bootstrap([scores[:, task] for task in range(scores.shape[1])], statistic, vectorized=True)


def over_seeds(samples: Sequence[np.ndarray], effect: Callable[..., float]) -> Interval | None:
    """An effect between arms, with its interval when the seeds of every arm are drawn anew.

    `samples` holds one array [seeds, ...] for each arm; `effect` takes such arrays. An effect that is not finite, on
    the runs themselves or when drawn anew, has no interval.
    """
    value = effect(*samples)
    if not np.isfinite(value):
        return None
    if any(len(sample) < MIN_SEEDS for sample in samples):
        return Interval(value)

    def statistic(*rows: np.ndarray) -> float:
        return effect(*(sample[row.astype(int)] for sample, row in zip(samples, rows, strict=True)))

    return _bootstrap([np.arange(len(sample)) for sample in samples], statistic, vectorized=False)


def _bootstrap(data: Sequence[np.ndarray], statistic: Callable[..., Any], *, vectorized: bool) -> Interval:
    from scipy.stats import DegenerateDataWarning, bootstrap

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)  # a draw without a finite effect: no bounds, below
        result = bootstrap(
            tuple(data), statistic, n_resamples=RESAMPLES, confidence_level=CONFIDENCE, method="percentile",
            vectorized=vectorized, rng=np.random.default_rng(_SEED),
        )  # fmt: skip
    value = float(statistic(*(np.asarray(sample) for sample in data)))
    low, high = float(result.confidence_interval.low), float(result.confidence_interval.high)
    if not np.isfinite([low, high]).all():
        return Interval(value)
    return Interval(value, low, high)
