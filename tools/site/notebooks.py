"""Pages out of examples/: a page for each notebook, with its outputs, and one for all programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROGRAMS = "# Complete programs\n\nCopy one and change it. The tests run each of them."


def pages() -> dict[str, str]:
    """Return the text of each page by its path below docs/."""
    notebooks = {f"examples/{path.stem}.md": _notebook(path) for path in sorted(EXAMPLES.glob("*.ipynb"))}
    programs = "\n\n".join([PROGRAMS, *map(_program, sorted(EXAMPLES.glob("*.py")))])
    return {**notebooks, "examples/programs.md": programs}


def _program(path: Path) -> str:
    """Return a program below its docstring, which names it."""
    head, _, code = path.read_text(encoding="utf-8").removeprefix('"""').partition('"""\n')
    name, _, about = head.partition(": ")
    return f'## {name}\n\n{about[0].upper()}{about[1:]}\n\n```python title="examples/{path.name}"\n{code.strip()}\n```'


def _notebook(path: Path) -> str:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    note = f"\n*This page is the notebook `examples/{path.name}` with its outputs.*\n"
    first, *rest = ("\n".join(_cell(cell)) for cell in cells)
    return "\n\n".join([first, note, *rest])


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        yield "\n" + _output(output)


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return f'<img alt="output of the cell above" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f"```text\n{text.rstrip()}\n```"
