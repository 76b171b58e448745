"""Tables say the same in Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io

import pytest

from clearl.report import summarise_runs
from clearl.report.markup import latex
from clearl.report.paper import ATARI, DMLAB
from clearl.report.tables import MEASURES, all_tables, measure_table, paper_table, write_tables


@pytest.fixture
def summary(make_run):
    for seed in range(2):
        make_run("simultaneous", seed, protocol="simultaneous", returns=lambda task, share: 9.0)
        make_run("sequential", seed, returns=lambda task, share, seed=seed: 4.0 + seed)
        make_run("ewc", seed, returns=lambda task, share: {"a": 8.0, "b": 3.0}[task], needs_boundaries=True)
    return summarise_runs([make_run.root])


def _table(summary, key: str):
    table = measure_table(summary, next(measure for measure in MEASURES if measure.key == key))
    assert table is not None
    return table


def test_rows_are_arms_and_columns_are_tasks(summary):
    table = _table(summary, "cumulative")
    assert table.head == ["arm", "boundaries", "a", "b"]
    assert table.rows == [
        ["Simultaneous", "none", "9.00 ± 0.00", "9.00 ± 0.00"],
        ["Baseline (sequential)", "none", "4.50 ± 0.71", "4.50 ± 0.71"],
        ["EWC", "known", "8.00 ± 0.00", "3.00 ± 0.00"],
    ]


def test_the_best_is_sought_among_those_that_could_forget(summary):
    assert _table(summary, "cumulative").bold == [[False, False], [False, True], [True, False]]


def test_less_forgetting_is_better(make_run, learner):
    for arm, keeps in (("sequential", 0.3), ("clear", 0.9)):
        make_run(arm, 0, returns=learner(("a", "b"), 2, keeps=keeps))
    assert _table(summarise_runs([make_run.root]), "forgetting").bold == [[False, False], [True, True]]


def test_nobody_is_best_alone(make_run):
    make_run("clear", 0)
    assert _table(summarise_runs([make_run.root]), "cumulative").bold == [[False, False]]


def test_markdown(summary):
    lines = _table(summary, "cumulative").to_markdown().splitlines()
    assert lines[0].startswith("**Cumulative score**: the mean return over all of training")
    assert lines[2:4] == ["| arm | boundaries | a | b |", "| --- | --- | ---: | ---: |"]
    assert lines[-1] == "| EWC | known | **8.00 ± 0.00** | 3.00 ± 0.00 |"


def test_csv_holds_exact_numbers(summary):
    rows = list(csv.DictReader(io.StringIO(_table(summary, "cumulative").to_csv())))
    assert rows[1]["arm"] == "Baseline (sequential)"
    assert float(rows[1]["a mean"]) == 4.5 and float(rows[1]["a std"]) == pytest.approx(0.5**0.5)
    kept = list(csv.DictReader(io.StringIO(_table(summary, "kept").to_csv())))
    assert kept[0]["a mean"] == ""  # never away


def test_latex_is_escaped_and_marks_the_best(summary):
    text = _table(summary, "cumulative").to_latex()
    assert r"EWC & known & \textbf{8.00 $\pm$ 0.00} & 3.00 $\pm$ 0.00 \\" in text
    assert latex("CLEAR 100 % & space_invaders −1 –") == r"CLEAR 100 \% \& space\_invaders $-$1 --"


def test_the_interquartile_mean_stands_beside_from_three_seeds_on(make_run):
    for seed in range(3):
        make_run("clear", seed, returns=lambda task, share, seed=seed: (2.0 + 0.1 * seed) * (share > 0))
    table = _table(summarise_runs([make_run.root]), "cumulative")
    assert table.head[-1] == "IQM" and table.rows[0][-1] == "1.00 [0.88, 1.12]"


def test_the_papers_tables_are_marked_unless_the_suite_is_the_same():
    table = paper_table(DMLAB, "minatar")
    assert "another suite" in table.note and table.rows[3] == [
        "CLEAR (50-50 new-replay)",
        "none",
        "31.40",
        "8.00",
        "18.13",
    ]
    assert "another suite" not in paper_table(ATARI, "atari").note
    # The paper's own bold: the best of those that could forget.
    assert [row for row, bold in zip(table.labels, table.bold, strict=True) if bold[0]] == ["CLEAR (50-50 new-replay)"]


def test_the_papers_tables_stand_in_reports_of_its_experiments_or_its_suites_only(make_run):
    make_run("clear", 0)
    own = summarise_runs([make_run.root])
    assert not [table for table in all_tables(own) if table.name.startswith("paper-")]
    assert [table.name for table in all_tables(own, paper=True)][-2:] == ["paper-dmlab", "paper-atari"]
    make_run("clear", 0, suite="atari", name="x/atari")
    atari = summarise_runs([make_run.root / "x"])
    assert [table.name for table in all_tables(atari)][-1] == "paper-atari"


def test_what_the_seeds_cannot_tell_from_the_best_is_as_good(make_run):
    for arm, spread, level in (("sequential", 0.0, 2.0), ("clear", 1.0, 5.0), ("clear-75-25", 1.0, 5.2)):
        for seed in range(4):
            value = level + spread * (seed - 1.5)
            make_run(arm, seed, returns=lambda task, share, value=value: value)
    table = _table(summarise_runs([make_run.root]), "cumulative")
    assert table.bold == [[False, False], [True, True], [True, True]]


def test_the_oracle_has_a_row_of_its_own(make_run):
    make_run("simultaneous", 0, protocol="simultaneous", cycles=1, returns=lambda task, share: 10 * share)
    make_run("clear", 0, cycles=1, returns=lambda task, share: 4.0 * (share > 0))
    (table, *_) = all_tables(summarise_runs([make_run.root]))
    assert table.rows[-1][:2] == ["Oracle on this schedule", "–"]
    assert [float(cell) for cell in table.rows[-1][2:]] == pytest.approx([7.5, 2.5], abs=0.02)
    assert "learns as Simultaneous does and forgets nothing" in table.note and "Oracle" in table.to_csv()


def test_a_measure_that_no_arm_has_gives_no_table(make_run):
    make_run("simultaneous", 0, protocol="simultaneous")
    summary = summarise_runs([make_run.root])
    assert [table.name for table in all_tables(summary)] == ["cumulative", "final"]


def test_every_table_is_written_three_times(summary, tmp_path):
    write_tables(all_tables(summary, paper=True), tmp_path / "tables")
    names = {path.name for path in (tmp_path / "tables").iterdir()}
    assert {"cumulative.md", "cumulative.csv", "cumulative.tex", "paper-dmlab.tex", "kept.csv"} <= names
