"""The figures of a workload as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def as_table(result: Mapping[str, Any]) -> str:
    """Format the rates, their ratio, and the shares of each process's time."""
    lines = [f"{result['workload']}: {result['repeats']} repeats on {result['cores']} cores", ""]
    lines.append(f"{'frames/s':<24}{'median':>12}{'min':>12}{'max':>12}")
    for name, rate in result["frames_per_s"].items():
        lines.append(f"{name:<24}{rate['median']:>12,.0f}{rate['min']:>12,.0f}{rate['max']:>12,.0f}")
    ratio = result["achieved_over_ideal_spread"]
    lines.append(f"{'achieved / ideal':<24}{ratio['median']:>12.2f}{ratio['min']:>12.2f}{ratio['max']:>12.2f}")
    lines += ["", "where the time went"]
    for process, parts in result["breakdown"].items():
        shown = ", ".join(f"{name} {share:.0%}" for name, share in parts.items() if share >= 0.005)
        lines.append(f"  {process:<16}{shown}")
    return "\n".join(lines)
