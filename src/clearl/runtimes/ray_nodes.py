"""The nodes of a Ray cluster: which can do a run, and where its actors go."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from clearl.errors import ConfigError
from clearl.runtimes import hosted
from clearl.runtimes.actors import Crew, Wanted
from clearl.runtimes.distributed import divide
from clearl.runtimes.job import Order
from clearl.runtimes.ray import EVALUATOR_CPUS, WORKER_CPUS, needed_cpus

_LOOK_S = 120.0


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
    held = _look_around(order, luggage)
    return Crew(workers, hosted.homes(held, divide(config.slots, workers)), luggage)


def _look_around(order: Order, luggage: Any) -> dict[str, set[int]]:
    """Which slots' replay each node holds."""
    nodes, held, asked = addresses(), {}, (hosted.errand(order), luggage, hosted.versions())
    look = ray.remote(num_cpus=0, max_retries=0)(hosted.look_around)
    for node, answer in [(node, look.options(**on_node(node)).remote(*asked)) for node in nodes]:
        try:
            problem, slots = ray.get(answer, timeout=_LOOK_S)
        except RayError as error:
            told = "it did not answer" if isinstance(error, TimeoutError) else str(error).strip().splitlines()[-1]
            problem = f"cannot run a worker ({told}): install clearl there"
        if problem:
            raise ConfigError(f"node {nodes[node]} {problem}")
        held[node] = set(slots)
    return held


def learner_place(device: str, here: str, nodes: Iterable[Mapping[str, Any]]) -> tuple[str, int]:
    """The node for the learner and how many GPUs it is to see: where they are, if that is not `here`; else `here`."""
    wanted = re.fullmatch(r"cuda(?::(\d+))?", device)
    gpus = 1 + int(wanted[1] or 0) if wanted else 0
    fit = [node["NodeID"] for node in nodes if node["Alive"] and node["Resources"].get("GPU", 0) >= gpus]
    return (here, gpus) if here in fit else (fit[0], gpus) if fit else (here, 0)


def child_place(wanted: Wanted) -> dict[str, Any]:
    """Options of its actor: on the node where its replay is if that lives, else wherever there is room."""
    if not wanted.is_worker:
        return {"num_cpus": EVALUATOR_CPUS}
    home = wanted.home
    place = "SPREAD" if home is None else NodeAffinitySchedulingStrategy(
        home.node, soft=True, _spill_on_unavailable=home.may_be_full)  # fmt: skip
    return {"num_cpus": WORKER_CPUS, "scheduling_strategy": place}


def on_node(node: str) -> dict[str, Any]:
    """Options of an actor or task that runs there and nowhere else."""
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def addresses() -> dict[str, str]:
    """Of the nodes that live."""
    return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
