"""Find what a claim is compared with: the arms that it names, the oracle beside simultaneous training, the baseline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clearl.report.arms import base_name, label
from clearl.report.claims import Claim
from clearl.report.effects import cumulative, finished, ratio, shared_tasks
from clearl.report.oracle import learning_curve, oracle
from clearl.report.run import Arm
from clearl.report.scales import task_floor


def choose_arms(claim: Claim, arms: Sequence[Arm]) -> list[Arm] | str:
    """Return the arms that the claim is about, or a sentence that says what is missing."""
    if claim.is_probe:
        return _choose_probes(claim, arms)
    chosen: list[Arm] = []
    for names in claim.arms:
        found = next((arm for name in names for arm in arms if arm.name == name), None)
        if found is None:
            return f"{label(names[0])} was not run"
        chosen.append(found)
    return chosen


def _choose_probes(claim: Claim, arms: Sequence[Arm]) -> list[Arm] | str:
    """Return the arm's probes, then the baseline's, at the positions that both have."""
    by_position = [
        {arm.probe_position: arm for arm in arms if base_name(arm.name) == name and arm.probe_position is not None}
        for (name,) in claim.arms
    ]
    for (name,), probes in zip(claim.arms, by_position, strict=True):
        if len(probes) < 2:
            return f"no runs of {label(name)} with the probe at two or more positions"
    shared = sorted(position for position in by_position[0] if position in by_position[1])
    if len(shared) < 2:
        return "the probes of the two arms share fewer than two positions"
    return [probes[position] for probes in by_position for position in shared]


def rival_shares(rivals: Sequence[Arm], arms: Sequence[Arm]) -> dict[str, float] | None:
    """Return each rival's cumulative score as a share of the baseline's.

    None where there is no baseline to compare with.
    """
    if not rivals:
        return {}
    baseline = next((arm for arm in arms if arm.name == "sequential" and finished(arm)), None)
    if baseline is None:
        return None
    shares = {}
    for rival in rivals:
        samples = cumulative([rival, baseline])
        known = samples is not None and all(len(sample) for sample in samples)
        shares[rival.name] = ratio(*samples) if samples is not None and known else np.nan
    return {name: share for name, share in shares.items() if np.isfinite(share)} or None


def oracle_ratio(chosen: Sequence[Arm]) -> float | None:
    """Return the oracle's score on the arm's schedule as a share of simultaneous training's."""
    if len(chosen) != 2 or chosen[1].name != "simultaneous":
        return None
    scores = cumulative(chosen)
    if scores is None:
        return None
    shares = []
    for place, task in enumerate(shared_tasks(chosen)):
        reference = learning_curve(finished(chosen[1]), task)
        best = None if reference is None else oracle(finished(chosen[0])[0], task, reference)
        level = scores[1][:, place].mean()
        if best is None or not level > 0:
            return None
        shares.append((best - task_floor(chosen, task)[0]) / level)
    return float(np.mean(shares))
