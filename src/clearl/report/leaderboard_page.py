"""The leaderboard as one HTML page that opens offline, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

from clearl.report.formatting import breakable
from clearl.report.leaderboard import COLUMNS, Entry
from clearl.report.markup import markdown, pipes
from clearl.report.page_css import CSS, MARK
from clearl.report.stats import Interval

_HEAD = ["method", "boundaries", "seeds", *COLUMNS.values()]
_ABOUT = (
    "Normalised score: cumulative, from an untrained network (0) to the reference (1), mean over the tasks; the "
    "reference is simultaneous training, else separate, else the best arm. In brackets: 95 % t-intervals over seeds, "
    "from 3 seeds on. Memory: replay, networks and what a method keeps beside them (anchors, Fisher information) at "
    "the end of the run; replay alone for runs that did not end. Rows are sorted by their score; where intervals "
    "overlap, the order says nothing. docs/metrics.md "
    "has the formulas."
)


def write_leaderboard(entries: Sequence[Entry], out: Path, *, command: str) -> None:
    """Write index.html, leaderboard.md and leaderboard.json into the directory `out`."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "index.html").write_text(_html(entries, command), encoding="utf-8", errors="backslashreplace")
    (out / "leaderboard.md").write_text(_markdown(entries, command), encoding="utf-8", errors="backslashreplace")
    data = [entry.to_json() for entry in entries]
    (out / "leaderboard.json").write_text(
        json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", errors="backslashreplace"
    )


def cells(entry: Entry) -> list[str]:
    """Return a row as text."""
    return [
        entry.method,
        "known" if entry.needs_boundaries else "none",
        str(entry.seeds),
        *(_share(value) for value in (entry.score, entry.forgetting, entry.forward_transfer)),
        _scaled(entry.memory_nbytes, 1e6, "MB", 1),
        _scaled(entry.fps, 1.0, "", 0),
    ]


def _boards(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    boards: dict[str, list[Entry]] = {}
    for entry in entries:
        boards.setdefault(entry.suite, []).append(entry)
    return boards


def _markdown(entries: Sequence[Entry], command: str) -> str:
    lines = ["# Leaderboard", "", _ABOUT, "", f"Made by `{command}`.", ""]
    for board, rows in _boards(entries).items():
        lines += [f"## {markdown(board)}", "", pipes(_HEAD), pipes(["---", "---", *["---:"] * (len(_HEAD) - 2)])]
        for method, *rest in map(cells, rows):
            lines.append(pipes([markdown(method), *rest]))
        lines.append("")
    return "\n".join(lines)


def _html(entries: Sequence[Entry], command: str) -> str:
    sections = "".join(_section(board, rows) for board, rows in _boards(entries).items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Leaderboard</title>
<link rel="icon" href="data:,">
<style>{CSS}</style>
</head>
<body>
<header>
{MARK.decode()}
<h1>Leaderboard</h1>
<p class="soft">{escape(_ABOUT)}</p>
</header>
<main>
{sections}
<section><h2>How to make it again</h2><pre>{escape(command)}</pre></section>
</main>
<footer>Every number is computed from the rows of the run directories, and stands in
<a href="leaderboard.json">leaderboard.json</a>.</footer>
</body>
</html>
"""


def _section(board: str, rows: Sequence[Entry]) -> str:
    left = ' class="text"'
    head = "".join(f'<th{left if place < 2 else ""} scope="col">{name}</th>' for place, name in enumerate(_HEAD))
    body = []
    for row in rows:
        method, bounds, *rest = cells(row)
        listed = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        body.append(
            f'<tr><th class="text" scope="row">{breakable(method)}</th><td class="text">{bounds}</td>{listed}</tr>'
        )
    return f"""<section><h2>{breakable(board)}</h2>
<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>
</section>"""


def _share(interval: Interval | None) -> str:
    return _scaled(interval, 1.0, "", 2)


def _scaled(interval: Interval | None, unit: float, name: str, decimals: int) -> str:
    if interval is None:
        return "–"
    text = f"{interval.value / unit:,.{decimals}f}" + (f" {name}" if name else "")
    if interval.low is not None and interval.high is not None:
        text += f" [{interval.low / unit:,.{decimals}f}, {interval.high / unit:,.{decimals}f}]"
    return text.replace("-", "−")
