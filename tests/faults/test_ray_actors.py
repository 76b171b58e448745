"""The Ray runtime on two nodes of this machine: the death of each process and of a node."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray_cluster import NODE_CPUS, ROUNDS, SLOTS, STEPS, WORKERS, Placed, assert_counts, at_updates, ray_config
from run_processes import alive
from whole_runs import rows, shards, state, top_by_number

from clearl.errors import WorkerError
from clearl.experiment import run
from clearl.records.run_dir import RunDir
from clearl.records.schema import Row


def test_killed_and_hanging_workers_are_replaced_and_nothing_is_lost_or_counted_twice(
    cluster: Any, children: dict[str, Placed], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings, out = ray_config(worker_timeout_s=10.0), tmp_path / "run"  # loaded machines start an evaluator slowly
    strike = {
        6: lambda: os.kill(children["worker-0"].pid, signal.SIGKILL),
        14: lambda: os.kill(children["worker-1"].pid, signal.SIGSTOP),
    }
    run(settings, out, console=False, listeners=[at_updates(strike)])
    assert_counts(out)
    assert [(row["worker"], row["problem"]) for row in rows(out, "fault")] == [
        ("worker-0", "died: its worker process has died while it worked on breakout"),
        ("worker-1", "said nothing for 10 s (worker_timeout_s) and was killed"),
    ]
    assert [row["worker"] for row in rows(out, "restart")] == ["worker-0", "worker-1"]
    assert capfd.readouterr() == ("", ""), "Ray has nothing to say to the user"
    capacity = int(RunDir.open(out).meta["replay"]["capacity_unrolls"])
    for shard in shards(out, settings):
        assert shard.sequences().tolist() == top_by_number(settings, shard.slot, capacity, ROUNDS)
        shard.close()


@pytest.mark.parametrize(
    ("store", "number", "words"),
    [
        ("disk", signal.SIGKILL, "died: its worker process has died"),
        ("ram", signal.SIGKILL, "died: its worker process has died"),
        ("ram", signal.SIGSTOP, "said nothing for 5 s (worker_timeout_s) and was killed"),
    ],
)
def test_the_learner_is_killed_or_hangs_and_another_goes_on_with_the_same_workers(
    store: str, number: signal.Signals, words: str, cluster: Any, children: dict[str, Placed], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if number == signal.SIGSTOP:
        monkeypatch.setattr("clearl.runtimes.cluster.driver._LEAST_PATIENCE_S", 5.0)
    settings = ray_config(
        worker_timeout_s=5.0 if number == signal.SIGSTOP else 30.0,  # loaded machines start an evaluator slowly
        replay_store=store,
        buffer_frames=10**5,
        checkpoint_every_frames=7 * SLOTS * STEPS,
        eval_every_frames=256,
    )
    out, killed_after, seen = tmp_path / "run", 13, list[dict[str, int]]()
    saved_updates = 0

    def strike(row: Row) -> None:
        nonlocal saved_updates
        there = "evaluator" in children and children["evaluator"].pid
        if row["kind"] == "train" and row["updates"] < killed_after and not there:
            time.sleep(1.0)  # training stands still meanwhile, but an evaluator that starts goes on
        if row["kind"] == "train" and row["updates"] == killed_after:
            seen.append({name: child.pid for name, child in children.items()})
            if len(seen) == 1:
                saved_updates = state(out)["learner"]["state"]["counters"]["updates"]
                os.kill(seen[0]["learner"], number)

    run(settings, out, console=False, listeners=[strike])
    first, second = seen
    assert first["learner"] != second["learner"]
    assert {name: first[name] for name in (*WORKERS, "evaluator")} == {
        name: second[name] for name in (*WORKERS, "evaluator")
    }
    assert [(row["worker"], row["problem"]) for row in rows(out, "fault")] == [
        ("learner", f"{words} (process {first['learner']})")
    ]
    assert [row["updates"] for row in rows(out, "resume")] == [saved_updates] and 7 <= saved_updates < killed_after
    assert RunDir.open(out).status == "finished"
    saved, redone = state(out), killed_after - saved_updates
    assert saved["learner"]["state"]["counters"]["frames"] == ROUNDS * SLOTS * STEPS
    assert saved["cursor"]["granted_frames"] == ROUNDS * SLOTS * STEPS
    assert [row["updates"] for row in rows(out, "train")] == list(range(1, ROUNDS + 1))
    # Each worker was at most two rounds ahead of the updates: one that had been read, one that was being made.
    assert all(ROUNDS + redone <= inserted <= ROUNDS + redone + 2 for inserted in saved["shards"])
    # What is held is counted before the new half of the last pairs is inserted.
    held = rows(out, "train")[-1]["replay"]["held"] + SLOTS
    assert held == sum(saved["shards"]), "nothing that was stored is lost"
    if store == "disk":
        for shard in shards(out, settings):
            assert shard.sequences().tolist() == list(range(shard.next_sequence))
            shard.close()
    wait_for_end(sorted({*first.values(), *second.values()}))


def wait_for_end(pids: list[int], within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while left := alive(pids):
        assert time.monotonic() < deadline, f"{left} have outlived their run"


def test_a_learner_that_dies_again_and_again_ends_the_run(
    cluster: Any, children: dict[str, Placed], tmp_path: Path
) -> None:
    out, deaths = tmp_path / "run", list[int]()

    def strike() -> None:
        deaths.append(children["learner"].pid)
        os.kill(deaths[-1], signal.SIGKILL)

    with pytest.raises(WorkerError, match="the learner died more than 1 times in 10 minutes .*: died: its worker"):
        run(replace(ray_config(), fault_budget=1), out, console=False, listeners=[at_updates({3: strike})])
    assert len(deaths) == 2 and RunDir.open(out).status == "failed"
    # Before the first checkpoint a new learner starts from nothing.
    kinds = [row["kind"] for row in rows(out, "segment", "fault", "train")]
    assert kinds == ["segment", "fault", "train", "train", "train"]
    assert f"(process {deaths[0]})" in rows(out, "fault")[0]["problem"]
    wait_for_end([*deaths, *(children[name].pid for name in WORKERS)])


def test_environments_that_end_their_process_again_and_again_end_the_run(cluster: Any, tmp_path: Path) -> None:
    leaving = {"suite": "gym:Leaving-v0", "tasks": (), "torso": "mlp", "imports": ("faulty_envs",)}
    settings = ray_config(**leaving, fault_budget=1, restart_backoff_s=0.01, frames_per_visit=10**6)
    died = r": died: its worker process has died while it worked on Leaving-v0"
    with pytest.raises(WorkerError, match=rf"worker-\d failed more than 1 times in 10 minutes .*{died}") as caught:
        run(settings, tmp_path / "run", console=False)
    assert len(rows(tmp_path / "run", "fault")) <= 3
    saved = state(tmp_path / "run")["learner"]["state"]["counters"]["frames"]
    assert caught.value.__notes__ == [
        f"the newest checkpoint is of frame {saved:,}; the same command goes on from there"
    ]


def test_a_node_dies_and_its_worker_goes_on_elsewhere_with_the_loss_counted(
    cluster: Any, children: dict[str, Placed], tmp_path: Path
) -> None:
    (second,) = cluster.worker_nodes
    out, lost_with_it = tmp_path / "run", []

    def end_node() -> None:
        lost_with_it.extend(name for name, child in children.items() if child.node == second.node_id)
        assert children["learner"].node != second.node_id
        cluster.remove_node(second, allow_graceful=False)

    run(ray_config(replay_store="ram"), out, console=False, listeners=[at_updates({12: end_node})])
    assert_counts(out)
    faults = {row["worker"]: row["problem"] for row in rows(out, "fault")}
    assert list(faults) == lost_with_it and len(lost_with_it) == 1
    # Two slots of capacity 10, full after ten rounds.
    assert faults[lost_with_it[0]].startswith("20 unrolls of replay are lost with the RAM or the node")
    assert second.node_id not in [child.node for child in children.values()]


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_twenty_killed_and_five_stopped_workers(
    cluster: Any, children: dict[str, Placed], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    rounds, every, strikes = 330, 12, 25
    more = {"fault_budget": strikes, "frames_per_visit": rounds * SLOTS * STEPS}
    settings, out = ray_config(worker_timeout_s=2.0, **more), tmp_path / "run"
    deeds = {
        every * (number + 1): lambda number=number: os.kill(
            children[WORKERS[number % 2]].pid, signal.SIGSTOP if number % 5 == 4 else signal.SIGKILL
        )
        for number in range(strikes)
    }
    run(settings, out, console=False, listeners=[at_updates(deeds)])
    faults, restarts = rows(out, "fault"), rows(out, "restart")
    stopped = [row for row in faults if "said nothing for 2 s" in row["problem"]]
    assert (len(faults), len(stopped), len(restarts)) == (strikes, 5, strikes)
    assert RunDir.open(out).status == "finished" and state(out)["shards"] == [rounds] * SLOTS
    assert [row["updates"] for row in rows(out, "train")] == list(range(1, rounds + 1))
    slowest = max(row["after_s"] for row in restarts)
    record_property("workers", f"20 killed and 5 stopped, replaced after {slowest:.1f} s at the most")
    capacity = int(RunDir.open(out).meta["replay"]["capacity_unrolls"])
    for shard in shards(out, settings):
        assert shard.sequences().tolist() == top_by_number(settings, shard.slot, capacity, rounds)
        shard.close()


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_five_nodes_die(
    cluster: Any, children: dict[str, Placed], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    rounds, every, deaths = 150, 24, 5
    settings, out = ray_config(replay_store="ram", frames_per_visit=rounds * SLOTS * STEPS), tmp_path / "run"
    lost = list[str]()
    for node in list(cluster.worker_nodes):
        cluster.remove_node(node)
    cluster.add_node(num_cpus=2, object_store_memory=80_000_000)

    def end_node() -> None:
        """Take the second node away, with whoever is on it, and give the cluster another."""
        (second,) = cluster.worker_nodes
        lost.extend(name for name, child in children.items() if child.node == second.node_id)
        cluster.remove_node(second, allow_graceful=False)
        cluster.add_node(num_cpus=2, object_store_memory=80_000_000)

    deeds = {every * (number + 1): end_node for number in range(deaths)}
    with little_room_on(cluster.head_node.node_id):
        run(settings, out, console=False, listeners=[at_updates(deeds)])
    assert RunDir.open(out).status == "finished" and state(out)["shards"] == [rounds] * SLOTS
    assert [row["updates"] for row in rows(out, "train")] == list(range(1, rounds + 1))
    died = [row["worker"] for row in rows(out, "restart")]
    assert sorted(died) == sorted(lost) and len(lost) >= deaths
    record_property("nodes", f"{deaths} killed, and {len(lost)} workers and evaluators with them, all replaced")


@contextmanager
def little_room_on(node: str) -> Iterator[None]:
    """Take CPUs of a node, so that it has room for one worker and an evaluator only."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    squatter: Any = ray.remote(type("Squatter", (), {"stay": lambda self: True}))
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    taken = squatter.options(num_cpus=NODE_CPUS[0] - 1.1, scheduling_strategy=there).remote()
    ray.get(taken.stay.remote())
    try:
        yield
    finally:
        ray.kill(taken)
