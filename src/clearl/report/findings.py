"""The claims against the runs at hand: effect, interval, verdict. Nothing here is decided by hand.

A claim *holds* if the 95 % interval of its effect lies within the claim's range, *does not hold* if it lies wholly
outside, and is *undecided* otherwise. Only finished runs count, and only arms of 3 seeds or more decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from clearl.report.arms import base_name, label
from clearl.report.claims import CLAIMS, Claim
from clearl.report.effects import finished
from clearl.report.load import Arm
from clearl.report.stats import MIN_SEEDS, Interval, over_seeds

Verdict = Literal["holds", "does not hold", "undecided"]


@dataclass(frozen=True)
class Finding:
    """A claim with what was measured."""

    claim: Claim
    verdict: Verdict
    why: str
    effect: Interval | None = None
    arms: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()

    @property
    def paper_effect(self) -> float | None:
        """The same effect in the paper's own table, which is of another suite unless you ran that one."""
        table = self.claim.table
        if table is None:
            return None
        rows = [next((table.scores[name] for name in names if name in table.scores), None) for names in self.claim.arms]
        return None if None in rows else self.claim.effect(*(np.array([row]) for row in rows))

    def to_json(self) -> dict[str, Any]:
        low, high = self.claim.range
        return {
            "id": self.claim.id,
            "claim": self.claim.claim,
            "paper": self.claim.paper,
            "paper_effect": self.paper_effect,
            "measure": self.claim.measure,
            "holds_within": [None if np.isinf(low) else low, None if np.isinf(high) else high],
            "reason": self.claim.reason,
            "effect": self.effect.to_json() if self.effect else None,
            "arms": list(self.arms),
            "seeds": list(self.seeds),
            "verdict": self.verdict,
            "why": self.why,
        }


def find(arms: Sequence[Arm]) -> list[Finding]:
    """Every claim, tested on the arms that are there."""
    return [_test(claim, arms) for claim in CLAIMS]


def judge(effect: Interval, within: tuple[float, float]) -> Verdict:
    """The verdict that an effect's interval gives; without an interval there is none."""
    if effect.low is None or effect.high is None:
        return "undecided"
    if within[0] <= effect.low and effect.high <= within[1]:
        return "holds"
    return "does not hold" if effect.high < within[0] or effect.low > within[1] else "undecided"


def _test(claim: Claim, arms: Sequence[Arm]) -> Finding:
    chosen = _choose(claim, arms)
    if isinstance(chosen, str):
        return Finding(claim, "undecided", chosen)
    names, seeds = tuple(arm.name for arm in chosen), tuple(len(finished(arm)) for arm in chosen)
    if 0 in seeds:
        return Finding(claim, "undecided", f"no run of {label(names[seeds.index(0)])} has finished", None, names, seeds)
    samples = claim.gather(chosen)
    if samples is None or any(not len(sample) for sample in samples):
        return Finding(claim, "undecided", "the runs have not measured it", None, names, seeds)
    effect = over_seeds(samples, claim.effect)
    if effect is None:
        return Finding(claim, "undecided", "the scores are too small to compare", None, names, seeds)
    verdict = judge(effect, claim.range)
    return Finding(claim, verdict, _why(effect, verdict, claim, min(map(len, samples))), effect, names, seeds)


def _why(effect: Interval, verdict: Verdict, claim: Claim, seeds: int) -> str:
    if effect.low is not None:
        where = {"holds": "lies within", "does not hold": "lies outside", "undecided": "reaches across the edge of"}
        return f"the interval {where[verdict]} {_range_text(claim.range)}"
    if seeds < MIN_SEEDS:
        return f"{seeds} finished seed{'s' if seeds > 1 else ''}; a verdict needs {MIN_SEEDS}"
    return "the effect has no finite interval"


def _range_text(within: tuple[float, float]) -> str:
    low, high = within
    if np.isinf(high):
        return f"{low:g} or more"
    return f"{high:g} or less" if np.isinf(low) else f"{low:g} to {high:g}"


def _choose(claim: Claim, arms: Sequence[Arm]) -> list[Arm] | str:
    """The arms that the claim is about, or what is missing."""
    if claim.is_probe:
        (name,) = claim.arms[0]
        probes = [arm for arm in arms if base_name(arm.name) == name and arm.probe_position is not None]
        return probes if len(probes) > 1 else f"no runs of {label(name)} with the probe at two or more positions"
    chosen: list[Arm] = []
    for names in claim.arms:
        found = next((arm for name in names for arm in arms if arm.name == name), None)
        if found is None:
            return f"{label(names[0])} was not run"
        chosen.append(found)
    return chosen
