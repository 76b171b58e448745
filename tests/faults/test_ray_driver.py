"""Signals to the process that leads a run with the Ray runtime, and what is left of its family afterwards."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from run_processes import RowCounter, alive
from whole_runs import rows, shards, small_config, state, top_by_number

from clearl.config import to_yaml
from clearl.records.run_dir import RunDir

ENDLESS = small_config(
    runtime="ray", workers=2, frames_per_visit=10**8, batch_unrolls=4, buffer_frames=4000, eval_every_frames=10**8,
    checkpoint_every_frames=1000, record_every_updates=1,
)  # fmt: skip
# In a process of its own: Ray takes the address of its machine from what was set when it was imported first.
HEAD = """
from ray.cluster_utils import Cluster
nodes = {"num_cpus": 3, "include_dashboard": False, "object_store_memory": 80_000_000}
made = Cluster(initialize_head=True, head_node_args=nodes)
print(made.address, flush=True)
input()
made.shutdown()
"""
STOP_S, GONE_S = 10.0, 10.0
INTERRUPTED = 130
Record = Callable[[str, object], None]


@pytest.fixture
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a cluster that a test asks for; `none` for one that the run starts itself."""
    if getattr(request, "param", "own") == "own":
        yield "none"
        return
    with subprocess.Popen(
        [sys.executable, "-c", HEAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as head:
        assert head.stdout is not None
        yield head.stdout.readline().strip()
        head.communicate("\n")


@pytest.fixture
def process(address: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`clearl run --out RUN` as in a terminal of its own, once it has learnt something and all its actors are there."""
    (tmp_path / "settings.yaml").write_text(to_yaml(ENDLESS))
    arguments = ["--config", str(tmp_path / "settings.yaml"), "--out", str(tmp_path / "run"), "--address", address]
    command, written = [sys.executable, "-m", "clearl", "run", *arguments], RowCounter(tmp_path / "run")
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as made:
        try:
            wait_for(made, lambda: len(written.rows("train")) >= 60 and len(written.rows("eval")) == len(ENDLESS.tasks))
            yield made
        finally:
            made.kill()


def family() -> dict[str, list[int]]:
    """The learner, and all workers and evaluators; Ray names an actor's process after its class."""
    titles = {child.pid: child.cmdline()[:1] for child in psutil.Process().children(recursive=True)}
    kinds = ("HostedLearner", "RayProgram")
    return {kind: sorted(pid for pid in titles if f"ray::{kind}" in "".join(titles[pid])) for kind in kinds}


def everyone() -> list[int]:
    (learner,), children = family().values()
    assert len(children) == 4, "two workers, and an evaluator for each task"
    return [learner, *children]


def seconds_until_gone(pids: list[int]) -> float:
    begun = time.monotonic()
    while left := alive(pids):
        assert time.monotonic() - begun < GONE_S, f"{left} are left"
    return time.monotonic() - begun


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leads_to_a_checkpoint_and_the_end_in_time(
    number: signal.Signals, process: subprocess.Popen[bytes], tmp_path: Path, record_property: Record
) -> None:
    out = tmp_path / "run"
    pids, before = everyone(), len(RowCounter(out).rows("train"))
    begun = time.monotonic()
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    told, _ = process.communicate(timeout=60)
    took_s = time.monotonic() - begun
    record_property("stop", f"ended {took_s:.1f} s after {number.name}")
    assert process.returncode == INTERRUPTED and "so does the same command" in told.decode()
    assert took_s < STOP_S and RunDir.open(out).status == "interrupted"
    saved = state(out)["learner"]["state"]["counters"]
    assert saved["updates"] >= before and saved["updates"] == RowCounter(out).rows("train")[-1]["updates"]
    assert RowCounter(out).rows("fault") == []
    seconds_until_gone(pids)


@pytest.mark.parametrize("address", ["own", pytest.param("joined", marks=pytest.mark.faults)], indirect=True)
def test_nobody_outlives_a_driver_that_is_killed(process: subprocess.Popen[bytes], record_property: Record) -> None:
    pids = everyone()
    process.kill()
    record_property("gone", f"after {seconds_until_gone(pids):.1f} s")


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_the_learner_is_killed_at_random_moments(
    process: subprocess.Popen[bytes], tmp_path: Path, record_property: Record
) -> None:
    kills, rng, out, noticed = 5, random.Random(1), tmp_path / "run", []
    children = family()["RayProgram"]
    for number in range(kills):
        with suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0, 3))
        os.kill(family()["HostedLearner"][0], signal.SIGKILL)
        noticed.append(wait_for(process, lambda n=number: len(RowCounter(out).rows("fault")) > n))
        trained = RowCounter(out).rows("train")[-1]["updates"]
        wait_for(process, lambda n=trained: RowCounter(out).rows("train")[-1]["updates"] > n + 5)
    assert family()["RayProgram"] == children
    process.terminate()
    assert process.wait(60) == INTERRUPTED
    record_property("kills", f"{kills}, another learner at work after {max(noticed):.1f} s at the most")
    assert {row["worker"] for row in rows(out, "fault")} == {"learner"} and len(rows(out, "fault")) == kills
    updates = [row["updates"] for row in rows(out, "train")]
    assert updates == list(range(1, len(updates) + 1))
    capacity = int(RunDir.open(out).meta["replay"]["capacity_unrolls"])
    for shard in shards(out, ENDLESS):
        assert shard.sequences().tolist() == top_by_number(ENDLESS, shard.slot, capacity, shard.next_sequence)
        shard.close()


def wait_for(process: subprocess.Popen[bytes], happened: Callable[[], bool]) -> float:
    begun = time.monotonic()
    while not happened():
        assert process.poll() is None and time.monotonic() < begun + 300, "it did not happen"
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    return time.monotonic() - begun
