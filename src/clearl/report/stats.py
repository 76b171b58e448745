"""Statistics over seeds: mean, standard deviation, t-intervals, and Holm's correction.

An effect is a function of the scores of some arms. Its standard error is the jackknife's (leave one seed out, arm by
arm), its degrees of freedom are Welch's and Satterthwaite's. For one mean this is Student's interval, for a difference
of two means Welch's. Ratios are treated on the log scale. A simulation in the tests shows the coverage at 3 to 10
seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MIN_SEEDS = 3
"""Below this an interval would say more about the method of making intervals than about the runs."""
DECIDING_SEEDS = 5
"""Arms of fewer finished seeds decide nothing."""
CONFIDENCE = 0.95


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
    error: float = np.nan
    """Standard error, on the log scale where `is_log`."""
    degrees: float = np.nan
    is_log: bool = False

    def p_above(self, edge: float) -> float:
        """Return the one-sided p of the data if the effect were not above `edge`."""
        return self._tail(edge, 1.0)

    def p_below(self, edge: float) -> float:
        """Return the one-sided p of the data if the effect were not below `edge`."""
        return self._tail(edge, -1.0)

    def _tail(self, edge: float, sign: float) -> float:
        distance = sign * (self._scaled(self.value) - self._scaled(edge))
        if self.error == 0 or np.isinf(distance):
            return 0.0 if distance >= 0 else 1.0
        from scipy.stats import t

        return float(t.sf(distance / self.error, self.degrees))

    def _scaled(self, value: float) -> float:
        if not self.is_log:
            return value
        return float(np.log(value)) if value > 0 else -np.inf

    def to_json(self) -> dict[str, Any]:
        return {"value": self.value, "low": self.low, "high": self.high}


def over_seeds(samples: Sequence[np.ndarray], effect: Callable[..., float], *, is_log: bool = False) -> Interval | None:
    """Return an effect between arms with its interval; None where the effect itself is not finite.

    `samples` holds one array [seeds, ...] for each arm; `effect` takes such arrays. With `is_log` the effect is a
    ratio above 0. An effect that is not finite when some seed is left out has no interval.
    """
    value = effect(*samples)
    if not np.isfinite(value):
        return None
    if any(len(sample) < MIN_SEEDS for sample in samples):
        return Interval(value)
    variances = np.array([_jackknife(samples, place, effect, is_log=is_log) for place in range(len(samples))])
    centre = np.log(value) if is_log and value > 0 else value
    if not np.isfinite(variances).all() or (is_log and value <= 0):
        return Interval(value)
    error = float(np.sqrt(variances.sum()))
    degrees = _degrees(variances, [len(sample) for sample in samples])
    from scipy.stats import t

    reach = float(t.ppf((1 + CONFIDENCE) / 2, degrees)) * error if error > 0 else 0.0
    low, high = centre - reach, centre + reach
    low, high = (float(np.exp(low)), float(np.exp(high))) if is_log else (float(low), float(high))
    return Interval(value, low, high, error, degrees, is_log)


def mean_interval(values: np.ndarray) -> Interval | None:
    """Return the mean over seeds with Student's interval."""
    return over_seeds([values], lambda sample: float(sample.mean())) if values.size else None


def iqm(scores: np.ndarray) -> Interval | None:
    """Return the interquartile mean of normalised scores [seeds, tasks]; seeds are left out whole."""
    if scores.shape[0] < MIN_SEEDS or not scores.shape[1]:
        return None
    from scipy.stats import trim_mean

    return over_seeds([scores], lambda sample: float(trim_mean(sample.ravel(), 0.25)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values, which may all be held to one level together."""
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(np.argsort(p_values, kind="stable")):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def _jackknife(samples: Sequence[np.ndarray], place: int, effect: Callable[..., float], *, is_log: bool) -> float:
    """Return the part of the effect's variance that comes from the seeds of one arm."""
    count = len(samples[place])
    values = []
    for left_out in range(count):
        reduced = list(samples)
        reduced[place] = np.delete(samples[place], left_out, axis=0)
        values.append(effect(*reduced))
    found = np.array(values)
    if is_log:
        if not (found > 0).all():
            return np.nan
        found = np.log(found)
    return float((count - 1) / count * np.sum((found - found.mean()) ** 2))


def _degrees(variances: np.ndarray, counts: Sequence[int]) -> float:
    """Compute Welch's and Satterthwaite's degrees of freedom."""
    total = variances.sum()
    if total == 0:
        return float(sum(counts) - len(counts))
    return float(total**2 / np.sum(variances**2 / (np.array(counts) - 1)))
