"""Write the drawings of the documentation: `python tools/drawings [FOLDER]`."""

from __future__ import annotations

import sys
from pathlib import Path

import concepts
import protocols

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "drawings"


def write(folder: Path) -> None:
    """Write every drawing into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, canvas in {**concepts.drawings(), **protocols.drawings()}.items():
        (folder / f"{name}.svg").write_text(canvas.svg(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
