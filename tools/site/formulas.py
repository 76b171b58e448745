r"""Formulas of a page: `$x$` in a line, `$$x$$` by itself, set as MathML.

Code is left alone. `\$` is a dollar.
"""

from __future__ import annotations

import re

from latex2mathml.converter import convert

# Code first: what it holds is no formula.
_PARTS = re.compile(
    r"(?P<code>^(?P<fence>```+|~~~+).*?^(?P=fence)|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)|\\\$)"
    r"|\$\$(?P<display>.+?)\$\$|\$(?P<inline>[^\s$](?:[^$\n]*[^\s$])?)\$",
    re.M | re.S,
)
_MARK = "FORMULA{}END"


def take_out(markdown: str) -> tuple[str, list[str]]:
    """The text with a mark for each formula, and the formulas as MathML."""
    found: list[str] = []

    def replace(match: re.Match[str]) -> str:
        if match["code"]:
            return match[0]
        kind = "block" if match["display"] else "inline"
        found.append(convert((match["display"] or match["inline"]).strip(), display=kind))
        return _MARK.format(len(found) - 1)

    return _PARTS.sub(replace, markdown), found


def put_in(html: str, found: list[str]) -> str:
    """The page with its formulas in the places of their marks."""
    return re.sub(_MARK.format(r"(\d+)"), lambda match: found[int(match[1])], html)
