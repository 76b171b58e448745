"""The actors of a Ray cluster as the place of a run's children; see `clearl.runtimes.site`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from clearl.runtimes.hosted import Ask, ReceivedPairs
from clearl.runtimes.job import Job
from clearl.runtimes.messages import Setup
from clearl.runtimes.ray import EVALUATOR_CPUS, WORKER_CPUS
from clearl.runtimes.ray_child import RayChild
from clearl.runtimes.ray_nodes import Crew
from clearl.runtimes.site import Wake
from clearl.types import UnrollLayout


@dataclass(frozen=True)
class Wanted:
    """An actor for a worker or an evaluator, with Ray's options for a new one: a question to the driver."""

    name: str
    options: dict[str, Any]


class PublishedWeights:
    """The newest weights as one object in the store; every node fetches it once, however many workers it has."""

    def __init__(self, size: int) -> None:
        self._next = np.zeros(size, np.float32)
        self.shown: tuple[int, int, Any] = (0, 0, None)

    def next_place(self) -> np.ndarray:
        return self._next

    def show(self, version: int, frames: int) -> None:
        self.shown = (version, frames, ray.put(self._next))

    def close(self) -> None:
        self.shown = (0, 0, None)


class RaySite:
    """Keeps each worker on the node where its replay is."""

    keeps_later = False  # a node may hold files of an earlier run at the same path

    def __init__(self, crew: Crew, job: Job, ask: Ask) -> None:
        self._luggage, self._ask = crew.luggage, ask
        self.workers = crew.workers
        self.evaluators: Sequence[tuple[str, ...]] = [(task,) for task in job.plan.evaluate]
        self._homes = {name: (node, True) for name, node in crew.homes.items()}
        self._children: dict[RayChild, Wake] = {}

    def take(self, wake: Wake) -> RayChild:
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
        if wait_s and not ray.wait(refs, num_returns=1, timeout=wait_s)[0]:
            return []
        ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        return [awaited[ref] for ref in ready]

    def pairs(self, layout: UnrollLayout, slots: int) -> ReceivedPairs:
        return ReceivedPairs()  # views of this node's object store, which outlive the worker

    def board(self, size: int) -> PublishedWeights:
        return PublishedWeights(size)

    def _place(self, setup: Setup) -> Any:
        """An actor; on the node where its shards are if that lives, else wherever there is room."""
        options: dict[str, Any] = {"num_cpus": WORKER_CPUS if setup.slots else EVALUATOR_CPUS}
        if setup.slots and setup.name in self._homes:
            node, may_be_full = self._homes[setup.name]
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(
                node, soft=True, _spill_on_unavailable=may_be_full
            )
        elif setup.slots:
            options["scheduling_strategy"] = "SPREAD"
        return self._ask(Wanted(setup.name, options))
