"""Pages out of the notebooks in examples/, with their outputs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def pages() -> dict[str, str]:
    """Return the text of each page by its path below docs/."""
    return {f"examples/{path.stem}.md": _notebook(path) for path in sorted(EXAMPLES.glob("*.ipynb"))}


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
