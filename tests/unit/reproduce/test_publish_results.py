"""Publishing one sequence of an experiment leaves the others of its page as they are."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))  # tools are no part of the package
sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))  # they import each other as scripts do

from tools import publish_results


def report(out: Path, sequence: str, headline: str) -> None:
    place = out / "reports" / "control" / sequence
    for folder in ("figures", "tables"):
        (place / folder).mkdir(parents=True)
    (place / "figures" / "retention.svg").write_text(headline)
    (place / "summary.json").write_text(
        json.dumps({"headline": headline, "notes": [], "arms": {"clear": {"seeds": [0]}}})
    )
    (place / "findings.json").write_text("[]")


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(publish_results, "ROOT", tmp_path)
    return tmp_path / "docs" / "results" / "control"


def test_a_sequence_that_is_not_published_anew_stays(results: Path, tmp_path: Path) -> None:
    report(tmp_path / "one", "control-schemes", "Schemes were kept.")
    publish_results.publish(tmp_path / "one", "control", "aaa", None)
    first = (results / "README.md").read_text()
    assert "Schemes were kept." in first and first.count("commit `aaa`") == 1
    report(tmp_path / "two", "directions", "Directions were kept.")
    publish_results.publish(tmp_path / "two", "control", "bbb", 5)
    both = (results / "README.md").read_text()
    assert both.startswith(first.partition("## ")[0]) and first.partition("## ")[2].strip() in both
    assert "--only directions --seeds 5" in both and both.count("commit `bbb`") == 1
    assert (results / "control-schemes" / "figures" / "retention.svg").read_text() == "Schemes were kept."
    publish_results.publish(tmp_path / "two", "control", "bbb", 5)
    assert (results / "README.md").read_text() == both


def test_a_sequence_that_is_published_anew_is_replaced(results: Path, tmp_path: Path) -> None:
    for number, headline in enumerate(("Before.", "After.")):
        report(tmp_path / str(number), "control-schemes", headline)
        publish_results.publish(tmp_path / str(number), "control", f"commit{number}", None)
    page = (results / "README.md").read_text()
    assert "After." in page and "Before." not in page and "commit0" not in page
    assert (results / "control-schemes" / "figures" / "retention.svg").read_text() == "After."


def test_a_report_that_is_older_than_finished_runs_is_not_published(results: Path, tmp_path: Path) -> None:
    runs = publish_results.planned_runs("control", "laptop")[:2]
    publish_results.check_complete({"arms": {"a": {"seeds": [0]}, "b": {"seeds": [1]}}}, runs, tmp_path)
    with pytest.raises(SystemExit, match="made of 1 runs, and 2 have finished since"):
        publish_results.check_complete({"arms": {"a": {"seeds": [0]}}}, runs, tmp_path)
