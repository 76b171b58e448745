"""The demo trains both arms, prints what it saw, and survives Ctrl-C with a report."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clearl.cli.demo import DemoArgs, arms
from clearl.cli.main import INTERRUPTED, main
from clearl.cli.showing import NOTES_SHOWN
from clearl.config import diff, from_yaml

TINY = ["--fast", "--runtime", "inline", "--frames-per-visit", "1_280", "--quiet"]


def test_demo_trains_both_arms_on_one_sequence_and_says_what_it_saw(tmp_path: Path, capsys):
    out, report = tmp_path / "runs", tmp_path / "report"
    assert main(["demo", *TINY, "--seed", "3", "--out", str(out), "--report", str(report)]) == 0
    configs = [from_yaml((path / "config.yaml").read_text()) for path in sorted(out.iterdir())]
    assert [(config.method, config.seed, config.cycles) for config in configs] == [("clear", 3, 2), ("baseline", 3, 2)]
    assert {config.tasks for config in configs} == {("breakout", "breakout@1", "breakout@2")}
    summary = json.loads((report / "summary.json").read_text())
    assert sorted(summary["arms"]) == ["clear", "sequential"]
    shown = capsys.readouterr().out
    for word in ("CLEAR", "Baseline", "breakout@2", "cumulative", "forgetting", str(report / "index.html")):
        assert word in shown
    assert summary["headline"].split()[0] in shown.split("forgetting")[-1], "the sentence stands below the table"
    assert (report / "index.html").stat().st_size > 1000


@pytest.mark.parametrize("fast", [False, True])
def test_the_arms_differ_by_the_method_alone(fast: bool):
    clear, baseline = (arms(DemoArgs(fast=fast))[name] for name in ("clear", "sequential"))
    assert {*diff(clear, baseline)} == {"method"}
    assert fast or clear.pairs == "both", "visits of two games are short: all that is new is learnt from"


def test_ctrl_c_leaves_a_run_that_goes_on_and_a_report(tmp_path: Path):
    command = [sys.executable, "-m", "clearl", "demo", "--fast", "--runtime", "inline", "--out", "runs"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            if "segment" in line and len(seen) == 2:
                process.send_signal(signal.SIGINT)
        assert process.wait() == INTERRUPTED, "".join(seen)
    assert "the same command resumes" in seen[-1]
    meta = json.loads((tmp_path / "runs" / "sequential-seed-0" / "meta.json").read_text())
    assert meta["status"] == "interrupted"
    assert not (tmp_path / "runs" / "clear-seed-0").exists()
    assert (tmp_path / "report" / "index.html").is_file()


def test_report_prints_its_table_and_sentence(make_run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs = [make_run("sequential", returns=lambda task, share: share), make_run("clear")]
    out = tmp_path / "report"
    assert main(["report", *map(str, runs), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "cumulative" in shown and "CLEAR" in shown
    headline = json.loads((out / "summary.json").read_text())["headline"]
    assert " ".join(headline.split()) in " ".join(shown.split())
    assert main(["report", str(tmp_path / "gone")]) == 2


def test_report_tells_its_notes_below_the_table(make_run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs = [make_run("sequential", cycles=3), make_run("clear", cycles=2)]
    for seed in range(1, NOTES_SHOWN + 1):
        runs.append(make_run("clear", seed, cycles=2))
        (runs[-1] / "config.yaml").unlink()
    assert main(["report", *map(str, runs), "--out", str(tmp_path / "report")]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert "different lengths" in notes[0] and str(runs[0]) in notes[0] and len(notes) == NOTES_SHOWN + 1
    assert notes[-1].endswith("more on the page")
