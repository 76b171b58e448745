"""The leaderboard of the published results, out of the summaries in docs/results."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

from clearl.report.arms import label

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
HEAD = """# Leaderboard

This page is generated from the published reports. Arms are sorted by their normalised cumulative score: 1 is the
reference of the report (simultaneous training, or else separate training, or else the best arm). Brackets are 95 %
intervals over tasks and seeds; if two overlap, their order means nothing. *Kept* is the share of a task's score that is
left after an absence, as a mean over tasks. [Metrics](../metrics.md) has the formulas, [Results](README.md) the
conditions.

Make a leaderboard of your own runs:

```sh
clearl leaderboard runs --out leaderboard
```
"""


def pages() -> dict[str, str]:
    """The text of the page by its path below docs/."""
    parts = [_section(path) for path in sorted(RESULTS.glob("*/*/summary.json"))]
    return {"results/leaderboard.md": "\n\n".join([HEAD, *parts])}


def _section(path: Path) -> str:
    experiment, tasks = path.parts[-3:-1]
    arms: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["arms"]
    ranked = sorted(arms.items(), key=lambda item: -(_score(item[1]).get("value") or 0.0))
    lines = ["| arm | needs boundaries | seeds | normalised score | kept |", "|---|---|---|---|---|"]
    lines += [_row(name, arm) for name, arm in ranked]
    return f"## {experiment}, {tasks}\n\n[The report]({experiment}/README.md)\n\n" + "\n".join(lines)


def _row(name: str, arm: dict[str, Any]) -> str:
    score = _score(arm)
    shown = f"{score['value']:.2f} [{score['low']:.2f}, {score['high']:.2f}]" if score.get("low") is not None else "–"
    kept = [task["kept"]["mean"] for task in arm["tasks"].values() if task.get("kept", {}).get("mean") is not None]
    told = {"known": "yes", "none": "no"}.get(arm["boundaries"], arm["boundaries"])
    return f"| {label(name)} | {told} | {len(arm['seeds'])} | {shown} | {f'{fmean(kept):.0%}' if kept else '–'} |"


def _score(arm: dict[str, Any]) -> dict[str, Any]:
    return arm.get("iqm_cumulative") or {}
