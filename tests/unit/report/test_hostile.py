"""Files and names of any content: a report, or one line that says what is wrong. Nothing hangs."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from clearl.errors import ReportError
from clearl.records.names import clean_name
from clearl.records.schema import METRICS_FILE
from clearl.report import headline, make_leaderboard, make_report, summarise_runs, summary_table
from clearl.report.markup import csv_text, latex, markdown, shell_line

NAMES = [
    "a$x_{$b", "$\\frac{1}$", "[/b]", "[bold]x", "<script>alert(1)</script>", "a\nb | c", "=cmd()|'x'!A1", "^~\\{}%&#_",
    "x" * 100_000, "\ud800", "\u202eevil", "名前", "\x1b[31mred", "`rm`", "![x](http://x)", "",
]  # fmt: skip


def _edit_meta(path: Path, **changes: Any) -> None:
    meta = json.loads((path / "meta.json").read_text())
    meta.pop("crc", None)
    (path / "meta.json").write_text(json.dumps({**meta, **changes}))


def _add_row(path: Path, text: str) -> None:
    with open(path / METRICS_FILE, "a") as file:
        file.write(text + "\n")


def _rename(path: Path, name: str) -> None:
    """Give the run's first task and its arm another name, as a file that somebody made would have it."""
    rows = []
    for line in (path / METRICS_FILE).read_text().splitlines():
        row = json.loads(line)
        row.pop("crc")
        if row.get("task") == "a":
            row["task"] = name
        if "tasks" in row:
            row["tasks"] = [name if task == "a" else task for task in row["tasks"]]
        rows.append(json.dumps(row))
    (path / METRICS_FILE).write_text("\n".join(rows) + "\n")
    _edit_meta(path, arm=name)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_name_of_any_content_gives_a_whole_report(make_run, tmp_path, name):
    for seed in range(2):
        _rename(make_run("x", seed, evals_per_visit=2), name)
    summary = make_report([make_run.root], tmp_path / "report")
    console = Console(width=80, file=io.StringIO())
    console.print(summary_table(summary))
    console.print(headline(summary), markup=False)
    html = (tmp_path / "report" / "index.html").read_text()
    assert "<script" not in html and "\x1b" not in html
    table = (tmp_path / "report" / "tables" / "cumulative.md").read_text()
    assert "<script" not in table.replace("\\<", "") and len(table.splitlines()) == 5
    (head, row) = list(csv.reader(io.StringIO((tmp_path / "report" / "tables" / "cumulative.csv").read_text())))
    assert len(head) == len(row) and not any(cell[:1] in "=+@" and cell for cell in head)


@pytest.mark.parametrize(
    "row",
    [
        '{"v":1,"kind":"eval","task":"a","frames":1e400,"return":1.0,"episodes":1,"updates":1,"wall_s":0}',
        '{"v":1,"kind":"eval","task":"a","frames":10,"return":1e400,"episodes":1,"updates":1,"wall_s":0}',
        f'{{"v":1,"kind":"eval","task":"a","frames":{10**400},"return":1.0,"episodes":1,"updates":1,"wall_s":0}}',
        '{"v":1,"kind":"eval","task":"a","frames":-5,"return":1.0,"episodes":1,"updates":1,"wall_s":0}',
        '{"v":1,"kind":"eval","task":"a","frames":5,"return":1,"episodes":1,"updates":1,"wall_s":0,"switch":true,"segment":"x"}',
        '{"v":1,"kind":"segment","index":"x","tasks":["a"],"start_frames":0,"end_frames":10}',
        '{"v":1,"kind":"segment","index":0,"tasks":["a"],"start_frames":0,"end_frames":10,"weights":["x"]}',
        '{"v":1,"kind":"segment","index":0,"tasks":["a"],"start_frames":0,"end_frames":10,"weights":[0]}',
        '{"v":1,"kind":"eval","task":"a","frames":5,"return":1,"episodes":1,"updates":1,"wall_s":0,"success_rate":"x"}',
    ],
)  # fmt: skip
def test_a_row_of_odd_content_is_left_out_and_counted(make_run, row):
    path = make_run("clear", 0)
    _add_row(path, row)
    summary = summarise_runs([path])
    assert any("1 damaged rows were left out" in note for note in summary.notes)
    assert summary.arms["clear"].tasks["a"]["final"].mean == 1.0


@pytest.mark.parametrize(
    "change",
    [
        {"seed": "x"}, {"seed": [1]}, {"seed": 1.5}, {"frames_scale": "two"}, {"frames_scale": 0},
        {"probe_position": "x"}, {"frames_scale": 1e300},
    ],
    ids=str,
)  # fmt: skip
def test_meta_data_that_the_report_computes_with_must_be_numbers(make_run, change):
    path = make_run("clear", 0)
    _edit_meta(path, **change)
    with pytest.raises(ReportError, match=rf"meta\.json has {next(iter(change))} ="):
        summarise_runs([path])


@pytest.mark.parametrize(
    "change",
    [
        {"versions": [1]}, {"machine": "x"}, {"argv": {"a": 1}}, {"argv": ["run\nrm -rf x"]}, {"plan": 3},
        {"plan": {"segments": [{"tasks": 3}]}}, {"status": ["x"]}, {"suite": {"x": 1}}, {"method": ["x"]},
        {"needs_boundaries": "yes"}, {"clearl": ["\ud800"]}, {"protocol": 3},
    ],
    ids=str,
)  # fmt: skip
def test_other_meta_data_may_be_anything(make_run, tmp_path, change):
    path = make_run(None, 0, evals_per_visit=2)
    _edit_meta(path, **change)
    make_report([path], tmp_path / "report")
    html = (tmp_path / "report" / "index.html").read_text()
    assert "rm -rf" not in html


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "a: " + "9" * 5000, "- 1", "a: &x [1]\nb: *x", "a: !!python/object:os.system {}", "\x00",
     "a: \ud800", "replay_fraction: [1]\nbuffer_share: x\npolicy_cloning_weight: {}\nseed: x\nprobe_task: [1]"],
    ids=range(8),
)  # fmt: skip
def test_a_config_of_any_content_is_read_or_noted(make_run, tmp_path, text):
    path = make_run(None, 0, evals_per_visit=2)
    (path / "config.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    summary = make_report([path], tmp_path / "report")
    assert "config.yaml cannot be read" in " ".join(summary.notes) or summary.arms


@pytest.mark.parametrize("name", ["meta.json", "metrics.jsonl", "config.yaml"])
@pytest.mark.parametrize("kind", ["fifo", "zero", "directory"])
def test_what_is_no_regular_file_is_refused_without_being_read(make_run, name, kind):
    path = make_run("clear", 0)
    (path / name).unlink()
    if kind == "fifo":
        os.mkfifo(path / name)
    elif kind == "zero":
        (path / name).symlink_to("/dev/zero")
    else:
        (path / name).mkdir()
    with pytest.raises(ReportError, match=f"{name} is not a regular file"):
        summarise_runs([path])


@pytest.mark.parametrize("kind", ["fifo", "zero", "directory"])
def test_a_closed_part_that_is_no_regular_file_is_left_out_and_counted(make_run, monkeypatch, kind):
    monkeypatch.setattr("clearl.records.writer.PART_NBYTES", 1000)
    path = make_run("clear", 0)
    first, *others = sorted(path.glob("metrics-*.jsonl.zst"))
    assert others
    first.unlink()
    if kind == "fifo":
        os.mkfifo(first)
    elif kind == "zero":
        first.symlink_to("/dev/zero")
    else:
        first.mkdir()
    summary = summarise_runs([path])
    assert any("1 damaged rows were left out" in note for note in summary.notes)
    assert summary.arms["clear"].tasks["a"]["final"].mean == 1.0


def test_runs_below_a_directory_whose_name_is_no_utf_8(make_run, tmp_path):
    make_run("clear", 0, evals_per_visit=2)
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/runs-\xff"))
    make_run.root.rename(odd)
    make_report([odd], odd / "report")
    assert json.loads((odd / "report" / "summary.json").read_text())["arms"]["clear"]
    assert "runs-\\udcff" in (odd / "report" / "index.html").read_text()
    make_leaderboard([odd], odd / "board", command=str(odd))
    assert "</html>" in (odd / "board" / "index.html").read_text()


def test_a_file_that_is_too_large_is_refused(make_run):
    path = make_run("clear", 0)
    os.truncate(path / "config.yaml", 2 << 20)
    with pytest.raises(ReportError, match=r"config\.yaml has 2,097,152 bytes; the report reads at most 1,048,576"):
        summarise_runs([path])


def test_markup_is_inert():
    assert latex("^~\\{<") == r"\textasciicircum{}\textasciitilde{}\textbackslash{}\{\textless{}"
    assert markdown("<b>*x*</b> | [y](z) `q` &lt; space_invaders P&C _z_") == (
        r"\<b\>\*x\*\</b\> \| \[y\](z) \`q\` \&lt; space_invaders P&C \_z\_"
    )
    assert csv_text("=1+1") == "'=1+1" and csv_text("-x") == "'-x" and csv_text("a=1") == "a=1"
    assert shell_line(["run", "--out", "a b; rm x"]) == "clearl run --out 'a b; rm x'"
    assert shell_line(["run\nrm"]) is None and shell_line("run") is None and shell_line([1]) is None


def test_names_are_cut_but_stay_apart():
    first, second = clean_name("x" * 200 + "a"), clean_name("x" * 200 + "b")
    assert first != second and len(first) < 110
    assert clean_name("a\nb").startswith("a?b") and clean_name("plain name") == "plain name"
    assert clean_name("a\nb") != clean_name("a\tb")
