"""Methods x suites from run directories."""

from __future__ import annotations

import json

import pytest

from clearl.cli.main import main
from clearl.errors import ReportError
from clearl.records import MetricsWriter
from clearl.records.schema import METRICS_FILE, summary_row
from clearl.report import make_leaderboard
from clearl.report.leaderboard import entries


def _levels(level: float, seed: int = 0):
    return lambda task, share: level * (1 + 0.01 * seed) if share > 0 else 0.0


@pytest.fixture
def two_suites(make_run):
    for seed in range(5):
        for suite, tasks in (("minatar", ("a", "b")), ("atari", ("c", "d"))):
            options = {"suite": suite, "tasks": tasks}
            for arm, level in (("sequential", 4.0), ("clear", 8.0), ("ewc", 6.0)):
                make_run(arm, seed, returns=_levels(level, seed), name=f"{suite}/{arm}-{seed}", train_rows=50,
                         needs_boundaries=arm == "ewc", **options)  # fmt: skip
    return make_run


def test_every_method_has_a_row_on_every_suite_best_first(two_suites):
    rows, _ = entries([two_suites.root])
    assert [(row.suite, row.method) for row in rows[:3]] == [
        ("atari: c, d", "CLEAR"),
        ("atari: c, d", "EWC"),
        ("atari: c, d", "Baseline (sequential)"),
    ]
    assert {row.suite for row in rows} == {"atari: c, d", "minatar: a, b"} and len(rows) == 6
    best = rows[0].score
    assert best is not None and best.value == pytest.approx(1.0) and best.low is not None and best.low < 1.0
    assert rows[1].needs_boundaries and not rows[0].needs_boundaries
    assert rows[2].score is not None and rows[2].score.value == pytest.approx(0.5)


def test_forward_transfer_needs_separate_runs_and_memory_its_records(two_suites):
    rows, _ = entries([two_suites.root])
    assert rows[0].forward_transfer is None and rows[0].forgetting is not None
    assert rows[0].forgetting.value == pytest.approx(0.0) and rows[0].memory_nbytes is None
    assert rows[0].fps is not None and rows[0].fps.value == 1e4


def test_memory_counts_all_that_a_method_holds(make_run):
    path = make_run("ewc", train_rows=50)
    with MetricsWriter(path, position=(path / METRICS_FILE).stat().st_size) as writer:
        writer.write(summary_row({"memory_nbytes": {"replay": 0, "network": 1000, "method": 2000}}))
    (row,), _ = entries([make_run.root])
    assert row.memory_nbytes is not None and row.memory_nbytes.value == 3000


def test_the_page_is_offline_and_says_how_to_make_it_again(two_suites, tmp_path):
    make_leaderboard([two_suites.root], tmp_path / "board", command="clearl leaderboard x")
    html = (tmp_path / "board" / "index.html").read_text()
    assert "<script" not in html and "http" not in html and "clearl leaderboard x" in html
    data = json.loads((tmp_path / "board" / "leaderboard.json").read_text())
    assert data[0]["method"] == "CLEAR" and set(data[0]["score"]) == {"value", "low", "high"}
    lines = (tmp_path / "board" / "leaderboard.md").read_text().splitlines()
    assert any(line.startswith("| CLEAR | none | 5 | 1.00 [") for line in lines)


def test_the_verb(two_suites, tmp_path, capsys):
    assert main(["leaderboard", str(two_suites.root), "--out", str(tmp_path / "board")]) == 0
    assert "1.00  CLEAR  (atari: c, d, 5 seeds)" in capsys.readouterr().out


def test_one_seed_is_told_as_one(make_run, tmp_path, capsys):
    make_run("clear", 0)
    assert main(["leaderboard", str(make_run.root), "--out", str(tmp_path / "board")]) == 0
    assert ", 1 seed)" in capsys.readouterr().out


def test_runs_of_probes_alone_rank_nobody(make_run):
    segments = [(["a"], 100), (["p"], 100)]
    make_run("clear", 0, segments=segments, protocol="probe", probe_position=1, probe_task="p")
    with pytest.raises(ReportError, match="nothing to rank"):
        entries([make_run.root])
