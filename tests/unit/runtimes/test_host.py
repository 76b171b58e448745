from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.runtimes import host


@pytest.fixture
def fake_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What is started in place of Python."""
    path = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(path))
    host._try_out.cache_clear()
    yield path
    host._try_out.cache_clear()


def put(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_processor_that_kills_is_noticed_before_the_run(fake_python: Path) -> None:
    put(fake_python, "kill -ILL $$")
    host.check_autocast(RunConfig())
    with pytest.raises(ConfigError, match="autocast must be false on this machine.*was killed by SIGILL"):
        host.check_autocast(RunConfig(autocast=True))


def test_a_sound_processor_is_tried_once(fake_python: Path) -> None:
    put(fake_python, f"echo tried >> {fake_python}.log")
    for _ in range(3):
        host.check_autocast(RunConfig(autocast=True))
    assert Path(f"{fake_python}.log").read_text() == "tried\n"


def test_the_program_runs_as_it_stands() -> None:
    """As far as this machine lets it: an error of its own would be an exit code, not a signal."""
    host._try_out.cache_clear()
    assert not host._try_out().startswith("exited with code")
