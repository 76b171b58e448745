"""A Ray cluster of two nodes on this machine, a small run for it, and its actors as they are placed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from whole_runs import rows, small_config, state

from clearl.config import RunConfig
from clearl.records.run_dir import RunDir
from clearl.records.schema import Row
from clearl.runtimes.cluster.backend import ActorRequest
from clearl.runtimes.cluster.driver import Driver
from clearl.runtimes.cluster.ray import connected

SLOTS, STEPS, ROUNDS = 4, 8, 24
NODE_CPUS = (3, 1)
WORKERS = ("worker-0", "worker-1")


def ray_config(**changes: Any) -> RunConfig:
    settings = {
        "runtime": "ray", "workers": 2, "cycles": 1, "tasks": ("breakout",), "slots": SLOTS, "batch_unrolls": SLOTS,
        "unroll_steps": STEPS, "frames_per_visit": ROUNDS * SLOTS * STEPS, "buffer_frames": 320,
        "record_every_updates": 1, "eval_every_frames": 10**6, "checkpoint_every_frames": None,
    }  # fmt: skip
    return small_config(**{**settings, **changes})


def at_updates(deeds: dict[int, Callable[[], None]]) -> Callable[[Row], None]:
    def wait(row: Row) -> None:
        if row["kind"] == "train" and row["updates"] in deeds:
            deeds[row["updates"]]()

    return wait


def assert_counts(out: Path) -> None:
    saved = state(out)
    assert RunDir.open(out).status == "finished"
    assert saved["learner"]["state"]["counters"]["updates"] == ROUNDS
    assert saved["shards"] == [ROUNDS] * SLOTS
    assert [row["updates"] for row in rows(out, "train")] == list(range(1, ROUNDS + 1))


@pytest.fixture(scope="session")
def listening() -> set[str]:
    """Where the processes of a Ray of our own listen. Before all others import Ray: with all that keeps it quiet."""
    with connected(None, cpus=1):
        processes = psutil.Process().children(recursive=True)
        found = [port for process in processes for port in process.net_connections("inet")]
        return {port.laddr.ip for port in found if port.status == psutil.CONN_LISTEN}


@pytest.fixture(scope="module")
def ray_cluster(listening: set[str]) -> Iterator[None]:
    """A Ray of this machine alone, which the runs of a module share."""
    with connected(None, cpus=5):
        yield


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
    from clearl.runtimes.cluster.ray_host import RayActor, RayHost

    found: dict[str, Placed] = {}
    child, learner = Driver._child, RayHost.learner

    def remember_child(self: Driver, wanted: ActorRequest) -> Any:
        actor: Any = child(self, wanted)
        found[wanted.name] = Placed(actor.handle)
        return actor

    def remember_learner(self: RayHost) -> tuple[RayActor, str]:
        actor, address = learner(self)
        found["learner"] = Placed(actor.handle)
        return actor, address

    monkeypatch.setattr(Driver, "_child", remember_child)
    monkeypatch.setattr(RayHost, "learner", remember_learner)
    return found
