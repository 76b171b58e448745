"""Check a Gymnasium environment, as `clearl check` does."""

from __future__ import annotations

from clearl.tasks.checker import check_env as find_problems


def check_env(env_id: str, *, steps: int = 2_000, warnings: bool = True) -> None:
    """Play an environment at random; refuse errors that keep it from training, and with `warnings` also doubts."""
    refused = ("error", "warning") if warnings else ("error",)
    findings = [finding for finding in find_problems(env_id, steps=steps) if finding.severity in refused]
    assert not findings, "; ".join(f"{finding.problem} ({finding.remedy})" for finding in findings)
