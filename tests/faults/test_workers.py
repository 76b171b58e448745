from __future__ import annotations

import os
import random
import signal
import statistics
from pathlib import Path

import psutil
import pytest
from fault_runs import ENDLESS, Record, assert_exact, stop
from run_processes import RowCounter, children, shared_memory, wait_until
from whole_runs import rows, start

from clearl.config import RunConfig
from clearl.records.run_dir import RunDir

DEFAULTS = RunConfig(suite="minatar", tasks=("breakout",), frames_per_visit=20_000_000, eval_every_frames=20_000_000)
"""All that a user need not give is at its default; only what must not end or interrupt is long."""


def kill_workers(
    out: Path, record: Record, config: RunConfig, *, kills: int, notice_s: float, replace_s: float, seed: int
) -> None:
    """SIGKILL at random moments of one run; every one is noticed, made good and counted, and nothing is lost.

    `replace_s` bounds the processor time that a successor takes until it is ready, imports included: how long that
    lasts depends on what else the machine does.
    """
    rng, noticed, replaced, spent = random.Random(seed), [], [], []
    shared, written = shared_memory(), RowCounter(out)
    process = start(config, out)
    wait_until(process, lambda: len(written.rows("train")) > 5)
    assert process.pid is not None
    workers = sorted(name for name in children(process.pid) if name.startswith("worker-"))
    for number in range(kills):
        # A worker that is killed six times before it has done anything is given up, and rightly so.
        trained = len(written.rows("train"))
        wait_until(process, lambda n=trained: len(written.rows("train")) > n)
        process.join(rng.uniform(0, 0.3))
        name = rng.choice(workers)
        os.kill(children(process.pid)[name], signal.SIGKILL)
        noticed.append(wait_until(process, lambda n=number: len(written.rows("fault")) > n))
        replaced.append(noticed[-1] + wait_until(process, lambda n=number: len(written.rows("restart")) > n))
        spent.append(processor_s(children(process.pid)[name]))
    assert shared_memory() <= shared, "shared memory with a name outlives its processes"
    stop(process, out)
    record(
        "kills",
        f"{kills}, noticed after {max(noticed):.2f} s and replaced after {max(replaced):.2f} s at the most; "
        f"a successor took {max(spent):.2f} s of processor at the most, {statistics.median(spent):.2f} in the median",
    )
    faults = rows(out, "fault")
    assert [row["problem"] for row in faults] == ["was killed by SIGKILL"] * kills
    assert_exact(out, config)
    assert max(noticed) <= notice_s and max(spent) <= replace_s


def processor_s(pid: int) -> float:
    """Seconds that a process has computed since its start."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def test_workers_killed_at_random_moments(tmp_path: Path, record_property: Record) -> None:
    kill_workers(tmp_path, record_property, ENDLESS, kills=2, notice_s=5, replace_s=5, seed=1)


def test_no_default_run_loses_replay_to_a_killed_worker(tmp_path: Path, record_property: Record) -> None:
    kill_workers(tmp_path, record_property, DEFAULTS, kills=1, notice_s=5, replace_s=5, seed=3)
    assert RunDir.open(tmp_path).meta["replay"]["store"] == "disk"


@pytest.mark.faults
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("config", [ENDLESS, DEFAULTS], ids=["small", "defaults"])
def test_a_hundred_workers_killed_at_random_moments(config: RunConfig, tmp_path: Path, record_property: Record) -> None:
    kill_workers(tmp_path, record_property, config, kills=100, notice_s=0.5, replace_s=5, seed=2)
