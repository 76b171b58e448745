"""The notebooks in examples/: they run with small budgets, and the outputs that are committed are whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def _code(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def test_there_are_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["watch_it_forget", "your_world_changes"]


def test_they_run(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    command = [sys.executable, str(ROOT / "tools" / "notebooks.py"), "--tiny", "--out", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    for path in NOTEBOOKS:
        assert [cell["source"] for cell in _code(tmp_path / path.name)] == [cell["source"] for cell in _code(path)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_committed_and_hold_no_error(path: Path) -> None:
    cells = _code(path)
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert path.stat().st_size < 300_000


def test_the_outputs_show_what_the_notebook_says() -> None:
    """The baseline loses the first task, CLEAR keeps most of it."""
    text = "".join(
        line for cell in _code(ROOT / "examples" / "watch_it_forget.ipynb") for output in cell["outputs"]
        for line in output.get("text", ())
    )  # fmt: skip
    rows = {line.split()[0]: line.split() for line in text.splitlines() if "at the end" in line}
    baseline, clear = ((float(rows[name][3]), float(rows[name][-1])) for name in ("baseline", "clear"))
    assert baseline[1] < 0.5 * baseline[0] and clear[1] > 0.7 * clear[0]
