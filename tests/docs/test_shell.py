"""Shell lines of the pages that need a network, a cluster or a batch system: run as far as one machine can.

Lines of plain `clearl` commands stand in console blocks, which `test_code.py` runs. A line here is tried by the way of
its first word; a word without a way fails, so that no line goes unnoticed.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from served import served

from clearl.cli.main import VERBS, main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").rglob("*.md") if "results" not in page.parts)]
BLOCK = re.compile(r"^( *)```sh\n(.*?)^\1```", re.M | re.S)
SWEEP = re.compile(r"^```yaml\n(# entropy\.yaml.*?)^```", re.M | re.S)
ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")


def _lines() -> list[str]:
    blocks = [block[1] for page in PAGES for block in BLOCK.findall(page.read_text(encoding="utf-8"))]
    return sorted({line.strip() for block in blocks for line in block.splitlines() if line.strip()})


def _words(line: str) -> list[str]:
    """The words of a command, without settings of the environment before it and what follows `>`."""
    words = shlex.split(line, comments=True)
    words = words[: words.index(">")] if ">" in words else words
    while ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    return words


def _run(command: list[str], **options: object) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "COLUMNS": "200"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _clearl(words: list[str], here: Path) -> None:
    verb, *rest = words[1:]
    assert verb in VERBS
    if verb == "run":
        assert main([verb, *rest, "--dry-run"]) == 0
    elif verb == "sweep":
        (text,) = SWEEP.findall((ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8"))
        (here / rest[0]).write_text(text)
        assert main([verb, *rest, *([] if "--commands" in rest else ["--dry-run"])]) == 0
    elif verb == "watch":
        _check_serves(rest, here)
    else:  # long ones: test_bench.py and test_demo.py run them
        _has_flags(_run([sys.executable, "-m", "clearl", verb, "--help"]), rest)


def _check_serves(rest: list[str], here: Path) -> None:
    """The page opens with its token, and not without."""
    (here / rest[0]).mkdir()
    with served(rest, here) as url:
        address = url.replace("0.0.0.0", "127.0.0.1")
        with urlopen(address, timeout=60) as page:
            assert b"clearl watch" in page.read()
        with pytest.raises(HTTPError, match="403"):
            urlopen(address.partition("?")[0], timeout=60)


def _has_flags(told: str, rest: list[str]) -> None:
    missing = [word.partition("=")[0] for word in rest if word.startswith("--") and word.partition("=")[0] not in told]
    assert missing == []


def _make(words: list[str], here: Path) -> None:
    _run([*words, "--dry-run"], cwd=ROOT)


def _pip(words: list[str], here: Path) -> None:
    """Check that what `pip install` names exists; tests/packaging installs and runs the wheel."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert words[1] == "install" and len(words) > 2
    for what in words[2:]:
        asked = re.fullmatch(r"(\.|clearl)\[([\w,]+)\]", what)
        assert asked or (ROOT / what / "pyproject.toml").is_file(), what
        assert {*(asked[2].split(",") if asked else ())} <= extras.keys()


def _python(words: list[str], here: Path) -> None:
    assert words[1] == "-m"
    _has_flags(_run([sys.executable, "-m", words[2], "--help"], cwd=ROOT), words[3:])


def _ray(words: list[str], here: Path) -> None:
    """Ray's command has the flags, its files exist, and the command that it hands on is one of ours."""
    told = _run([sys.executable, "-m", "ray.scripts.scripts", words[1], "--help"])
    _has_flags(told, words[2:])
    for word in words[2:]:
        if word.endswith(".yaml"):
            assert (ROOT / word).is_file()
        elif " clearl " in word.replace("/", " "):
            _clearl(_words(word), here)


def _sbatch(words: list[str], here: Path) -> None:
    """The wrapped command, run as the second task of the array, takes the second line and nothing else."""
    assert words[1] == "--array=1-60" and words[2] == "--wrap"
    (here / "commands.txt").write_text("".join(f"echo task {number} 'of the array'\n" for number in range(1, 61)))
    done = subprocess.run(
        ["sh", "-c", words[3]], cwd=here, env={**os.environ, "SLURM_ARRAY_TASK_ID": "2"}, capture_output=True, text=True
    )
    assert done.stdout == "task 2 of the array\n", done.stderr


def _script(words: list[str], here: Path) -> None:
    assert os.access(ROOT / words[0], os.X_OK)
    _run(["bash", "-n", words[0]], cwd=ROOT)
    _has_flags((ROOT / words[0]).read_text(encoding="utf-8"), words[1:])


WAYS: dict[str, Callable[[list[str], Path], None]] = {
    "clearl": _clearl, ".venv/bin/clearl": _clearl, "~/clearl-venv/bin/clearl": _clearl, "make": _make, "pip": _pip,
    "python": _python, "ray": _ray, "sbatch": _sbatch, "benchmarks/peers/run.sh": _script,
}  # fmt: skip


@pytest.mark.parametrize("line", _lines())
def test_the_line_works_as_far_as_one_machine_can_tell(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = _words(line)
    assert words[0] in WAYS, f"no way to try {words[0]!r}: put it into a console block, or give it a way here"
    monkeypatch.chdir(tmp_path)
    WAYS[words[0]](words, tmp_path)
