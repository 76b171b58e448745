"""Results that ship: the report of an experiment, taken into docs/results with how it was obtained.

    python tools/publish_results.py OUT NAME COMMIT [SEEDS]    after clearl reproduce NAME --out OUT [--seeds SEEDS]
    python tools/publish_results.py OUT FILE.yaml COMMIT [ARM] after clearl sweep FILE.yaml --out OUT

Nothing is written by hand. Of a sweep, the comment at the top of the file says what it asks; with ARM the other arms
are compared with that one, paired by seed.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import paired_arms

from clearl.records.table import MetricsTable
from clearl.report.load import load_runs
from clearl.report.metrics import mean_return
from clearl.report.run import Run
from clearl.reproduce.catalog import EXPERIMENTS, planned_runs
from clearl.reproduce.planned import PlannedRun
from clearl.reproduce.runner import is_finished
from clearl.reproduce.sweep import load_sweep

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ("returns-by-arm", "cumulative-by-task", "cumulative-bars", "retention", "probe")


def publish(out: Path, name: str, commit: str, seeds: int | None) -> None:
    """Copy the reports of an experiment's sequences, and write the page that shows them.

    Sequences that were published before and have no report in `out` stay as they are.
    """
    target = ROOT / "docs" / "results" / name
    experiment = EXPERIMENTS[name]
    sections = published_sections(target / "README.md")
    for report in (out / "reports" / name).iterdir():
        shutil.rmtree(target / report.name, ignore_errors=True)
        command = f"$ clearl reproduce {name} --scale laptop --only {report.name}"
        lines = _sequence(out, _planned(name, report.name, seeds), report, target, report.name)
        sections[report.name] = [*lines, *_origin(command + (f" --seeds {seeds}" if seeds else ""), commit)]
    page = [f"# {name}: {experiment.paper}", "", f"{experiment.about[0].upper()}{experiment.about[1:]}.", ""]
    page += [line for title in sorted(sections, reverse=True) for line in sections[title]]
    (target / "README.md").write_text("\n".join(page), encoding="utf-8")


def published_sections(page: Path) -> dict[str, list[str]]:
    """Return the lines of each sequence on a page, by its name."""
    sections: dict[str, list[str]] = {}
    if page.exists():
        _, *parts = page.read_text(encoding="utf-8").split("\n## ")
        for part in parts:
            sections[part.partition("\n")[0]] = [*f"## {part}".rstrip("\n").split("\n"), ""]
    return sections


def _origin(command: str, commit: str) -> list[str]:
    return ["### How it was obtained", "", "```console", command, "```", "", f"Code: commit `{commit}`.", ""]


def publish_sweep(out: Path, file: Path, commit: str, arm: str | None) -> None:
    """Copy the report of a sweep, and write the page that shows it."""
    sweep, target = load_sweep(file), ROOT / "docs" / "results" / file.stem
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    lines = file.read_text(encoding="utf-8").splitlines()
    about = " ".join(line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines))
    page = [f"# {sweep.title}", "", about, ""]
    page += _sequence(out, list(sweep.runs), out / "reports" / file.stem, target, "What came out")
    if arm is not None:
        summary = json.loads((target / file.stem / "summary.json").read_text(encoding="utf-8"))
        measure = f"Cumulative score over that of {arm} with the same seed, mean of the tasks on the log scale."
        page += ["### Paired by seed", "", measure, "", paired_arms.table(summary, arm), ""]
    command = f"$ clearl sweep {file.parent.name}/{file.name} --out runs/evidence"
    page += _origin(command, commit)
    (target / "README.md").write_text("\n".join(page), encoding="utf-8")


def _planned(name: str, sequence: str, seeds: int | None) -> list[PlannedRun]:
    return [run for run in planned_runs(name, "laptop", seeds) if run.sequence == sequence]


def _sequence(out: Path, planned: list[PlannedRun], report: Path, target: Path, title: str) -> list[str]:
    summary = json.loads((report / "summary.json").read_text(encoding="utf-8"))
    check_complete(summary, _finished(out, planned), report)
    place = target / report.name
    for part in ("figures", "tables"):
        shutil.copytree(report / part, place / part, ignore=shutil.ignore_patterns("paper-*", "*.png"))
    for file in ("summary.json", "findings.json"):
        shutil.copy(report / file, place / file)
    findings = json.loads((report / "findings.json").read_text(encoding="utf-8"))
    lines = [f"## {title}", "", f"{summary['headline']}", "", _effort(out, planned), ""]
    notes = [note.replace(f"{out.absolute()}/", "") for note in summary["notes"]]  # no path of this machine
    lines += [*(f"- {note}" for note in notes), ""] if notes else []
    for figure in FIGURES:
        if (report / "figures" / f"{figure}.svg").exists():
            lines += [f"![{figure}]({report.name}/figures/{figure}.svg)", ""]
    for table in ("cumulative", "kept", "final", "success"):
        path = report / "tables" / f"{table}.md"
        if path.exists():  # a task that stands alone is never away, and so there is nothing to keep
            lines += [f"### {table.capitalize()}", "", path.read_text(encoding="utf-8"), ""]
    return [*lines, *_by_cycle(out, planned), *_findings(findings)]


def check_complete(summary: Mapping[str, Any], finished: Sequence[PlannedRun], report: Path) -> None:
    """End with a message if more runs have finished than the report was made of."""
    reported = sum(len(content["seeds"]) for content in summary["arms"].values())
    if reported < len(finished):
        remedy = "give the command that made it again"
        sys.exit(f"{report} was made of {reported} runs, and {len(finished)} have finished since; {remedy}")


def _finished(out: Path, planned: list[PlannedRun]) -> list[PlannedRun]:
    return [run for run in planned if is_finished(out / run.path)]


def _by_cycle(out: Path, planned: list[PlannedRun]) -> list[str]:
    """Return the mean return over all tasks within each cycle: it shows whether arms converge."""
    done = _finished(out, planned)
    if not done or done[0].config.protocol == "probe":
        return []
    cycles = done[0].config.cycles
    lines = ["### Mean return by cycle", "", "The mean over tasks of the evaluated return within each cycle, with the "]
    lines[-1] += "standard deviation over seeds."
    lines += ["", f"| arm | {' | '.join(f'cycle {k + 1}' for k in range(cycles))} |", "|---" * (cycles + 1) + "|"]
    for arm in dict.fromkeys(run.arm for run in done):
        runs = [load_runs([out / run.path])[0] for run in done if run.arm == arm]
        cells = []
        for k in range(cycles):
            means = [_over_tasks(run, k / cycles, (k + 1) / cycles) for run in runs]
            cells.append(f"{np.mean(means):.2f} ± {np.std(means):.2f}")
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    return [*lines, ""]


def _over_tasks(run: Run, start: float, end: float) -> float:
    """Return the mean over tasks of the evaluated return between two shares of a run."""
    means = [mean_return(run, task, start * run.end_frames, end * run.end_frames) for task in sorted(run.curves)]
    return float(np.mean([mean for mean in means if mean is not None]))


def _effort(out: Path, planned: list[PlannedRun]) -> str:
    done = _finished(out, planned)
    hours = sum(_wall_s(out / run.path) for run in done) / 3600
    seeds = sorted({run.config.seed for run in done})
    config = planned[0].config
    return (
        f"Tasks {', '.join(config.tasks) or config.suite}; {config.cycles} cycle{'s' * (config.cycles > 1)} of "
        f"{config.frames_per_visit:,} frames a visit. {len(done)} of {len(planned)} planned runs, seeds "
        f"{', '.join(map(str, seeds))}; {hours:.2g} hours of wall time summed over runs."
    )


def _wall_s(run: Path) -> float:
    """Return the seconds that a run took; not every row has them."""
    return max(float(seconds) for seconds in MetricsTable.read(run)["wall_s"] if seconds is not None)


def _findings(findings: list[dict]) -> list[str]:
    decided = [finding for finding in findings if finding.get("effect") is not None]
    if not decided:
        return []
    lines = ["### Findings", "", "| claim | effect | interval | verdict |", "|---|---|---|---|"]
    for finding in decided:
        effect = finding["effect"]
        interval = "" if effect["low"] is None else f"{effect['low']:.2f} to {effect['high']:.2f}"
        lines.append(f"| {finding['claim']} | {effect['value']:.2f} | {interval} | {finding['verdict']} |")
    return [*lines, ""]


if __name__ == "__main__":
    if sys.argv[2].endswith(".yaml"):
        publish_sweep(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else None)
    else:
        publish(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else None)
