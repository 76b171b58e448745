"""A Ray cluster as the host of a run's actors, and the choice of their nodes."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from clearl.errors import ConfigError
from clearl.runtimes.cluster import hosted
from clearl.runtimes.cluster.backend import ActorLost, ActorRequest, ClusterBackend, ClusterPlan
from clearl.runtimes.cluster.driver import HostedLearner, MakeBackend
from clearl.runtimes.cluster.hosted import RayProgram, RunBundle
from clearl.runtimes.cluster.ray import EVALUATOR_CPUS, WORKER_CPUS, needed_cpus
from clearl.runtimes.host import StopFlag
from clearl.runtimes.loop import divide
from clearl.runtimes.runtime import RunSpec


class RayActor:
    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def call(self, method: str, *given: Any) -> Any:
        return getattr(self.handle, method).remote(*given)

    def call_aside(self, method: str, *given: Any) -> Any:
        return getattr(self.handle, method).options(concurrency_group="aside").remote(*given)

    def kill(self) -> None:
        ray.kill(self.handle)


class RayTransport:
    def arrived(self, calls: Sequence[Any], wait_s: float) -> list[Any]:
        if wait_s and not ray.wait(list(calls), timeout=wait_s)[0]:
            return []
        return ray.wait(list(calls), num_returns=len(calls), timeout=0)[0]

    def answer(self, call: Any) -> Any:
        try:
            return ray.get(call)
        except RayTaskError as error:
            raise error.cause from error
        except RayError as error:
            raise lost(error) from error

    def publish(self, value: Any) -> Any:
        return ray.put(value)


class RayHost:
    def __init__(self, spec: RunSpec) -> None:
        self._spec, self.transport = spec, RayTransport()
        self.bundle = self.transport.publish(RunBundle.of(spec.run_dir))
        make: Any = ray.remote  # its type does not know concurrency groups
        self._learners, self._children = map(make(concurrency_groups={"aside": 1}), (HostedLearner, RayProgram))

    def learner(self) -> tuple[RayActor, str]:
        here = ray.get_runtime_context().get_node_id()
        node, gpus = learner_place(self._spec.config.device, here, ray.nodes())
        actor = self._learners.options(num_cpus=0, num_gpus=gpus, **on_node(node)).remote()
        return RayActor(actor), addresses()[node]

    def child(self, request: ActorRequest) -> RayActor:
        return RayActor(self._children.options(**child_place(request)).remote(background=not request.is_worker))

    def check(self) -> MakeBackend:
        return partial(ClusterBackend, self.transport, check_nodes(self._spec, self.bundle))


def lost(error: RayError) -> ActorLost:
    """Translate Ray's error for a call whose process is gone.

    Ray knows no exit codes: environment code that exits, a crash and a SIGKILL look the same to it, and count as
    faults. What happens to a node does not.
    """
    if isinstance(error, OutOfMemoryError):
        return ActorLost("was killed by Ray, as its node ran out of memory (give fewer --workers or --slots)")
    why = in_words(error)
    return ActorLost(why, is_fault=why.endswith(_PROCESS_DIED))


def in_words(error: RayError) -> str:
    """Return the one sentence of Ray's message that says why."""
    text = " ".join(str(error).split())
    found = re.search(r"because (its .*?has died|the actor's .*?died|.*?)(\.|$)", text)
    return f"died: {found[1] if found else text[:200]}"


_PROCESS_DIED = "its worker process has died"
_LOOK_S, _GLANCE_S = 120.0, 0.2


def check_nodes(spec: RunSpec, bundle: Any) -> ClusterPlan:
    """Refuse a cluster that is too small, has other versions or lacks packages; find the nodes of replay."""
    config, evaluators = spec.config, len(spec.plan.evaluate)
    cpus = ray.cluster_resources().get("CPU", 0.0)
    workers = config.workers or min(config.slots, max(1, int(cpus - EVALUATOR_CPUS * evaluators)))
    if (need := needed_cpus(spec, workers)) > cpus:
        raise ConfigError(
            f"{workers} workers and {evaluators} evaluators need {math.ceil(need)} CPUs, the cluster has "
            f"{cpus:g}: give fewer --workers, or add nodes"
        )
    held = _probe_nodes(spec, bundle)
    return ClusterPlan(workers, hosted.replay_nodes(held, divide(config.slots, workers)), bundle)


def _probe_nodes(spec: RunSpec, bundle: Any) -> dict[str, set[int]]:
    """Return which slots' replay each node holds."""
    nodes, held, asked = addresses(), {}, (hosted.probe_request(spec), bundle, hosted.versions())
    look = ray.remote(num_cpus=0, max_retries=0)(hosted.probe_node)
    for node, answer in [(node, look.options(**on_node(node)).remote(*asked)) for node in nodes]:
        try:
            _wait_for(answer, spec.stop)
            problem, slots = ray.get(answer, timeout=0)
        except RayError as error:
            reason = "it did not answer" if isinstance(error, TimeoutError) else str(error).strip().splitlines()[-1]
            problem = f"cannot run a worker ({reason}): install clearl there"
        if problem:
            raise ConfigError(f"node {nodes[node]} {problem}")
        held[node] = set(slots)
    return held


def _wait_for(answer: Any, stop: StopFlag) -> None:
    """Wait for a node's answer, not longer than `_LOOK_S`, and not if the user has lost patience."""
    deadline = time.monotonic() + _LOOK_S
    while not ray.wait([answer], timeout=_GLANCE_S)[0] and time.monotonic() < deadline:
        if stop:
            raise KeyboardInterrupt  # before anything was trained


def learner_place(device: str, here: str, nodes: Iterable[Mapping[str, Any]]) -> tuple[str, int]:
    """Return the node for the learner and its number of GPUs: `here`, or a node with GPUs if `here` has too few."""
    request = re.fullmatch(r"cuda(?::(\d+))?", device)
    gpus = 1 + int(request[1] or 0) if request else 0
    fit = [node["NodeID"] for node in nodes if node["Alive"] and node["Resources"].get("GPU", 0) >= gpus]
    return (here, gpus) if here in fit else (fit[0], gpus) if fit else (here, 0)


def child_place(request: ActorRequest) -> dict[str, Any]:
    """Return the options of a child's actor: on the node that holds its replay if that is alive, else anywhere."""
    if not request.is_worker:
        return {"num_cpus": EVALUATOR_CPUS}
    affinity = request.affinity
    place = "SPREAD" if affinity is None else NodeAffinitySchedulingStrategy(
        affinity.node, soft=True, _spill_on_unavailable=affinity.may_be_full)  # fmt: skip
    return {"num_cpus": WORKER_CPUS, "scheduling_strategy": place}


def on_node(node: str) -> dict[str, Any]:
    """Return the options of an actor or task that runs on `node` and nowhere else."""
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def addresses() -> dict[str, str]:
    """Return the addresses of the nodes that are alive."""
    return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
