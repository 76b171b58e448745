"""The whole report, from run directories to files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from clearl.errors import ReportError
from clearl.records import MetricsWriter, eval_row
from clearl.report import headline, make_report, summarise_runs, summary_table

FIGURES = (
    "returns-by-arm", "returns-by-task", "cumulative-by-arm", "cumulative-by-task", "cumulative-bars", "retention",
)  # fmt: skip


def _two_arms(make_run, learner, seeds: int = 1, **options):
    for seed in range(seeds):
        for arm, keeps in (("sequential", 0.2), ("clear", 0.98)):
            make_run(arm, seed, returns=learner(("a", "b"), 2, keeps=keeps, noise=0.1, seed=seed), **options)


@pytest.fixture(scope="module")
def report(run_factory, learner, tmp_path_factory):
    top = tmp_path_factory.mktemp("report")
    _two_arms(run_factory(top / "runs"), learner)
    return make_report([top / "runs"], top / "report", title="A <demo> & more", paper=True), top / "report"


class _Outline(HTMLParser):
    """Collects ids and addresses, and checks that every element is closed."""

    VOID = frozenset({"meta", "link", "wbr", "br", "img"})

    def __init__(self) -> None:
        super().__init__()
        self.open, self.ids, self.targets = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        values = dict(attrs)
        self.ids += [values["id"]] if "id" in values else []
        self.targets += [values[key] for key in ("href", "src", "xlink:href") if key in values]

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_every_file_is_there(report):
    _, out = report
    for name in FIGURES:
        assert (out / "figures" / f"{name}.svg").read_text().startswith("<?xml")
        assert (out / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "tables" / "cumulative.md").exists() and (out / "index.html").exists()
    assert len(json.loads((out / "findings.json").read_text())) == 14


def test_summary_json_has_the_fixed_form(report):
    summary, out = report
    data = json.loads((out / "summary.json").read_text())
    assert data == json.loads(json.dumps(summary.to_json()))
    assert list(data["arms"]) == ["sequential", "clear"]
    for arm in data["arms"].values():
        assert arm["seeds"] == [0]
        for task in ("a", "b"):
            for measure in ("cumulative", "final", "forgetting"):
                assert set(arm["tasks"][task][measure]) == {"mean", "std", "per_seed"}


def test_the_page_is_well_formed_and_asks_nobody_for_anything(report):
    _, out = report
    html = (out / "index.html").read_text()
    outline = _Outline()
    outline.feed(html)
    assert outline.open == [] and len(outline.ids) == len(set(outline.ids))
    local = {target for target in outline.targets if not target.startswith(("#", "data:"))}
    assert all((out / target).exists() for target in local), local
    assert {target[1:] for target in outline.targets if target.startswith("#")} <= set(outline.ids)
    assert "<script" not in html and not re.search(r"url\((?!#)", html) and "@import" not in html
    assert "A &lt;demo&gt; &amp; more" in html and "<demo>" not in html


def test_the_page_says_how_far_its_intervals_can_be_trusted(report):
    _, out = report
    html = (out / "index.html").read_text()
    assert "Fewer than 5 seeds decide nothing" in html and "corrected for the number of claims" in html


def test_the_page_says_what_was_seen(report):
    summary, out = report
    html = (out / "index.html").read_text()
    assert headline(summary) in html and "kept" in headline(summary)
    assert html.count("<svg") >= len(FIGURES) and "var(--ink)" in html
    assert "clearl report" in html and "learning_rate" in html


def test_the_same_runs_give_the_same_bytes_also_over_an_older_report(make_run, learner, tmp_path):
    _two_arms(make_run, learner, seeds=3)
    seen = []
    for _ in range(2):
        make_report([make_run.root], tmp_path / "report")
        files = sorted(path for path in (tmp_path / "report").rglob("*") if path.is_file())
        seen.append({path.name: path.read_bytes() for path in files})
    assert len(seen[0]) > 30 and seen[0] == seen[1]


def test_runs_that_recorded_nothing_still_give_a_report(make_run, tmp_path):
    (make_run("clear", 0, status="running") / "metrics.jsonl").write_bytes(b"")
    summary = make_report([make_run.root], tmp_path / "report")
    html = (tmp_path / "report" / "index.html").read_text()
    assert headline(summary) == "No evaluation has been recorded yet."
    assert "Nothing has been evaluated yet" in html and "CLEAR, seed 0: nothing has been evaluated yet." in html


def test_a_finished_run_that_lost_its_rows_still_gives_a_report(make_run, tmp_path):
    (make_run("clear", 0) / "metrics.jsonl").write_bytes(b"")
    assert headline(make_report([make_run.root], tmp_path / "report")) == "No evaluation has been recorded yet."


def test_tasks_without_a_positive_return_give_a_report(make_run, tmp_path):
    for seed in range(3):
        make_run("clear", seed, returns=lambda task, share: -500.0 + 10 * share)
    summary = make_report([make_run.root], tmp_path / "report")
    assert summary.arms["clear"].tasks["a"]["final"].mean == pytest.approx(-490.0)


def test_a_run_with_one_evaluation_at_its_start_gives_a_report(make_run, tmp_path):
    make_run("clear", 0, until=0.0, status="running")
    make_report([make_run.root], tmp_path / "report")
    assert (tmp_path / "report" / "index.html").exists()


def test_a_run_that_was_stopped_early_is_reported_and_marked(make_run, learner, tmp_path):
    make_run("sequential", 0, returns=learner(("a", "b"), 2, keeps=0.2))
    make_run("clear", 0, returns=learner(("a", "b"), 2, keeps=0.9), until=0.6, status="interrupted")
    summary = make_report([make_run.root], tmp_path / "report")
    assert "not finished, measured at 60%" in (tmp_path / "report" / "index.html").read_text()
    assert "CLEAR" in headline(summary)


def test_tasks_of_very_different_scale_get_rows_of_their_own(make_run, tmp_path):
    make_run("clear", 0, returns=lambda task, share: {"a": 5.0, "b": 500.0}[task] * share)
    make_report([make_run.root], tmp_path / "report")
    assert (tmp_path / "report" / "figures" / "returns-by-arm.svg").exists()


def test_probes_have_a_figure_of_their_own(make_run, tmp_path):
    for arm, slope in (("clear", 0.0), ("clear-100-replay", -1.0)):
        for position in (0, 2):
            segments = [(["a"], 100), (["b"], 100)]
            segments.insert(position, (["p"], 100))
            make_run(
                arm, 0, segments=segments, protocol="probe", probe_position=position, probe_task="p",
                returns=lambda task, share, value=5 + slope * position: value, name=f"{arm}{position}",
            )  # fmt: skip
    summary = make_report([make_run.root], tmp_path / "report")
    assert (tmp_path / "report" / "figures" / "probe.svg").exists()
    assert headline(summary) == (
        "From its first to its last position, the return on the probe changed by +0 % with CLEAR, −50 % with CLEAR "
        "100 % replay (of its mean over all)."
    )
    arm = summary.to_json()["arms"]["clear-100-replay (probe at 2)"]
    assert arm["probe_position"] == 2 and arm["probe_mean"]["per_seed"] == [3.0]


def test_the_terminal_table_has_a_row_for_every_arm_and_task(report):
    summary, _ = report
    console = Console(width=120, record=True, file=None, quiet=False, color_system=None)
    with console.capture() as capture:
        console.print(summary_table(summary))
    text = capture.get()
    assert text.count("Baseline (sequential)") == 1 and text.count("CLEAR") == 1
    assert len([line for line in text.splitlines() if "%" in line]) == 4


def test_the_terminal_table_loses_no_name_at_80_columns(make_run):
    tasks = [f"MiniGrid-Empty-Random-{size}x{size}-with-a-long-name-v0" for size in (5, 6)]
    for seed in range(2):
        make_run("clear", seed, tasks=tasks, returns=lambda task, share, seed=seed: 1234.5 + 100 * seed)
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(summary_table(summarise_runs([make_run.root])))
    text = capture.get()
    assert max(map(len, text.splitlines())) <= 80 and "…" not in text
    (head,) = [line for line in text.splitlines() if "cumulative" in line]
    first_column = "".join(line[: head.index("cumulative")].strip() for line in text.splitlines())
    assert all(task in first_column for task in tasks)


def test_a_page_of_somebody_else_is_left_alone(make_run, tmp_path):
    make_run("clear", 0)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("<h1>my home page</h1>")
    with pytest.raises(ReportError, match=r"index\.html is there and no report of clearl; give another --out"):
        make_report([make_run.root], tmp_path / "site")
    assert (tmp_path / "site" / "index.html").read_text() == "<h1>my home page</h1>"


def test_own_runs_have_neither_the_papers_tables_nor_its_claims(make_run, tmp_path):
    make_run("mine", 0)
    make_report([make_run.root], tmp_path / "report")
    html = (tmp_path / "report" / "index.html").read_text()
    assert "Rolnick" not in html and "Findings" not in html and "DMLab" not in html


def test_the_number_of_seeds_is_told_as_it_is(make_run, tmp_path):
    for seed in range(2):
        make_run("clear", seed)
    make_run("sequential", 0)
    make_report([make_run.root], tmp_path / "report")
    assert "<b>1 to 2</b>seeds each" in (tmp_path / "report" / "index.html").read_text()


def test_runs_of_version_0_1_are_reported(tmp_path):
    """Two runs of different lengths, one of them interrupted, both without evaluations at their switches."""
    old = Path(__file__).parents[2] / "data" / "version-0.1"
    summary = make_report([old], tmp_path / "report")
    notes = " ".join(summary.notes)
    assert "which are not switch evaluations" in notes and "different lengths" in notes and "not finished" in notes
    assert str(old / "finished") in notes
    finished = make_report([old / "finished"], tmp_path / "other").arms["clear"].tasks
    assert finished["CartPole-v1"]["kept"].mean is not None and finished["Acrobot-v1"]["final"].mean == -60.0


def test_out_must_be_a_directory(make_run, tmp_path):
    make_run("clear", 0)
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match="is a file"):
        make_report([make_run.root], tmp_path / "file")


def test_neither_torch_nor_matplotlib_is_imported_before_it_is_needed():
    code = (
        "import sys, clearl.report; print([name for name in ('torch', 'matplotlib', 'scipy') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": "src"}
    )
    assert result.stdout.strip() == "[]"


def test_sixty_tasks_make_a_small_report(make_run, tmp_path):
    tasks = [f"MiniGrid-DoorKey-{size}x{size}-v0" for size in range(60)]
    for arm in ("sequential", "clear"):
        make_run(arm, 0, tasks=tasks, cycles=1, evals_per_visit=1, returns=lambda task, share: share)
    make_report([make_run.root], tmp_path / "report")
    figures = {path.stem for path in (tmp_path / "report" / "figures").iterdir()}
    assert figures == {"cumulative-bars", "retention"}
    assert sum(path.stat().st_size for path in (tmp_path / "report").rglob("*") if path.is_file()) < 4_000_000


def test_ten_thousand_switches_take_seconds(make_run, tmp_path):
    segments = [([task], 10) for _ in range(5000) for task in ("a", "b")]
    path = make_run("clear", 0, segments=segments, evals_per_visit=1, until=0.0, returns=lambda task, share: 1.0)
    with MetricsWriter(path) as writer:
        for frames in range(100, 100_001, 500):
            common = {"frames": frames, "episodes": 1, "updates": 0, "wall_s": 0.0}
            for task in ("a", "b"):
                writer.write(eval_row(task=task, mean_return=float(frames % 7), **common))
    before = time.process_time()
    summary = make_report([make_run.root], tmp_path / "report")
    assert time.process_time() - before < 10
    assert summary.to_json()["arms"]["clear"]["matrix"] is None


def test_sixty_runs_of_thousands_of_rows_take_seconds(make_run, learner, tmp_path):
    template = make_run("clear", 0, tasks=("a", "b", "c"), train_rows=3000, evals_per_visit=60)
    rows = (template / "metrics.jsonl").read_bytes()
    assert rows.count(b"\n") > 3900
    for arm in ("sequential", "simultaneous", "clear-75-25", "clear-no-cloning", "clear", "ewc"):
        for seed in range(10):
            if (arm, seed) != ("clear", 0):
                path = make_run(arm, seed, tasks=("a", "b", "c"), evals_per_visit=1)
                MetricsWriter(path, position=0).close()
                (path / "metrics.jsonl").write_bytes(rows)
    before = time.process_time()
    make_report([make_run.root], tmp_path / "report")
    assert time.process_time() - before < 10
