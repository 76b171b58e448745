"""A run that is trained once for a module of tests, and a copy of it for each test that changes it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from clearl.config import RunConfig
from clearl.experiment import run


@pytest.fixture(scope="module")
def first(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the settings `FIRST` of the module."""
    out = tmp_path_factory.mktemp("runs") / "a"
    run(RunConfig(**request.module.FIRST), out, console=False)
    return out


@pytest.fixture
def copy(first: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(first, tmp_path / "a"))
