"""The report as one HTML file: no script, no external request; it opens offline and prints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from clearl.report.arms import label
from clearl.report.formatting import breakable, frames
from clearl.report.gallery import Drawn
from clearl.report.headline import headline
from clearl.report.page_css import CSS, MARK
from clearl.report.page_findings import findings_section
from clearl.report.page_settings import settings_section
from clearl.report.style import FAINT, GRID, INK
from clearl.report.summary import Summary
from clearl.report.tables import MEASURES, Table, seeds_text, suite_of
from clearl.report.task_names import names_note

_THEME = {INK: "var(--ink)", FAINT: "var(--faint)", GRID: "var(--line)"}
_MAIN_TABLES = ("cumulative", "kept")
_MORE = "Final score, forgetting, transfer, and the metrics of Continual World"
_MANY_TASKS = 8
_TASKS_LISTED = 6
_NOTES_SHOWN = 20
_ANCHORS = {"The paper's numbers": "paper", "Settings and commands": "settings"}


def write_page(
    summary: Summary, tables: Sequence[Table], figures: Sequence[Drawn], path: Path, *, command: str
) -> None:
    """Write the page of a report; `command` makes the same report again."""
    paper = _paper(tables)
    sections = {
        "Results": _results(summary, tables),
        "Figures": _figures(figures),
        "Findings": findings_section(summary.findings, with_missing=bool(paper)),
        "The paper's numbers": paper,
        "Settings and commands": settings_section(summary, command),
        "Definitions": _definitions(),
    }
    shown = {name: section for name, section in sections.items() if section}
    html = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(summary.title)}</title>
<link rel="icon" href="data:,">
<style>{CSS}</style>
</head>
<body>
{_header(summary, shown)}
<main>
{"".join(shown.values())}
</main>
<footer>Made by clearl from the run directories; every number on this page is computed from their rows, and stands in
<a href="summary.json">summary.json</a>, <a href="findings.json">findings.json</a> and the files below
<a href="tables/">tables/</a> and <a href="figures/">figures/</a>.</footer>
</body>
</html>
"""
    path.write_text(html, encoding="utf-8", errors="backslashreplace")  # names of directories may be no UTF-8


def inline_svg(svg: str, prefix: str, title: str) -> str:
    """Adapt an SVG to the page: unique ids, the page's colours for everything but data, and a text for people who
    cannot see it."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', body)
    body = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", body)
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.S)
    for colour, variable in _THEME.items():
        body = body.replace(colour, variable)
    width = re.search(r'width="([0-9.]+)pt"', body)
    natural = float(width.group(1)) * 4 / 3 if width else 900.0
    named = f'<svg role="img" aria-label="{escape(title, quote=True)}" style="--natural: {natural:.0f}px" '
    return body.replace("<svg ", named, 1)


def _header(summary: Summary, sections: Iterable[str]) -> str:
    runs = [run for arm in summary.arms.values() for run in arm.arm.runs]
    seeds, _, seeds_name = seeds_text(summary).rpartition(" ")
    longest = max((run.planned_frames or run.seen_frames for run in runs), default=0.0)
    facts = [
        (str(len(summary.arms)), "arms" if len(summary.arms) != 1 else "arm"),
        (seeds, f"{seeds_name} each" if len(summary.arms) > 1 else seeds_name),
        (str(len(summary.tasks)), f"task{'s' if len(summary.tasks) != 1 else ''}: {_listed(summary.tasks)}"),
        (frames(longest), "frames a run"),
        (suite_of(summary) or "unknown", "suite"),
    ]
    listed = "".join(f"<li><b>{escape(value)}</b>{escape(name)}</li>" for value, name in facts)
    told = [names_note(summary.tasks, suite_of(summary)), *summary.notes[:_NOTES_SHOWN]]
    if more := summary.notes[_NOTES_SHOWN:]:
        told.append(f"And {len(more)} more notes in summary.json.")
    notes = "".join(f"<li>{escape(note)}</li>" for note in told if note)
    links = [(_ANCHORS.get(name, name.lower()), name) for name in sections]
    return f"""<header>
{MARK.decode()}
<h1>{escape(summary.title)}</h1>
<p class="headline">{escape(headline(summary))}</p>
<ul class="facts">{listed}</ul>
<nav>{"".join(f'<a href="#{anchor}">{name}</a>' for anchor, name in links)}</nav>
{f'<ul class="notes">{notes}</ul>' if notes else ""}
</header>"""


def _listed(tasks: Sequence[str]) -> str:
    return ", ".join(tasks[:_TASKS_LISTED]) + (", ..." if len(tasks) > _TASKS_LISTED else "")


def _results(summary: Summary, tables: Sequence[Table]) -> str:
    own = [table for table in tables if not table.name.startswith("paper-")]
    if not own:
        return '<section id="results"><h2>Results</h2><p>Nothing has been evaluated yet.</p></section>'
    parts = [_table(table) for table in own if table.name in _MAIN_TABLES]
    rest = "".join(_table(table) for table in own if table.name not in _MAIN_TABLES)
    share = ""
    if summary.reference and any(arm.iqm for arm in summary.arms.values()):
        share = f"""<p class="soft">IQM: interquartile mean over tasks and seeds of the cumulative score as a share of
that of {escape(label(summary.reference))}, both counted from an untrained network's, with its 95 % t-interval over
seeds. Bold: the best of the arms that can forget, and those that the seeds cannot tell from it.</p>"""
    return f"""<section id="results"><h2>Results</h2>
{"".join(parts[:1])}{share}{"".join(parts[1:])}
{f"<details><summary>{_MORE}</summary>{rest}</details>" if rest else ""}
</section>"""


def _table(table: Table) -> str:
    if len(table.tasks) > _MANY_TASKS:
        return _tall_table(table)
    classes = ' class="text"', ' class="text minor"'
    head = "".join(f'<th{classes[column] if column < 2 else ""} scope="col">{breakable(name)}</th>'
                   for column, name in enumerate(table.head))  # fmt: skip
    body = []
    for row, bold in zip(table.rows, table.bold, strict=True):
        cells = [f'<th class="text" scope="row">{breakable(row[0])}</th><td class="text minor">{escape(row[1])}</td>']
        cells += [_cell(cell, is_best=best) for cell, best in zip(row[2:], [*bold, False], strict=False)]
        body.append(f"<tr>{''.join(cells)}</tr>")
    note = table.note[:1].upper() + table.note[1:]
    return f"""<h3>{escape(table.title)}</h3><p class="soft">{escape(note)}.</p>
<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>"""


def _tall_table(table: Table) -> str:
    """Write a table of many tasks with a row for each task and a column for each arm."""
    head = "".join(f'<th scope="col">{breakable(name)}</th>' for name in table.labels)
    body = []
    for place, task in enumerate(table.tasks):
        cells = zip(table.cells, table.bold, strict=True)
        listed = "".join(_cell(texts[place], is_best=best[place]) for texts, best in cells)
        body.append(f'<tr><th class="text" scope="row">{breakable(task)}</th>{listed}</tr>')
    if table.iqm:
        listed = "".join(_cell(text, is_best=False) for text in table.iqm)
        body.append(f'<tr><th class="text" scope="row">IQM</th>{listed}</tr>')
    note = table.note[:1].upper() + table.note[1:]
    return f"""<h3>{escape(table.title)}</h3><p class="soft">{escape(note)}.</p>
<div class="scroll" tabindex="0"><table><thead><tr><th class="text" scope="col">task</th>{head}</tr></thead>
<tbody>{"".join(body)}</tbody></table></div>"""


def _cell(text: str, *, is_best: bool) -> str:
    mean, plus, deviation = text.partition(" ± ")
    spread = f' <span class="dev">± {escape(deviation)}</span>' if plus else ""
    return f"<td{' class=best' if is_best else ''}>{escape(mean)}{spread}</td>"


def _figures(figures: Sequence[Drawn]) -> str:
    if not figures:
        return ""
    blocks = []
    for index, figure in enumerate(figures):
        svg = inline_svg(figure.svg.read_text(encoding="utf-8"), f"f{index}", figure.caption)
        files = f'<a href="figures/{figure.svg.name}">SVG</a><a href="figures/{figure.png.name}">PNG</a>'
        blocks.append(f"<figure>{svg}<figcaption>{escape(figure.caption)} {files}</figcaption></figure>")
    return f'<section id="figures"><h2>Figures</h2>{"".join(blocks)}</section>'


def _paper(tables: Sequence[Table]) -> str:
    blocks = "".join(_table(table) for table in tables if table.name.startswith("paper-"))
    if not blocks:
        return ""
    return f"""<section id="paper"><h2>The paper's numbers</h2>
<p class="soft">Cumulative scores from Rolnick et al., “Experience Replay for Continual Learning” (2019), to compare
the pattern: tasks, budgets and networks differ from the runs above unless the suite is the same.</p>
{blocks}</section>"""


def _definitions() -> str:
    rows = "".join(f"<dt>{escape(m.title)}</dt><dd>{escape(m.meaning)}</dd>" for m in MEASURES)
    return f"""<section id="definitions"><h2>Definitions</h2><dl>{rows}
<dt>Score at a frame</dt><dd>the evaluation made exactly at that switch; without one, the mean of the evaluations in the
2 % of training before it, or the last before it</dd>
<dt>Absence</dt><dd>from the end of a visit to the start of the task's next visit, or to the end of training; at least
one whole segment</dd>
<dt>Oracle</dt><dd>the cumulative score of the same schedule, had every frame of a task taught as much as it taught the
reference and nothing been forgotten</dd>
<dt>Boundaries</dt><dd>whether the method is told when the task switches, and to which</dd>
<dt>Frames</dt><dd>environment frames trained on, summed over all tasks; separate networks share the axis</dd>
</dl></section>"""
