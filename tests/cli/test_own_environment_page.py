"""The page "Your own environment", literally and to its end, with a small budget; as `clearl` and as a module."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "your-own-environment.md"
SMALL = {
    "check": "--steps 200",
    "run": "--cycles 1 --frames-per-visit 320 --slots 4 --batch-unrolls 4 --workers 1 --eval-episodes 1 --quiet",
    "eval": "--episodes 1",
    "video": "--max-steps 5",
}
CLEARL = {"script": [str(Path(sys.executable).with_name("clearl"))], "module": [sys.executable, "-m", "clearl"]}


def _blocks() -> list[tuple[str, str]]:
    return re.findall(r"^```(console|python)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)


def _command(line: str, form: str) -> list[str]:
    prompt, name, verb, *arguments = shlex.split(line)
    assert (prompt, name) == ("$", "clearl")
    small = shlex.split(SMALL.get(verb, ""))
    for flag in (part for part in small if part.startswith("--") and part in arguments):
        at = arguments.index(flag)
        del arguments[at : at + 2]
    return [*CLEARL[form], verb, *arguments, *small]


@pytest.mark.parametrize("form", CLEARL)
def test_the_page_runs_to_its_end(form: str, tmp_path: Path):
    for language, text in _blocks():
        if language == "console":
            for line in text.splitlines():
                _run(_command(line, form), tmp_path)
        elif named := re.match(r"# (\w+\.py)\n", text):
            (tmp_path / named[1]).write_text(text)
        else:
            _run([sys.executable, "-c", text], tmp_path)
    made = {"runs/delivery/videos/Delivery-v0-friction-0.05.gif", "delivery-agent/agent.json", "report/index.html"}
    assert [name for name in made if not (tmp_path / name).is_file()] == []


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120, env=os.environ)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
