"""Run the notebooks in examples/ and keep their outputs: `python tools/notebooks.py [--tiny] [--out FOLDER]`.

With --tiny, budgets are those of a test. Outputs that are committed come from a run without it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(path: Path, out: Path, work: Path, *, tiny: bool) -> None:
    """Execute a notebook in the folder `work` and write it, with its outputs, to `out`."""
    notebook = nbformat.read(path, as_version=4)
    os.environ["CLEARL_NOTEBOOK_TINY"] = "1" if tiny else ""
    NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(work)}}).execute()
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"  # the same file for the same content
        cell.metadata.pop("execution", None)  # times of this run
    nbformat.validate(notebook)
    nbformat.write(notebook, out / path.name)


def main(arguments: list[str]) -> None:
    """Run every notebook."""
    from tempfile import TemporaryDirectory

    out = Path(arguments[arguments.index("--out") + 1]) if "--out" in arguments else EXAMPLES
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        with TemporaryDirectory() as work:
            run(path, out, Path(work), tiny="--tiny" in arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
