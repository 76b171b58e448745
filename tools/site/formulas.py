r"""Formulas of a page: `$x$` in a line, `$$x$$` by itself, set as MathML.

Code is left alone. `\$` is a dollar.
"""

from __future__ import annotations

import re

from latex2mathml.converter import convert

# What the converter leaves to be mended: a prime is an operator, names of functions are words with a space after them.
_MENDS = (
    (re.compile("<mi>&#x02032;</mi>"), "<mo>&#x02032;</mo>"),
    (re.compile(r"<mo>(min|max)</mo>"), r"<mi>\1</mi>"),
    (re.compile(r"<mi>log</mi>(?!<mo)"), '<mi>log</mi><mspace width="0.17em"/>'),
)

# Code first: what it holds is no formula.
_PARTS = re.compile(
    r"(?P<code>^(?P<fence>```+|~~~+).*?^(?P=fence)|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)|\\\$)"
    r"|\$\$(?P<display>.+?)\$\$|\$(?P<inline>[^\s$](?:[^$\n]*[^\s$])?)\$",
    re.M | re.S,
)
_MARK = "FORMULA{}END"


def take_out(markdown: str) -> tuple[str, list[str]]:
    """Return the text with a mark for each formula, and the formulas as MathML."""
    found: list[str] = []

    def replace(match: re.Match[str]) -> str:
        if match["code"]:
            return match[0]
        kind = "block" if match["display"] else "inline"
        found.append(_mathml((match["display"] or match["inline"]).strip(), kind))
        return _MARK.format(len(found) - 1)

    return _PARTS.sub(replace, markdown), found


def _mathml(latex: str, kind: str) -> str:
    text = convert(latex, display=kind)
    for pattern, better in _MENDS:
        text = pattern.sub(better, text)
    return text


def put_in(html: str, found: list[str]) -> str:
    """Return the page with its formulas in the places of their marks."""
    return re.sub(_MARK.format(r"(\d+)"), lambda match: found[int(match[1])], html)
