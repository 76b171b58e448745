"""A disk that reports an error, once, at any file call of a run: one clean line or no harm, then the same result."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from damage import UNHARMED, judge_finished
from failing_calls import FailingCalls
from whole_runs import small_config

from clearl.errors import ClearlError
from clearl.experiment import run
from clearl.records.schema import Row

CONFIG = small_config(
    cycles=1, frames_per_visit=200, buffer_frames=144, slots=3, batch_unrolls=2, eval_every_frames=200,
    eval_max_steps=5, checkpoint_every_frames=100, lstm_size=8, keep_replay=True, keep_switch_weights=2,
)  # fmt: skip
ROWS_BEFORE_STOP = 6
Record = Callable[[str, object], None]


@dataclass(frozen=True)
class Prepared:
    """The beginning of a command, and what it ends with where no call fails."""

    whole: Path
    stopped: Path | None
    """The run that is resumed; None for one that starts."""
    calls: tuple[str, ...]
    """Every file call of the command: its name and its path."""

    def begin(self, out: Path) -> None:
        """Put into `out` what the command finds there."""
        if self.stopped is not None:
            shutil.copytree(self.stopped, out)


@pytest.fixture(scope="module", params=["start", "resume"])
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    path, written = tmp_path_factory.mktemp("prepared"), []

    def stop(row: Row) -> None:
        written.append(row)
        if len(written) == ROWS_BEFORE_STOP:
            os.kill(os.getpid(), signal.SIGTERM)

    run(CONFIG, path / "whole", console=False)
    stopped = path / "stopped" if request.param == "resume" else None
    if stopped is not None:
        assert run(CONFIG, stopped, console=False, listeners=[stop]).status == "interrupted"
    found = Prepared(path / "whole", stopped, ())
    found.begin(path / "counted")
    with FailingCalls(path / "counted").injected() as calls:
        run(CONFIG, path / "counted", console=False)
    return Prepared(path / "whole", stopped, tuple(calls.seen))


def fail_at(prepared: Prepared, out: Path, number: int, problems: list[str]) -> str:
    """Give the command with call `number` failing, then again; what came of it, and in `problems` what must not."""
    prepared.begin(out)
    with FailingCalls(out, number).injected() as calls:
        outcome, said = outcome_of(out)
    where = f"call {number}: {calls.failed}"
    if outcome == "raw" or (said and (str(out) not in said or "\n" in said)):
        problems.append(f"{where}: {outcome}: {said}")
    assert run(CONFIG, out, console=False).status == "finished", where
    try:
        judged = judge_finished(prepared.whole, out, CONFIG)
    except AssertionError as error:
        judged = f"another result: {str(error).splitlines()[0]}"
    if judged.removesuffix(", and said so") != UNHARMED:
        problems.append(f"{where}: {judged}")
    if left := [path.name for path in out.rglob("*") if "tmp" in path.name]:
        problems.append(f"{where}: {left} stay")
    return outcome


def outcome_of(out: Path) -> tuple[str, str]:
    try:
        run(CONFIG, out, console=False)
    except ClearlError as error:
        return "one line", str(error)
    except OSError as error:
        return "raw", repr(error)
    return "harmless", ""


def check(prepared: Prepared, tmp_path: Path, numbers: Sequence[int], record: Record) -> Counter[str]:
    problems: list[str] = []
    outcomes = Counter(fail_at(prepared, tmp_path / f"run-{number}", number, problems) for number in numbers)
    assert not problems, "\n".join(problems)
    record(
        "calls", f"{len(numbers)} of {len(prepared.calls)}: " + ", ".join(f"{n} {what}" for what, n in outcomes.items())
    )
    return outcomes


def test_a_failing_call(prepared: Prepared, tmp_path: Path, record_property: Record) -> None:
    """Some calls from the beginning to the end, and the first look at a checkpoint: only one of two may see it."""
    count = len(prepared.calls)
    looked = next(number for number, call in enumerate(prepared.calls) if call.endswith("/manifest.json"))
    outcomes = check(prepared, tmp_path, [looked, *range(3, count, count // 6)], record_property)
    assert outcomes["one line"] >= 3


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_every_failing_call(prepared: Prepared, tmp_path: Path, record_property: Record) -> None:
    assert len(prepared.calls) > 150
    check(prepared, tmp_path, range(len(prepared.calls)), record_property)
