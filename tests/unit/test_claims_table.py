"""The table claims x suites is made from findings, not by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # tools are no part of the package

from tools import claims_table


def publish(results: Path, name: str, *findings: dict[str, object]) -> None:
    place = results / name / name
    place.mkdir(parents=True)
    (place / "findings.json").write_text(json.dumps(findings))


def finding(id_: str, *, value: float | None, low: float | None = None, verdict: str = "holds") -> dict[str, object]:
    effect = None if value is None else {"value": value, "low": low, "high": None if low is None else 1.5}
    return {"id": id_, "claim": f"Claim {id_}", "effect": effect, "verdict": verdict, "seeds": [6, 5]}


def test_cells_show_verdict_effect_interval_and_seeds(tmp_path: Path) -> None:
    publish(tmp_path, "e0a-pairs", finding("a", value=0.9, low=0.8), finding("b", value=None), finding("c", value=None))
    publish(tmp_path, "e1-schemes", finding("a", value=0.5, verdict="undecided"), finding("b", value=1.0, low=0.7))
    lines = claims_table.table(claims_table.read_findings(tmp_path)).splitlines()
    assert "e0a-pairs/README.md" in lines[0] and "e1-schemes/README.md" in lines[0]
    assert lines[2] == "| Claim a | **holds**: 0.90 (0.80 to 1.50), n = 5 | **undecided**: 0.50, n = 5 |"
    assert lines[3] == "| Claim b | not run | **holds**: 1.00 (0.70 to 1.50), n = 5 |"
    assert len(lines) == 4, "a claim that was judged nowhere has no row"


def test_only_what_stands_between_the_marks_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"before\n{claims_table.START}\nold\n{claims_table.END}\nafter\n")
    claims_table.write(page, "new")
    assert page.read_text() == f"before\n{claims_table.START}\n\nnew\n\n{claims_table.END}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="no place"):
        claims_table.write(page, "new")


def test_the_shipped_table_is_that_of_the_shipped_findings() -> None:
    page = (claims_table.RESULTS / "README.md").read_text(encoding="utf-8")
    shown = page.partition(claims_table.START)[2].partition(claims_table.END)[0].strip()
    assert shown == claims_table.table(claims_table.read_findings(claims_table.RESULTS))
