"""Write the table claims x suites of docs/results/README.md from the findings of published results.

`python tools/claims_table.py` after `tools/publish_results.py`; the text between the two marks is replaced.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
SUITES = {
    "MinAtar, two games": "e0a-pairs/e0a-pairs",
    "MinAtar, two games, longer visits": "e0f-visits/e0f-visits",
    "MinAtar, control schemes": "e1-schemes/e1-schemes",
    "MinAtar, control schemes, rivals": "e3-schemes/e3-schemes",
    "MinAtar, four games, short visits": "e2-short/e2-short",
    "MiniGrid with an LSTM, short visits": "e4-short/e4-short",
    "MiniGrid with an LSTM": "e4-visits/e4-visits",
    "MinAtar, four games": "e2-games/e2-games",
    "MiniGrid, LSTM": "e4-recurrent/e4-recurrent",
    "Pendulum, control schemes": "control/control-schemes",
    "HalfCheetah, two directions": "control/directions",
}
"""Columns of the table and the sequence that each is read from; what is not published has no column."""
START, END = "<!-- claims: written by tools/claims_table.py -->", "<!-- end of claims -->"

Finding = dict[str, Any]


def read_findings(results: Path) -> dict[str, dict[str, Finding]]:
    """Return the findings of each published suite by the claim's id."""
    files = {suite: results / sequence / "findings.json" for suite, sequence in SUITES.items()}
    return {
        suite: {finding["id"]: finding for finding in json.loads(file.read_text(encoding="utf-8"))}
        for suite, file in files.items()
        if file.exists()
    }


def table(found: dict[str, dict[str, Finding]]) -> str:
    """Write one row for each claim that was judged on one suite at least."""
    claims = {id_: finding["claim"] for findings in found.values() for id_, finding in findings.items()}
    judged = [id_ for id_ in claims if any(_effect(findings.get(id_)) for findings in found.values())]
    heads = [f"[{suite}]({Path(SUITES[suite]).parent}/README.md)" for suite in found]
    lines = [f"| claim | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    lines += [
        f"| {claims[id_]} | {' | '.join(_cell(findings.get(id_)) for findings in found.values())} |" for id_ in judged
    ]
    return "\n".join(lines)


def write(page: Path, text: str) -> None:
    """Replace what stands between the marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(START)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{page} has no place for the table: it needs the lines {START} and {END}")
    page.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def _effect(finding: Finding | None) -> dict[str, float] | None:
    return finding["effect"] if finding is not None else None


def _cell(finding: Finding | None) -> str:
    effect = _effect(finding)
    if finding is None or effect is None:
        return "not run"
    interval = "" if effect["low"] is None else f" ({effect['low']:.2f} to {effect['high']:.2f})"
    return f"**{finding['verdict']}**: {effect['value']:.2f}{interval}, n = {min(finding['seeds'])}"


if __name__ == "__main__":
    write(RESULTS / "README.md", table(read_findings(RESULTS)))
