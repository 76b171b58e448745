"""Two commands that start in one directory at the same moment: one trains, the other is refused, nothing is mixed."""

from __future__ import annotations

import fcntl
from contextlib import ExitStack
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from whole_runs import context, small_config

from clearl.config import RunConfig, from_yaml
from clearl.errors import RunDirectoryError
from clearl.experiment import run
from clearl.records import run_dir
from clearl.records.run_dir import RunDir

REFUSED = 7


def config_of(seed: int) -> RunConfig:
    return small_config(cycles=1, tasks=("breakout",), frames_per_visit=200, seed=seed)


def start(seed: int, out: Path, gate: Any, *, slow: Any = None) -> BaseProcess:
    process = context().Process(target=_run, args=(config_of(seed), out, gate, slow))
    process.start()
    return process


def _run(config: RunConfig, out: Path, gate: Any, slow: Any) -> None:
    if slow is not None:
        _pause_before_meta(*slow)
    gate.wait()
    try:
        run(config, out, console=False)
    except RunDirectoryError as error:
        # Who comes late finds the run of the other, and is told that its settings differ.
        assert "is being trained by another process" in str(error) or "with other settings" in str(error), error
        raise SystemExit(REFUSED) from None


def _pause_before_meta(reached: Any, go_on: Any) -> None:
    """Stop where a run has its config but no meta data: the directory is half made."""
    write = RunDir._write_meta

    def paused(self: RunDir, meta: Any) -> None:
        if not (self.path / run_dir.META_FILE).exists():
            reached.set()
            go_on.wait()
        write(self, meta)

    RunDir._write_meta = paused  # type: ignore[method-assign]


def assert_one_run(out: Path, seed: int) -> None:
    made = RunDir.open(out)
    assert made.status == "finished" and made.meta["seed"] == seed == from_yaml(made.config_text).seed


def test_who_comes_while_another_makes_the_directory_is_refused(tmp_path: Path) -> None:
    with context().Manager() as manager:
        reached, go_on, gate = manager.Event(), manager.Event(), manager.Event()
        gate.set()
        first = start(1, tmp_path / "run", gate, slow=(reached, go_on))
        assert reached.wait(60)
        second = start(2, tmp_path / "run", gate)
        second.join(60)
        go_on.set()
        first.join(60)
    assert (first.exitcode, second.exitcode) == (0, REFUSED)
    assert_one_run(tmp_path / "run", 1)


def test_of_two_starts_at_once_one_trains(tmp_path: Path) -> None:
    with context().Manager() as manager:
        for number in range(3):
            out, gate = tmp_path / f"{number}", manager.Barrier(2)
            both = [start(seed, out, gate) for seed in (1, 2)]
            for process in both:
                process.join(60)
            codes = [process.exitcode for process in both]
            assert sorted(map(str, codes)) == ["0", str(REFUSED)], codes
            assert_one_run(out, 1 + codes.index(0))


def test_who_is_refused_does_not_remove_the_directory_that_another_has_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other is still at its checks: its directory is empty."""
    out, make = tmp_path / "run", run_dir.make_directory
    with ExitStack() as other:

        def come_second(path: Path) -> None:
            make(path)
            other.enter_context(run_dir.locked_directory(path))

        monkeypatch.setattr(run_dir, "make_directory", come_second)
        with pytest.raises(RunDirectoryError, match="is being trained"), run_dir.claimed_directory(out):
            pass
        assert out.is_dir()


def test_a_directory_that_vanishes_before_it_is_locked_is_not_trained_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs would have a lock each, one of them on a directory that is gone."""
    out, lock = tmp_path / "run", fcntl.flock

    def lose_first(descriptor: int, operation: int) -> None:
        out.rmdir()
        out.mkdir()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lose_first)
    with pytest.raises(RunDirectoryError, match="has just been removed by another"), run_dir.claimed_directory(out):
        pass


def test_what_a_failing_start_made_is_removed_while_it_is_locked(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "run"
    with pytest.raises(RuntimeError), run_dir.claimed_directory(out):
        raise RuntimeError
    assert not out.parent.exists()
