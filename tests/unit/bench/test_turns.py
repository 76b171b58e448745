"""Two runs by turns: who stands still, and what is compared."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))  # benchmarks are no part of the package

from benchmarks import turns

from clearl.bench.workloads import workload
from clearl.errors import WorkerError

PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], process_group=0)
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def family() -> Iterator[list[int]]:
    """A process and its child, which has a group of its own."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        yield [parent.pid, int(parent.stdout.readline())]
        turns.signal_family(parent.pid, signal.SIGKILL)


def states(pids: list[int]) -> set[str]:
    time.sleep(0.05)
    return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids}


def test_a_whole_family_stands_still_and_goes_on(family: list[int]) -> None:
    turns.signal_family(family[0], signal.SIGSTOP)
    assert states(family) == {"T"}
    turns.signal_family(family[0], signal.SIGCONT)
    assert states(family) <= {"R", "S"}  # they sleep, or wait for a core first
    turns.signal_family(family[0], signal.SIGSTOP)
    assert states(family) == {"T"}


def test_the_same_frames_are_compared_behind_the_warm_up() -> None:
    fast = [(0.0, 0), (1.0, 0), (3.0, 1000), (5.0, 2000), (6.0, 2000)]
    slow = [(0.0, 0), (2.0, 0), (12.0, 1000)]
    seconds, frames = turns.compared([fast, slow])
    assert frames == 850 and seconds == pytest.approx([2.0 * 0.85, 10.0 * 0.85])
    with pytest.raises(WorkerError, match="too short"):
        turns.compared([fast, [(0.0, 0), (1.0, 0)]])


def test_two_real_runs_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", 0.3)
    tiny = {"slots": 8, "batch_unrolls": 8, "record_every_updates": 1, "eval_episodes": 1, "eval_max_steps": 1}
    configs = [workload("minatar", **tiny), workload("minatar", method="baseline", **tiny)]
    seconds, frames = turns.seconds_for_the_same(configs, 1.0, 6000.0)
    assert frames > 0 and all(0 < each < 60 for each in seconds)


def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    contender = turns.Contender("no_such_setting: 1\n", tmp_path / "run")
    with pytest.raises(WorkerError, match="no_such_setting"):
        while contender.take_turn(5.0):
            pass
    contender.end()
