"""Children that are started before the run that needs them."""

from __future__ import annotations

import gc

import psutil
import pytest

from clearl.cli import run as cli_run
from clearl.config import resolve
from clearl.runtimes.host import quick_imports
from clearl.runtimes.local.processes import ProcessPool, prewarm, process_pool
from clearl.wiring import FACTORY_ENTRY

ENTRY = "json:loads"  # something that is quickly imported


def pids(pool: ProcessPool) -> list[int]:
    return [child.pid for child in pool._idle]


def started(before: set[psutil.Process]) -> set[psutil.Process]:
    """Children of this process since then, but for the guard."""
    return {
        child
        for child in set(psutil.Process().children()) - before
        if not any(part.endswith("guard.py") for part in child.cmdline())
    }


def test_a_run_takes_the_prewarmed_children_once() -> None:
    config = resolve(flags={"runtime": "local", "workers": 2})
    before = set(psutil.Process().children())
    with prewarm(config, ENTRY):
        early = {child.pid for child in started(before)}
        first, second = process_pool(config, ENTRY), process_pool(config, ENTRY)
    try:
        assert len(early) == 2 and set(pids(first)) == early and not early & set(pids(second))
        assert all(psutil.pid_exists(pid) for pid in early), "whoever took them ends them"
    finally:
        first.close()
        second.close()
    assert not early & set(psutil.pids())


def test_without_a_run_nobody_is_left() -> None:
    before = set(psutil.Process().children())
    with pytest.raises(ValueError), prewarm(resolve(flags={"runtime": "local", "workers": 1}), ENTRY):
        (child,) = started(before)
        raise ValueError
    assert not child.is_running()


def test_other_runtimes_want_no_children() -> None:
    before = set(psutil.Process().children())
    with prewarm(resolve(flags={"runtime": "inline"}), ENTRY):
        assert set(psutil.Process().children()) == before


def test_garbage_is_collected_after_quick_imports_also_when_one_fails() -> None:
    with pytest.raises(ImportError), quick_imports():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
    gc.unfreeze()


def test_children_import_what_they_will_be_asked_for() -> None:
    """The command names the entry point before wiring.py, which imports torch, is imported."""
    assert cli_run._FACTORY_ENTRY == FACTORY_ENTRY
