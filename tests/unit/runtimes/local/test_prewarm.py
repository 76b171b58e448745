"""Children that are started before the run that needs them."""

from __future__ import annotations

import gc

import psutil
import pytest

from clearl.cli import run as cli_run
from clearl.config import resolve
from clearl.errors import UnknownNameError
from clearl.runtimes.host import quick_imports
from clearl.runtimes.local import processes
from clearl.runtimes.local.processes import ProcessPool, prewarm, process_pool
from clearl.suites import make_suite
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


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 4)


def test_a_run_takes_the_prewarmed_children_once() -> None:
    config = resolve(flags={"runtime": "local", "workers": 2})
    before = set(psutil.Process().children())
    with prewarm(config, ENTRY, lambda: None):
        early = {child.pid for child in started(before)}
        first, second = (process_pool(config, ENTRY, lambda: None) for _ in range(2))
    try:
        assert len(early) == 3 and set(pids(first)) == early and not early & set(pids(second))
        assert all(psutil.pid_exists(pid) for pid in early), "whoever took them ends them"
    finally:
        first.close()
        second.close()
    assert not early & set(psutil.pids())


def test_the_imports_of_the_evaluator_give_way_to_those_of_the_learner_and_the_workers() -> None:
    before, usual = set(psutil.Process().children()), psutil.Process().nice()
    with prewarm(resolve(flags={"runtime": "local", "workers": 2}), ENTRY, lambda: None):
        assert sorted(child.nice() - usual for child in started(before)) == [0, 0, 5]


@pytest.mark.parametrize(
    ("suite", "cores", "workers"),
    [
        ("minatar", 1, 1), ("minatar", 2, 1), ("minatar", 4, 3), ("minatar", 8, 4), ("atari", 2, 2), ("atari", 4, 4),
        ("mujoco", 2, 2), ("gym:CartPole-v1", 2, 1),
    ],
)  # fmt: skip
def test_the_command_prewarms_the_workers_that_there_will_be(
    monkeypatch: pytest.MonkeyPatch, suite: str, cores: int, workers: int
) -> None:
    monkeypatch.setattr(processes, "cores", lambda: cores)
    config = resolve(flags={"runtime": "local", "slots": 64, "batch_unrolls": 32, "suite": suite})
    with prewarm(config, ENTRY, lambda: cli_run._workers(config)):
        pool = process_pool(config, ENTRY, lambda: None)
    try:
        kinds = [child.background for child in pool._idle]
        assert (kinds.count(False), kinds.count(True)) == (workers, workers < cores)
        made = make_suite(suite, (), config)
        assert processes.workers_of(config, made.spec, made) == workers
    finally:
        pool.close()


def test_children_end_when_the_suite_is_unknown() -> None:
    before = set(psutil.Process().children())
    config = resolve(flags={"runtime": "local", "suite": "minitar"})
    with pytest.raises(UnknownNameError), prewarm(config, ENTRY, lambda: cli_run._workers(config)):
        raise AssertionError
    assert set(psutil.Process().children()) == before


def test_without_a_run_nobody_is_left() -> None:
    before = set(psutil.Process().children())
    with pytest.raises(ValueError), prewarm(resolve(flags={"runtime": "local", "workers": 1}), ENTRY, lambda: None):
        children = started(before)
        raise ValueError
    assert len(children) == 2 and not any(child.is_running() for child in children)


def test_other_runtimes_want_no_children() -> None:
    before = set(psutil.Process().children())
    with prewarm(resolve(flags={"runtime": "inline"}), ENTRY, lambda: None):
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
