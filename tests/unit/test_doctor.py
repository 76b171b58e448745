"""The doctor works where Linux's calls are missing, and asks for nothing that is not used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clearl.doctor import examine
from clearl.replay.forecast import _available_ram_nbytes


def test_it_needs_no_call_of_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert any(diagnosis.what == "processor" for diagnosis in examine(tmp_path))
    assert 10**8 < _available_ram_nbytes(tmp_path / "no-meminfo") < 10**15


def test_shared_memory_is_only_looked_at_for_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("clearl.doctor.find_spec", lambda name: None)
    assert not any("shared memory" in diagnosis.what for diagnosis in examine(tmp_path))
