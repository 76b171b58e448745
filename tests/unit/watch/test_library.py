"""Runs are found wherever they may be entered, by one search at a time that rests in proportion to its cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from clearl.errors import RunDirectoryError
from clearl.watch import library as library_module
from clearl.watch.library import Library, Repeated, find_runs


class Clock:
    """A clock that only tests move."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_job_rests_twenty_times_as_long_as_it_took() -> None:
    clock, began = Clock(), list[float]()

    def job() -> None:
        began.append(clock.now)
        clock.now += 2.0

    repeated = Repeated(job, clock)
    for moment in (0.0, 2.0, 41.9, 42.0, 60.0, 84.0):
        clock.now = moment
        repeated.ask()
    assert began == [0.0, 42.0, 84.0]


@pytest.mark.parametrize(("cost_s", "rest_s"), [(0.0, 0.25), (0.1, 2.0), (30.0, 60.0)])
def test_a_rest_is_neither_shorter_than_a_look_at_the_runs_nor_longer_than_a_minute(
    cost_s: float, rest_s: float
) -> None:
    clock, began = Clock(), list[float]()

    def job() -> None:
        began.append(clock.now)
        clock.now += cost_s

    repeated = Repeated(job, clock)
    for moment in (0.0, cost_s + rest_s - 0.01, cost_s + rest_s + 0.01):
        clock.now = moment
        repeated.ask()
    assert len(began) == 2


def test_a_job_that_takes_long_holds_nobody_up_and_is_not_begun_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_module, "_FIRST_PATIENCE_S", 0.01)
    begun, may_end = list[int](), Event()

    def job() -> None:
        begun.append(1)
        may_end.wait(30)

    repeated = Repeated(job, Clock())
    for _ in range(5):
        repeated.ask()
    assert (begun, repeated.is_complete) == ([1], False)
    may_end.set()
    monkeypatch.setattr(library_module, "_FIRST_PATIENCE_S", 30)
    repeated.ask()
    assert repeated.is_complete


def test_all_pages_share_one_search(
    make_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[Path] = []

    def search(root: Path, notes: list[str]):
        searches.append(root)
        return find_runs(root, notes)

    monkeypatch.setattr(library_module, "find_runs", search)
    make_run("clear", 0)
    clock = Clock()
    library = Library([tmp_path], clock)
    for _ in range(10):
        assert [run.name for run in library.runs()] == ["runs/clear-seed0"]
        library.state()
    assert len(searches) == 1
    make_run("clear", 1)
    clock.now += 1.0
    assert len(library.runs()) == 2 and len(searches) == 2


def test_a_directory_that_may_not_be_entered_hides_only_itself(
    make_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = make_run("clear", 0, name="closed")
    make_run("clear", 1, name="open")
    holds_run = library_module.holds_run

    def refuse(path: Path) -> bool:
        if path == closed:
            raise RunDirectoryError(f"{path}: Permission denied")
        return holds_run(path)

    monkeypatch.setattr(library_module, "holds_run", refuse)
    assert [run.name for run in Library([tmp_path]).runs()] == ["runs/open"]


def test_a_search_that_ends_early_says_so(
    make_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(3):
        make_run("clear", seed)
    library = Library([tmp_path])
    assert len(library.runs()) == 3 and library.notes() == []
    monkeypatch.setattr(library_module, "_MOST_RUNS", 2)
    library = Library([tmp_path])
    assert len(library.runs()) == 2
    (note,) = library.notes()
    assert note.startswith(f"only the first 2 runs below {tmp_path} are searched")
    monkeypatch.setattr(library_module, "_MOST_RUNS", 100)
    monkeypatch.setattr(library_module, "_MOST_DIRECTORIES", 3)
    library = Library([tmp_path])
    assert len(library.runs()) == 1
    (note,) = library.notes()
    assert "only the first 3 directories" in note
