"""Arm x task tables like the paper's, as Markdown, CSV and LaTeX, and the paper's own beside them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clearl.report.arms import label
from clearl.report.composition import Shares, run_shares
from clearl.report.formatting import with_deviation, with_interval
from clearl.report.markup import csv_text, latex, markdown, pipes
from clearl.report.paper import TABLES, PaperTable
from clearl.report.stats import Stat, over_seeds
from clearl.report.summary import Summary

UPPER_BOUNDS = ("separate", "simultaneous")
"""Arms that cannot forget: they take no part in the contest for the best."""


@dataclass(frozen=True)
class Measure:
    """A measure as a table shows it."""

    key: str
    title: str
    meaning: str
    best: str
    """"high" or "low"."""


MEASURES = (
    Measure("cumulative", "Cumulative score", "the mean return over all of training, read at the end", "high"),
    Measure("final", "Final score", "the return evaluated at the end of training", "high"),
    Measure("success", "Success rate", "the share of evaluation episodes that reach the goal, at the end", "high"),
    Measure("forgetting", "Forgetting",
            "score at the end of a visit minus score at the end of the absence after it, mean over absences", "low"),
    Measure("kept", "Kept while away",
            "score at the end of an absence as a share of the score when the task was left, from the return of an "
            "untrained network on; absences weigh by what was learnt", "high"),
    Measure("area_lost", "Area lost while away",
            "share of the score when the task was left that was missing while it was away, mean over that time", "low"),
    Measure("backward_transfer", "Backward transfer", "final score minus score at the end of the first visit", "high"),
    Measure("recovery_frames", "Recovery",
            "frames after coming back to a task until its return is 90 % of what it was when the task was left", "low"),
    Measure("forward_transfer", "Forward transfer",
            "mean return over the first visit minus that of a separate network over as many frames", "high"),
    Measure("regret", "Regret to the task alone",
            "return of a network that saw the task alone, after as many frames of it, minus the return; mean over "
            "training", "low"),
    Measure("cw_performance", "Performance (Continual World)",
            "p at the end of training; p is the success rate, else the return from an untrained network's (0) to the "
            "reference's (1)", "high"),
    Measure("cw_forgetting", "Forgetting (Continual World)",
            "p at the end of the task's last visit minus p at the end of training", "low"),
    Measure("cw_forward_transfer", "Forward transfer (Continual World)",
            "(AUC - AUC alone) / (1 - AUC alone), AUC being the mean of p over the first visit", "high"),
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Cells as text, with the numbers behind them."""

    name: str
    title: str
    note: str
    tasks: list[str]
    labels: list[str]
    cells: list[list[str]]
    """[arms][tasks]"""
    bold: list[list[bool]]
    numbers: list[list[Stat | None]]
    boundaries: list[str]
    iqm: list[str] | None = None
    """Each arm's overall value, where it has one."""

    @property
    def head(self) -> list[str]:
        return ["arm", "boundaries", *self.tasks, *(["IQM"] if self.iqm else [])]

    @property
    def rows(self) -> list[list[str]]:
        """Every row as text, the best cells not marked."""
        ends = [[text] for text in self.iqm] if self.iqm else [[] for _ in self.labels]
        rows = zip(self.labels, self.boundaries, self.cells, ends, strict=True)
        return [[name, bounds, *cells, *end] for name, bounds, cells, end in rows]

    def to_markdown(self) -> str:
        rule = ["---", "---", *["---:"] * (len(self.head) - 2)]
        lines = [f"**{self.title}**: {self.note}", "", pipes([markdown(name) for name in self.head]), pipes(rule)]
        for row, bold in zip(self.rows, self.bold, strict=True):
            marked = [f"**{cell}**" if best else cell for cell, best in zip(row[2:], [*bold, False], strict=False)]
            lines.append(pipes([markdown(row[0]), row[1], *marked]))
        return "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """Numbers, not text: mean and deviation of every task in columns of their own."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        names = [csv_text(task) for task in self.tasks]
        writer.writerow(["arm", "boundaries", *(f"{name} {part}" for name in names for part in ("mean", "std"))])
        for name, bounds, stats in zip(self.labels, self.boundaries, self.numbers, strict=True):
            values = [value for stat in stats for value in ((stat.mean, stat.std) if stat else (None, None))]
            writer.writerow([csv_text(name), bounds, *("" if value is None else repr(value) for value in values)])
        return out.getvalue()

    def to_latex(self) -> str:
        """Write the table for LaTeX's `booktabs`."""
        lines = [f"% {self.title}: {self.note}", rf"\begin{{tabular}}{{ll{'r' * (len(self.head) - 2)}}}", r"\toprule"]
        lines += [" & ".join(map(latex, self.head)) + r" \\", r"\midrule"]
        for row, bold in zip(self.rows, self.bold, strict=True):
            flags = [False, False, *bold, False]
            cells = [
                rf"\textbf{{{latex(cell)}}}" if best else latex(cell) for cell, best in zip(row, flags, strict=False)
            ]
            lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def measure_table(summary: Summary, measure: Measure) -> Table | None:
    """Return the table of one measure; None where no arm has it."""
    names = list(summary.arms)
    stats = [[summary.arms[name].stat(task, measure.key) for task in summary.tasks] for name in names]
    if not any(stat is not None and stat.mean is not None for row in stats for stat in row):
        return None
    over = f"mean ± std over {seeds_text(summary)}" if max(seed_counts(summary)) > 1 else "one seed"
    has_iqm = measure.key == "cumulative" and any(arm.iqm for arm in summary.arms.values())
    return Table(
        name=measure.key,
        title=measure.title,
        note=f"{measure.meaning} ({over})",
        tasks=summary.tasks,
        labels=[label(name) for name in names],
        cells=[[with_deviation(stat) for stat in row] for row in stats],
        bold=_best(names, stats, measure.best),
        numbers=stats,
        boundaries=[summary.arms[name].boundaries for name in names],
        iqm=[with_interval(summary.arms[name].iqm) for name in names] if has_iqm else None,
    )


def replay_table(summary: Summary) -> Table | None:
    """Return the table of what the buffers hold at the end; None where no row tells of it."""
    found = {name: [s for run in arm.arm.runs if (s := run_shares(run))] for name, arm in summary.arms.items()}
    found = {name: runs for name, runs in found.items() if runs}
    if not found:
        return None
    tasks = list(dict.fromkeys(task for runs in found.values() for shares in runs for task in shares))
    stats = [[_last_share(runs, task) for task in tasks] for runs in found.values()]
    return Table(
        name="replay",
        title="Replay at the end",
        note="share of the unrolls in the replay buffer that is of each task, in per cent, at the last count",
        tasks=tasks,
        labels=[label(name) for name in found],
        cells=[[with_deviation(stat) for stat in row] for row in stats],
        bold=[[False] * len(tasks) for _ in found],
        numbers=[[*row] for row in stats],
        boundaries=[summary.arms[name].boundaries for name in found],
    )


def _last_share(runs: Sequence[Shares], task: str) -> Stat:
    return Stat(tuple(100 * float(shares[task].returns[-1]) if task in shares else 0.0 for shares in runs))


def with_oracle(table: Table, summary: Summary) -> Table:
    """Return the table of cumulative scores with one more row: what the schedule gives with no forgetting at all."""
    if not summary.oracle:
        return table
    stats = [Stat((summary.oracle[task],)) if task in summary.oracle else None for task in summary.tasks]
    share = summary.oracle_share
    return replace(
        table,
        note=f"{table.note}; the oracle learns as {label(summary.reference or '')} does and forgets nothing",
        labels=[*table.labels, "Oracle on this schedule"],
        cells=[*table.cells, [with_deviation(stat) for stat in stats]],
        bold=[*table.bold, [False] * len(stats)],
        numbers=[*table.numbers, stats],
        boundaries=[*table.boundaries, "–"],
        iqm=None if table.iqm is None else [*table.iqm, "–" if share is None else f"{share:.2f}"],
    )


def seed_counts(summary: Summary) -> list[int]:
    """Return the number of seeds of each arm."""
    return [len(arm.arm.runs) for arm in summary.arms.values()]


def seeds_text(summary: Summary) -> str:
    """Return how many seeds the arms have, in words."""
    low, high = min(seed_counts(summary)), max(seed_counts(summary))
    return f"{low} to {high} seeds" if low != high else f"{high} seed{'s' if high != 1 else ''}"


def paper_table(paper: PaperTable, suite: str | None) -> Table:
    """Return a table of the paper, marked as another suite unless the runs are on the same."""
    same = suite == paper.suite
    stats: list[list[Stat | None]] = [[Stat((score,)) for score in scores] for scores in paper.scores.values()]
    return Table(
        name=f"paper-{paper.suite}",
        title=f"{paper.title} (the paper)",
        note="cumulative score, mean over 3 runs" + ("" if same else "; another suite than the runs of this report"),
        tasks=list(paper.tasks),
        labels=[paper.names[name] for name in paper.scores],
        cells=[[f"{score:.2f}" for score in scores] for scores in paper.scores.values()],
        bold=_best(list(paper.scores), stats, "high"),
        numbers=stats,
        boundaries=["known" if name in ("ewc", "progress-compress") else "none" for name in paper.scores],
    )


def all_tables(summary: Summary, *, paper: bool = False) -> list[Table]:
    """Return the tables of all measures that the runs have; with `paper`, or on one of its suites, the paper's."""
    measured = [table for measure in MEASURES if (table := measure_table(summary, measure)) is not None]
    measured = [with_oracle(table, summary) if table.name == "cumulative" else table for table in measured]
    if (held := replay_table(summary)) is not None:
        measured.append(held)
    suite = suite_of(summary)
    return measured + [paper_table(table, suite) for table in TABLES if paper or table.suite == suite]


def suite_of(summary: Summary) -> str | None:
    """Return the suite that the runs are on."""
    suites = [run.meta.get("suite") for arm in summary.arms.values() for run in arm.arm.runs]
    return next((str(suite) for suite in suites if suite), None)


def write_tables(tables: Sequence[Table], out: Path) -> None:
    """Write each table as .md, .csv and .tex into the directory `out`."""
    out.mkdir(parents=True, exist_ok=True)
    for table in tables:
        for suffix, text in (("md", table.to_markdown()), ("csv", table.to_csv()), ("tex", table.to_latex())):
            (out / f"{table.name}.{suffix}").write_text(text, encoding="utf-8", errors="backslashreplace")


def _best(names: Sequence[str], stats: Sequence[Sequence[Stat | None]], which: str) -> list[list[bool]]:
    """Find on each task the best arm among those that could forget, and those that the seeds cannot tell from it."""
    bold = [[False] * len(row) for row in stats]
    for column in range(len(stats[0]) if stats else 0):
        known = {
            place: stat
            for place, name in enumerate(names)
            if name not in UPPER_BOUNDS and (stat := stats[place][column]) is not None and stat.mean is not None
        }
        if len(known) < 2:
            continue
        sign = -1.0 if which == "low" else 1.0
        top = max(sign * (stat.mean or 0.0) for stat in known.values())
        leaders = [stat for stat in known.values() if sign * (stat.mean or 0.0) == top]
        for place, stat in known.items():
            bold[place][column] = stat in leaders or not _differ(stat, leaders[0])
    return bold


def _differ(first: Stat, second: Stat) -> bool:
    """Return whether Welch's interval of the difference excludes zero; True with too few seeds for an interval."""
    effect = over_seeds([first.values, second.values], lambda one, other: float(one.mean() - other.mean()))
    return effect is None or effect.low is None or effect.high is None or effect.low > 0 or effect.high < 0
