"""Many machines: workers and evaluators are actors of a Ray cluster, the learner stays in this process."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from clearl.config import to_yaml
from clearl.errors import ConfigError, MissingExtraError
from clearl.runtimes.allocator import keep_freed_memory
from clearl.runtimes.distributed import cores, divide, run_at
from clearl.runtimes.job import Job
from clearl.runtimes.messages import Setup, pack
from clearl.runtimes.site import Wake
from clearl.types import UnrollLayout

if TYPE_CHECKING:  # Ray is an extra
    from clearl.runtimes.ray_child import PublishedWeights, RayChild, ReceivedPairs

WORKER_CPUS = 1.0
EVALUATOR_CPUS = 0.1
_PROBE_S = 120.0
_KNOCK_S = 5.0

_QUIET = {"RAY_DEDUP_LOGS_SKIP_REGEX": ".", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# Ray's own switch for "this machine only"; without it, it listens on every interface, also when told 127.0.0.1.
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def run_ray(job: Job) -> None:
    """Train with the actors of a cluster; they never outlive this call."""
    keep_freed_memory()
    with connected(job.config.address, cpus=_wanted_cpus(job, job.config.workers or cores())):
        site = RaySite(job)
        site.check()
        run_at(site, job)


@contextmanager
def connected(address: str | None, *, cpus: int) -> Iterator[None]:
    """A cluster: the one this process has joined already, that at `address`, or a new one of this machine alone."""
    with _environment({**_QUIET, **({} if address else _LOOPBACK)}):
        try:
            import ray
        except ImportError:
            raise MissingExtraError("runtime ray", "ray", "install it with: pip install 'clearl[ray]'") from None
        if ray.is_initialized():
            yield
            return
        options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            options |= {"address": "local", "num_cpus": cpus, "include_dashboard": False}
        with _own_signals():
            try:
                _knock(address)
                ray.init(**options)
            except (OSError, RuntimeError, ValueError) as error:
                raise ConfigError(
                    f"no Ray cluster at address {address or 'local'}: {str(error).splitlines()[0]}. Is it running, "
                    "with the same RAY_AUTH_MODE and token? docs/cluster.md shows how"
                ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str | None) -> None:
    """Ray itself tries for minutes, and complains the whole time, where nobody listens."""
    host, _, port = (address or "").rpartition(":")
    if port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=_KNOCK_S).close()


class RaySite:
    """See `clearl.runtimes.site.Site`. Keeps each worker on the node where its replay is."""

    keeps_later = False  # a node may hold files of an earlier run at the same path

    def __init__(self, job: Job) -> None:
        import ray

        from clearl.runtimes.ray_actor import ChildActor, Luggage

        self._ray, self._job = ray, job
        self._luggage = ray.put(Luggage.of(job.run_dir))
        make: Any = ray.remote  # its type does not know concurrency groups
        self._actor_class = make(concurrency_groups={"watch": 1})(ChildActor)
        self.evaluators: Sequence[tuple[str, ...]] = [(task,) for task in job.plan.evaluate]
        cpus = ray.cluster_resources().get("CPU", 0.0)
        by_cluster = min(job.config.slots, max(1, int(cpus - EVALUATOR_CPUS * len(self.evaluators))))
        self.workers = job.config.workers or by_cluster
        self._homes: dict[str, tuple[str, bool]] = {}
        self._children: dict[RayChild, Wake] = {}

    def check(self) -> None:
        """Refuse a cluster that is too small, has other versions or lacks packages; learn who holds which replay."""
        need, cpus = _wanted_cpus(self._job, self.workers), self._ray.cluster_resources().get("CPU", 0.0)
        if _needed(self._job, self.workers) > cpus:
            raise ConfigError(
                f"{self.workers} workers and {len(self.evaluators)} evaluators need {need} CPUs, the cluster has "
                f"{cpus:g}: give fewer --workers, or add nodes"
            )
        held = self._probe_nodes()
        for index, slots in enumerate(divide(self._job.config.slots, self.workers)):
            counts = sorted((len(held[node] & set(slots)), node) for node in held)
            if counts[-1][0] > (counts[-2][0] if len(counts) > 1 else 0):  # not where all see the same disk
                self._homes[f"worker-{index}"] = (counts[-1][1], True)

    def _probe_nodes(self) -> dict[str, set[int]]:
        """Which slots' replay each node holds."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from clearl.runtimes.ray_actor import probe, versions

        job, ours = self._job, versions()
        setup = pack(Setup("", "", job.parts_entry, to_yaml(job.config), str(job.run_dir.absolute()), 0,
                           tasks=job.plan.evaluate))  # fmt: skip
        nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in self._ray.nodes() if node["Alive"]}
        task, held = self._ray.remote(num_cpus=0, max_retries=0)(probe), {}
        answers = {
            node: task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
                setup, self._luggage
            )
            for node in nodes
        }
        for node, answer in answers.items():
            try:
                theirs, problem, slots = self._ray.get(answer, timeout=_PROBE_S)
            except self._ray.exceptions.RayError as error:
                told = "it did not answer" if isinstance(error, TimeoutError) else str(error).strip().splitlines()[-1]
                raise ConfigError(f"node {nodes[node]} cannot run a worker ({told}): install clearl there") from None
            others = [f"{name} {theirs[name]} (here {ours[name]})" for name in ours if theirs[name] != ours[name]]
            if others:
                raise ConfigError(f"node {nodes[node]} has {', '.join(others)}: install the same versions everywhere")
            if problem:
                raise ConfigError(f"node {nodes[node]} cannot run a worker: {problem}")
            held[node] = set(slots)
        return held

    def take(self, wake: Wake) -> RayChild:
        from clearl.runtimes.ray_child import RayChild

        child = RayChild(self._place, lambda name, node: self._homes.update({name: (node, False)}), self._luggage)
        self._children[child] = wake
        return child

    def prepare(self) -> None: ...

    def let_go(self, child: RayChild) -> None:
        del self._children[child]

    def listen(self, wait_s: float) -> list[Wake]:
        awaited = {ref: wake for child, wake in self._children.items() for ref in child.awaited}
        if not awaited:
            time.sleep(wait_s)
            return []
        refs = list(awaited)
        if wait_s and not self._ray.wait(refs, num_returns=1, timeout=wait_s)[0]:
            return []
        ready, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        return [awaited[ref] for ref in ready]

    def pairs(self, layout: UnrollLayout, slots: int) -> ReceivedPairs:
        from clearl.runtimes.ray_child import ReceivedPairs

        return ReceivedPairs()

    def board(self, size: int) -> PublishedWeights:
        from clearl.runtimes.ray_child import PublishedWeights

        return PublishedWeights(size)

    def _place(self, setup: Setup) -> Any:
        """An actor; on the node where its shards are if that lives, else wherever there is room."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options: dict[str, Any] = {"num_cpus": WORKER_CPUS if setup.slots else EVALUATOR_CPUS}
        if setup.slots and setup.name in self._homes:
            node, may_be_full = self._homes[setup.name]
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(
                node, soft=True, _spill_on_unavailable=may_be_full
            )
        elif setup.slots:
            options["scheduling_strategy"] = "SPREAD"
        return self._actor_class.options(**options).remote()


def _needed(job: Job, workers: int) -> float:
    return WORKER_CPUS * workers + EVALUATOR_CPUS * len(job.plan.evaluate)


def _wanted_cpus(job: Job, workers: int) -> int:
    """What Ray is told that this machine has: it counts, it does not measure."""
    return math.ceil(_needed(job, workers))


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Variables that Ray reads when it is imported and started; what the user has set stays."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray puts a handler of its own on SIGTERM; ours stays."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
