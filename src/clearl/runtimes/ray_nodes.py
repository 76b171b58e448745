"""The nodes of a Ray cluster before training: which can do it, which holds whose replay, and where the learner goes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from clearl.config import to_yaml
from clearl.errors import ConfigError
from clearl.runtimes import hosted
from clearl.runtimes.distributed import divide
from clearl.runtimes.job import Order
from clearl.runtimes.messages import Setup, pack
from clearl.runtimes.ray import EVALUATOR_CPUS, needed_cpus

_PROBE_S = 120.0


@dataclass(frozen=True)
class Crew:
    """Whom every learner of a run works with."""

    workers: int
    homes: Mapping[str, str]
    """The node that holds the replay of each worker, where one does."""
    luggage: Any
    """A reference to `clearl.runtimes.hosted.Luggage`."""


def check_nodes(order: Order, luggage: Any) -> Crew:
    """Refuse a cluster that is too small, has other versions or lacks packages; learn who holds which replay."""
    config, evaluators = order.config, len(order.plan.evaluate)
    cpus = ray.cluster_resources().get("CPU", 0.0)
    workers = config.workers or min(config.slots, max(1, int(cpus - EVALUATOR_CPUS * evaluators)))
    if (need := needed_cpus(order, workers)) > cpus:
        raise ConfigError(
            f"{workers} workers and {evaluators} evaluators need {math.ceil(need)} CPUs, the cluster has "
            f"{cpus:g}: give fewer --workers, or add nodes"
        )
    held, homes = _probe(order, luggage), {}
    for index, slots in enumerate(divide(config.slots, workers)):
        counts = sorted((len(held[node] & set(slots)), node) for node in held)
        if counts[-1][0] > (counts[-2][0] if len(counts) > 1 else 0):  # not where all see the same disk
            homes[f"worker-{index}"] = counts[-1][1]
    return Crew(workers, homes, luggage)


def learner_place(device: str, here: str, nodes: Iterable[Mapping[str, Any]]) -> tuple[str, int]:
    """The node for the learner and how many GPUs it is to see: where they are, if that is not `here`; else `here`."""
    wanted = re.fullmatch(r"cuda(?::(\d+))?", device)
    gpus = 1 + int(wanted[1] or 0) if wanted else 0
    fit = [node["NodeID"] for node in nodes if node["Alive"] and node["Resources"].get("GPU", 0) >= gpus]
    return (here, gpus) if here in fit else (fit[0], gpus) if fit else (here, 0)


def on_node(node: str) -> dict[str, Any]:
    """Options of an actor or task that runs there and nowhere else."""
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def addresses() -> dict[str, str]:
    """Of the nodes that live."""
    return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}


def _probe(order: Order, luggage: Any) -> dict[str, set[int]]:
    """Which slots' replay each node holds."""
    setup = pack(Setup("", "", order.parts_entry, to_yaml(order.config), str(order.run_dir.absolute()), 0,
                       tasks=order.plan.evaluate))  # fmt: skip
    nodes, ours, held = addresses(), hosted.versions(), {}
    task = ray.remote(num_cpus=0, max_retries=0)(hosted.look_around)
    answers = {node: task.options(**on_node(node)).remote(setup, luggage) for node in nodes}
    for node, answer in answers.items():
        try:
            theirs, problem, slots = ray.get(answer, timeout=_PROBE_S)
        except RayError as error:
            told = "it did not answer" if isinstance(error, TimeoutError) else str(error).strip().splitlines()[-1]
            raise ConfigError(f"node {nodes[node]} cannot run a worker ({told}): install clearl there") from None
        others = [f"{name} {theirs[name]} (here {ours[name]})" for name in ours if theirs[name] != ours[name]]
        if others:
            raise ConfigError(f"node {nodes[node]} has {', '.join(others)}: install the same versions everywhere")
        if problem:
            raise ConfigError(f"node {nodes[node]} cannot run a worker: {problem}")
        held[node] = set(slots)
    return held
