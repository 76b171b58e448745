"""`make install` finds a Python that will do, whatever it is called, and says what it does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def dry_run(tmp_path: Path, pythons: dict[str, tuple[int, int]]) -> subprocess.CompletedProcess[str]:
    """Return the output of a dry `make install` in a clone without .venv, where only these Pythons are installed."""
    for name, version in pythons.items():
        fake = tmp_path / name
        fake.write_text(f"#!/bin/sh\nexit {int(version < (3, 11))}\n")  # it is asked only whether it is too old
        fake.chmod(0o755)
    for tool in filter(None, map(shutil.which, ("sh", "make", "echo", "test"))):
        (tmp_path / Path(tool).name).symlink_to(tool)
    clone = tmp_path / "clone"
    (clone / "distributions" / "minatar-fast").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "distributions/minatar-fast/pyproject.toml"):
        (clone / name).write_bytes((ROOT / name).read_bytes())
    environ = {key: value for key, value in os.environ.items() if key not in ("PYTHON", "CI", "MAKEFLAGS", "MAKELEVEL")}
    command = ["make", "--dry-run", "install"]
    return subprocess.run(
        command, cwd=clone, env={**environ, "PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60
    )  # fmt: skip


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        ({"python3": (3, 12)}, "python3"),
        ({"python3": (3, 10), "python3.13": (3, 13)}, "python3.13"),
        ({"python3": (3, 10), "python": (3, 12)}, "python"),
        ({"python3": (3, 13), "python3.11": (3, 11)}, "python3.11"),
        ({"python3": (3, 10)}, ""),
    ],
)
def test_any_python_that_is_new_enough(pythons: dict[str, tuple[int, int]], chosen: str, tmp_path: Path) -> None:
    done = dry_run(tmp_path, pythons)
    assert done.returncode == 0, done.stderr
    asked, made = re.search(r'test -n "(.*?)"', done.stdout), re.search(r'^PYTHON="(.*?)"', done.stdout, re.M)
    assert asked and made and asked[1] == made[1] == chosen


def test_what_is_installed_is_said_before_and_shown_meanwhile(tmp_path: Path) -> None:
    said = dry_run(tmp_path, {"python3.11": (3, 11)}).stdout
    assert said.index("installing clearl, PyTorch and MinAtar into .venv") < said.index("-m pip")
    assert "--quiet" not in said and "installed: .venv/bin/clearl" in said
