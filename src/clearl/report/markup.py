"""Text of a user's own, such as names of arms and tasks, made inert for Markdown, LaTeX, CSV and shell lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", "−": "$-$", "–": "--", "…": r"\dots{}",
}  # fmt: skip
_MARKDOWN = re.compile(r"[\\`*\[\]<>|~$]|&(?=#?\w+;)|(?<!\w)_|_(?!\w)")


def latex(text: str) -> str:
    """Escape plain text for LaTeX."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def markdown(text: str) -> str:
    """Escape plain text for Markdown, also inside a table cell."""
    return _MARKDOWN.sub(lambda found: "\\" + found.group(), text)


def csv_text(text: str) -> str:
    """Escape a name for a cell of CSV: a spreadsheet would compute one that begins like a formula."""
    return "'" + text if text[:1] in tuple("=+-@\t\r") else text


def shell_line(arguments: Any) -> str | None:
    """Join `clearl` and these arguments to one line to copy; None where they are not plain text of one line."""
    if not isinstance(arguments, list) or not all(isinstance(part, str) and part.isprintable() for part in arguments):
        return None
    return shlex.join(["clearl", *arguments])


def pipes(cells: Sequence[str]) -> str:
    """Return a line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"
