"""The claims against the runs at hand: effect, interval, verdict. Nothing here is decided by hand.

A claim *holds* if its effect lies within the claim's range, *does not hold* if it lies outside, each at the 5 % level
for all claims of the report together (Holm); else it is *undecided*. For a single claim that is the same as a 95 %
t-interval that lies wholly within, or wholly outside. Only finished runs count, and only arms of 5 seeds or more
decide. A claim about a rival that scores below the plain baseline is not judged: *rival not tuned*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from clearl.report.arms import label
from clearl.report.claims import CLAIMS, Claim
from clearl.report.comparisons import choose_arms, oracle_ratio, rival_shares
from clearl.report.effects import Sample, finished
from clearl.report.run import Arm
from clearl.report.stats import CONFIDENCE, DECIDING_SEEDS, Interval, holm, over_seeds

Verdict = Literal["holds", "does not hold", "undecided", "rival not tuned"]
LEVEL = 1 - CONFIDENCE


@dataclass(frozen=True)
class TaskFinding:
    """The claim on one task; corrected for the number of tasks."""

    effect: Interval
    verdict: Verdict


@dataclass(frozen=True)
class Finding:
    """A claim with what was measured."""

    claim: Claim
    verdict: Verdict
    why: str
    effect: Interval | None = None
    arms: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    p_value: float | None = None
    """Two-sided, of the verdict that the effect leans to; corrected for the number of claims."""
    tasks: dict[str, TaskFinding] = field(default_factory=dict)
    oracle: float | None = None
    """For a ratio to simultaneous training: what the schedule would give with no forgetting at all."""
    sanity: dict[str, float] = field(default_factory=dict)
    """Each rival's score as a share of the baseline's."""

    @property
    def paper_effect(self) -> float | None:
        """The same effect in the paper's own table, counted from zero; from another suite unless you ran that one."""
        table = self.claim.table
        if table is None:
            return None
        rows = [next((table.scores[name] for name in names if name in table.scores), None) for names in self.claim.arms]
        return None if None in rows else self.claim.effect(*(np.array([row]) for row in rows))

    def to_json(self) -> dict[str, Any]:
        low, high = self.claim.range
        tasks = {task: {"effect": one.effect.to_json(), "verdict": one.verdict} for task, one in self.tasks.items()}
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
            "p": self.p_value,
            "oracle": self.oracle,
            "rivals_to_baseline": self.sanity,
            "verdict": self.verdict,
            "why": self.why,
            "tasks": tasks,
        }


def find(arms: Sequence[Arm]) -> list[Finding]:
    """Return every claim, tested on the arms that are there; the p-values are corrected for their number."""
    found = [_measure(claim, arms) for claim in CLAIMS]
    places = [place for place, finding in enumerate(found) if finding.p_value is not None]
    adjusted = holm([found[place].p_value or 0.0 for place in places])
    for place, p_value in zip(places, adjusted, strict=True):
        found[place] = _decide(found[place], p_value, len(places))
    return found


def leaning(effect: Interval, within: tuple[float, float]) -> tuple[Verdict, float]:
    """Return the verdict that the effect leans to, and its two-sided p-value."""
    holds = max(effect.p_above(within[0]), effect.p_below(within[1]))
    fails = min(effect.p_below(within[0]), effect.p_above(within[1]))
    return ("holds", min(1.0, 2 * holds)) if holds <= fails else ("does not hold", min(1.0, 2 * fails))


def _measure(claim: Claim, arms: Sequence[Arm]) -> Finding:
    """Return the effect of one claim; with a p-value where it may be decided."""
    chosen = choose_arms(claim, arms)
    if isinstance(chosen, str):
        return Finding(claim, "undecided", chosen)
    names, seeds = tuple(arm.name for arm in chosen), tuple(len(finished(arm)) for arm in chosen)
    if 0 in seeds:
        return Finding(claim, "undecided", f"no run of {label(names[seeds.index(0)])} has finished", None, names, seeds)
    samples = claim.gather(chosen)
    if samples is None or any(not len(sample) for sample in samples):
        return Finding(claim, "undecided", "the runs have not measured it", None, names, seeds)
    effect = over_seeds(samples, claim.effect, is_log=claim.is_ratio)
    if effect is None:
        return Finding(claim, "undecided", "the scores are too small to compare", None, names, seeds)
    rivals = rival_shares([chosen[place] for place in claim.rivals], arms)
    finding = Finding(
        claim, "undecided", "the effect has no finite interval", effect, names, seeds,
        tasks=_by_task(claim, chosen, samples), oracle=oracle_ratio(chosen), sanity=rivals or {},
    )  # fmt: skip
    if rivals is None:
        return replace(finding, why="nothing says that the rival was tuned: the baseline was not run")
    if weak := [name for name, share in rivals.items() if not share >= 1]:
        why = f"{label(weak[0])} has {rivals[weak[0]]:.2f} of the baseline's score: it must not be below it"
        return replace(finding, verdict="rival not tuned", why=why)
    if (count := min(map(len, samples))) < DECIDING_SEEDS:
        why = f"{count} finished seed{'s' if count > 1 else ''}; a verdict needs {DECIDING_SEEDS}"
        return replace(finding, why=why)
    return finding if effect.low is None else replace(finding, p_value=leaning(effect, claim.range)[1])


def _decide(finding: Finding, p_value: float, count: int) -> Finding:
    """Return the verdict, with the p-value corrected for `count` claims."""
    assert finding.effect is not None
    verdict, own = leaning(finding.effect, finding.claim.range)
    where = {"holds": "lies within", "does not hold": "lies outside"}[verdict]
    told = f"the interval {where} {_range_text(finding.claim.range)}"
    if p_value <= LEVEL:
        return replace(finding, verdict=verdict, p_value=p_value, why=told)
    if own <= LEVEL:
        why = f"{told}, but p = {p_value:.2f} once corrected for {count} claims"
    else:
        why = f"the interval reaches across the edge of {_range_text(finding.claim.range)}"
    return replace(finding, p_value=p_value, why=why)


def _by_task(claim: Claim, chosen: Sequence[Arm], samples: Sequence[Sample]) -> dict[str, TaskFinding]:
    """Return the claim on each task by itself: opposite effects cancel in the mean."""
    tasks = claim.tasks(chosen)
    if len(tasks) < 2:
        return {}
    effects: dict[str, Interval] = {}
    for place, task in enumerate(tasks):
        columns = [sample[:, [place]] for sample in samples]
        known = [column[np.isfinite(column).all(axis=1)] for column in columns]
        if all(len(column) for column in known):
            effect = over_seeds(known, claim.effect, is_log=claim.is_ratio)
            effects |= {task: effect} if effect else {}
    decidable = min(map(len, samples)) >= DECIDING_SEEDS
    sure = {task: leaning(effect, claim.range) for task, effect in effects.items() if effect.low is not None}
    adjusted = dict(zip(sure, holm([p_value for _, p_value in sure.values()]), strict=True))
    return {
        task: TaskFinding(
            effect, sure[task][0] if decidable and task in sure and adjusted[task] <= LEVEL else "undecided"
        )
        for task, effect in effects.items()
    }


def _range_text(within: tuple[float, float]) -> str:
    low, high = within
    if np.isinf(high):
        return f"{low:g} or more"
    return f"{high:g} or less" if np.isinf(low) else f"{low:g} to {high:g}"
