"""The Ray runtime on two nodes of this machine: the death of each process and of a node, and what cannot run."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from run_processes import alive
from whole_runs import rows, shards, small_config, state, top_by_number

from clearl.config import RunConfig
from clearl.errors import ConfigError, MissingExtraError, WorkerError
from clearl.experiment import run
from clearl.records.run_dir import RunDir
from clearl.records.schema import METRICS_FILE, Row
from clearl.runtimes.hosted import HostedLearner, Luggage
from clearl.runtimes.job import Order
from clearl.runtimes.messages import Alive, Ready, Setup, Sync, Synced
from clearl.runtimes.ray import connected

SLOTS, STEPS, ROUNDS = 4, 8, 24
NODE_CPUS = (3, 1)


def config(**changes: Any) -> RunConfig:
    settings = {
        "runtime": "ray", "workers": 2, "cycles": 1, "tasks": ("breakout",), "slots": SLOTS, "batch_unrolls": SLOTS,
        "unroll_steps": STEPS, "frames_per_visit": ROUNDS * SLOTS * STEPS, "buffer_frames": 320,
        "record_every_updates": 1, "eval_every_frames": 10**6, "checkpoint_every_frames": None,
    }  # fmt: skip
    return small_config(**{**settings, **changes})


@pytest.fixture(scope="module")
def listening() -> set[str]:
    """Where the processes of a Ray of our own listen. The first to import Ray, with all that keeps it quiet."""
    with connected(None, cpus=1):
        processes = psutil.Process().children(recursive=True)
        found = [port for process in processes for port in process.net_connections("inet")]
        return {port.laddr.ip for port in found if port.status == psutil.CONN_LISTEN}


@pytest.fixture(scope="module")
def cluster(listening: set[str]) -> Iterator[Any]:
    """Two nodes; the second can be taken away."""
    import ray
    from ray.cluster_utils import Cluster

    options = {"include_dashboard": False, "object_store_memory": 80_000_000}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": NODE_CPUS[0], **options})
    made.add_node(num_cpus=NODE_CPUS[1], object_store_memory=80_000_000)
    with connected(made.address, cpus=0):
        yield made
    made.shutdown()
    assert not ray.is_initialized()


@dataclass(frozen=True)
class Placed:
    """An actor of the run under way."""

    handle: Any

    @property
    def node(self) -> str:
        return self._told()["Address"]["NodeID"]

    @property
    def pid(self) -> int:
        return self._told()["Pid"]

    def _told(self) -> dict[str, Any]:
        from ray._private.state import actors

        return actors(self.handle._actor_id.hex())


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch, listening: set[str]) -> dict[str, Placed]:
    """The newest actor of each name; the learner is one of them."""
    from clearl.runtimes.ray_driver import Driver
    from clearl.runtimes.ray_site import Wanted

    found: dict[str, Placed] = {}
    child, place_learner = Driver._child, Driver._place_learner

    def remember_child(self: Driver, wanted: Wanted) -> Any:
        handle = child(self, wanted)
        found[wanted.name] = Placed(handle)
        return handle

    def remember_learner(self: Driver) -> None:
        place_learner(self)
        found["learner"] = Placed(self._learner)

    monkeypatch.setattr(Driver, "_child", remember_child)
    monkeypatch.setattr(Driver, "_place_learner", remember_learner)
    return found


def test_a_ray_of_our_own_listens_on_this_machine_only(listening: set[str]) -> None:
    assert listening and listening <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


def test_an_address_where_nobody_listens_is_refused_at_once(listening: set[str]) -> None:
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with (
            pytest.raises(ConfigError, match=f"no Ray cluster at address {address}: .*refused"),
            connected(address, cpus=0),
        ):
            pass


def at_updates(deeds: dict[int, Callable[[], None]]) -> Callable[[Row], None]:
    def listen(row: Row) -> None:
        if row["kind"] == "train" and row["updates"] in deeds:
            deeds[row["updates"]]()

    return listen


def assert_counts(out: Path) -> None:
    saved = state(out)
    assert RunDir.open(out).status == "finished"
    assert saved["learner"]["state"]["counters"]["updates"] == ROUNDS
    assert saved["shards"] == [ROUNDS] * SLOTS
    assert [row["updates"] for row in rows(out, "train")] == list(range(1, ROUNDS + 1))


def test_killed_and_hanging_workers_are_replaced_and_nothing_is_lost_or_counted_twice(
    cluster: Any, children: dict[str, Placed], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings, out = config(worker_timeout_s=4.0), tmp_path / "run"
    strike = {
        6: lambda: os.kill(children["worker-0"].pid, signal.SIGKILL),
        14: lambda: os.kill(children["worker-1"].pid, signal.SIGSTOP),
    }
    run(settings, out, console=False, listeners=[at_updates(strike)])
    assert_counts(out)
    assert [(row["worker"], row["problem"]) for row in rows(out, "fault")] == [
        ("worker-0", "died: its worker process has died"),
        ("worker-1", "said nothing for 4 s (worker_timeout_s) and was killed"),
    ]
    assert [row["worker"] for row in rows(out, "restart")] == ["worker-0", "worker-1"]
    assert capfd.readouterr() == ("", ""), "Ray has nothing to say to the user"
    capacity = int(RunDir.open(out).meta["replay"]["capacity_unrolls"])
    for shard in shards(out, settings):
        assert shard.sequences().tolist() == top_by_number(settings, shard.slot, capacity, ROUNDS)
        shard.close()


WORKERS = ("worker-0", "worker-1")


def test_a_learner_that_cannot_answer_yet_is_waited_for(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Importing(HostedLearner):
        """Says nothing while it imports what it needs, and is then through at once."""

        def train(self, order: Order, *_: Any) -> None:
            time.sleep(4.0)
            (order.run_dir / METRICS_FILE).touch()

        def hear(self, *_: Any) -> None:
            time.sleep(5.0)

    monkeypatch.setattr("clearl.runtimes.ray_driver.HostedLearner", Importing)
    monkeypatch.setattr("clearl.runtimes.ray_driver._LEAST_PATIENCE_S", 1.0)
    out = tmp_path / "run"
    run(config(worker_timeout_s=1.0), out, console=False)
    assert rows(out, "fault") == []


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
        monkeypatch.setattr("clearl.runtimes.ray_driver._LEAST_PATIENCE_S", 5.0)
    settings = config(
        worker_timeout_s=5.0,
        replay_store=store,
        buffer_frames=10**5,
        checkpoint_every_frames=7 * SLOTS * STEPS,
        eval_every_frames=256,
    )
    out, killed_after, seen = tmp_path / "run", 13, list[dict[str, int]]()
    saved_updates = 0

    def strike(row: Row) -> None:
        nonlocal saved_updates
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
    # Each worker was at most one round ahead of what had been read.
    assert all(ROUNDS + redone <= inserted <= ROUNDS + redone + 1 for inserted in saved["shards"])
    assert rows(out, "train")[-1]["replay"]["held"] == sum(saved["shards"]), "nothing that was stored is lost"
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
    cluster: Any, children: dict[str, Placed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearl.runtimes.restarts.MOST_FAULTS", 1)
    out, deaths = tmp_path / "run", list[int]()

    def strike() -> None:
        deaths.append(children["learner"].pid)
        os.kill(deaths[-1], signal.SIGKILL)

    with pytest.raises(WorkerError, match="the learner died more than .* times in 10 minutes: died: its worker"):
        run(config(), out, console=False, listeners=[at_updates({3: strike})])
    assert len(deaths) == 2 and RunDir.open(out).status == "failed"
    # Before the first checkpoint a new learner starts from nothing.
    kinds = [row["kind"] for row in rows(out, "segment", "fault", "train")]
    assert kinds == ["segment", "fault", "train", "train", "train"]
    assert f"(process {deaths[0]})" in rows(out, "fault")[0]["problem"]
    wait_for_end([*deaths, *(children[name].pid for name in WORKERS)])


def test_the_learner_may_be_on_another_node_that_sees_the_run_directory(
    cluster: Any, children: dict[str, Placed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (second,) = cluster.worker_nodes
    node = second.node_id
    monkeypatch.setattr("clearl.runtimes.ray_driver.learner_place", lambda *_: (node, 0))
    run(config(), tmp_path / "run", console=False)
    assert children["learner"].node == node
    assert_counts(tmp_path / "run")
    monkeypatch.setattr("clearl.runtimes.ray_driver.NamedTemporaryFile", elsewhere)
    with pytest.raises(ConfigError, match=r"goes to node 127.0.0.1, which does not see .*other: give an --out that"):
        run(config(), tmp_path / "other", console=False)


@contextmanager
def elsewhere(**_: Any) -> Iterator[Any]:
    """A file that is on this machine only, as far as another can tell."""
    yield SimpleNamespace(name="/nowhere/mark")


def test_errors_of_the_learner_are_those_of_the_run(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="device 'cuda' is not there; torch sees: cpu") as caught:
        run(config(device="cuda"), tmp_path / "run", console=False)
    assert caught.type is ConfigError and RunDir.open(tmp_path / "run").status == "failed"


@pytest.mark.parametrize(
    ("device", "gpus", "place"),
    [
        ("cpu", (0, 4), ("here", 0)), ("cuda", (0, 4), ("there", 1)), ("cuda", (1, 4), ("here", 1)),
        ("cuda:1", (1, 4), ("there", 2)), ("cuda", (0, 0), ("here", 0)), ("mps", (0, 4), ("here", 0)),
    ],
)  # fmt: skip
def test_the_learner_goes_where_the_gpu_is(device: str, gpus: tuple[int, int], place: tuple[str, int]) -> None:
    from clearl.runtimes.ray_nodes import learner_place

    nodes = [
        {"NodeID": node, "Alive": node != "dead", "Resources": {"CPU": 8.0, **({"GPU": float(count)} if count else {})}}
        for node, count in (("dead", 8), ("here", gpus[0]), ("there", gpus[1]))
    ]
    assert learner_place(device, "here", nodes) == place


def test_a_node_with_other_versions_is_named_before_training(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearl.runtimes.hosted.versions", lambda: {"clearl": "0.0.0", "python": "3.11"})
    with pytest.raises(ConfigError, match=r"node 127.0.0.1 has clearl .* \(here 0.0.0\): install the same versions"):
        run(config(), tmp_path / "run", console=False)
    assert [row["kind"] for row in rows(tmp_path / "run")] == []


def test_a_node_without_a_package_is_named_before_training(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_here = f"import os\nif os.getpid() != {os.getpid()}:\n    raise ImportError('No module named my_robot')\n"
    (tmp_path / "only_here.py").write_text(only_here)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"node 127.0.0.1 cannot run a worker: .*my_robot"):
        run(config(imports=("only_here",)), tmp_path / "run", console=False)


def test_more_workers_than_the_cluster_has_room_for(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="4 workers and 1 evaluators need 5 CPUs, the cluster has 4: give fewer"):
        run(config(workers=4), tmp_path / "run", console=False)


BUSY = """
import time
from clearl.runtimes.job import Order
from clearl.runtimes.messages import Alive, Ready, Synced

class PROGRAM:
    def __init__(self, outlet, setup, places):
        self.ready, self.outlet = Ready((), 0), outlet

    def handle(self, message):
        until = time.monotonic() + 3
        while time.monotonic() < until:
            self.outlet.send(Alive(True))
        yield Synced()
"""


def test_signs_of_life_are_heard_in_the_midst_of_work(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    from clearl.runtimes.ray_child import ChildActor, RayChild
    from clearl.runtimes.ray_site import PublishedWeights

    (tmp_path / "busy_program.py").write_text(BUSY)
    (tmp_path / "meta.json").write_text("{}")
    monkeypatch.syspath_prepend(tmp_path)
    make: Any = ray.remote
    actor = make(concurrency_groups={"watch": 1})(ChildActor)
    child = RayChild(lambda setup: actor.remote(), lambda name, node: None, Luggage.of(tmp_path))
    child.begin(Setup("busy", "busy_program", "", "", str(tmp_path), 0), [PublishedWeights(1)])
    heard: list[Any] = []
    while len(heard) < 1 or not isinstance(heard[-1], Synced):
        ray.wait(child.awaited, timeout=0.1)
        said = child.poll()
        heard += said
        if said and isinstance(said[-1], Ready):
            child.send(Sync())
    child.end()
    assert heard[0] == Ready((), 0) and set(heard[1:-1]) == {Alive(building=True)}


def test_a_node_dies_and_its_worker_goes_on_elsewhere_with_the_loss_counted(
    cluster: Any, children: dict[str, Placed], tmp_path: Path
) -> None:
    (second,) = cluster.worker_nodes
    out, lost_with_it = tmp_path / "run", []

    def end_node() -> None:
        lost_with_it.extend(name for name, child in children.items() if child.node == second.node_id)
        assert children["learner"].node != second.node_id
        cluster.remove_node(second, allow_graceful=False)

    run(config(replay_store="ram"), out, console=False, listeners=[at_updates({12: end_node})])
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
    settings, out = config(worker_timeout_s=2.0, frames_per_visit=rounds * SLOTS * STEPS), tmp_path / "run"
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
    settings, out = config(replay_store="ram", frames_per_visit=rounds * SLOTS * STEPS), tmp_path / "run"
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


def test_without_ray_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(MissingExtraError, match=r"runtime ray needs .* pip install 'clearl\[ray\]'"),
        connected(None, cpus=1),
    ):
        pass
