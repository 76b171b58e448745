"""The learner within an actor: trains as every runtime with children does, and asks its driver for the children."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from clearl.records.reader import scan_rows
from clearl.records.schema import METRICS_FILE, Row
from clearl.runtimes.allocator import keep_freed_memory
from clearl.runtimes.distributed import run_at
from clearl.runtimes.job import Job, Order
from clearl.runtimes.messages import Setup
from clearl.runtimes.ray import EVALUATOR_CPUS, WORKER_CPUS
from clearl.runtimes.ray_child import PublishedWeights, RayChild, ReceivedPairs
from clearl.runtimes.ray_nodes import Crew
from clearl.runtimes.site import Wake
from clearl.runtimes.stopping import StopFlag
from clearl.types import UnrollLayout

_HEAR_S = 0.2


@dataclass(frozen=True)
class Wanted:
    """An actor for a worker or an evaluator, with Ray's options for a new one."""

    name: str
    options: dict[str, Any]


Question = Row | Wanted


class LearnerActor:
    """`train` in one thread; in another the driver comes to `hear` what that asks.

    A row is a question without an answer: training goes on when the driver has shown it, as in the other runtimes, and
    stands still where no driver is left.
    """

    def __init__(self) -> None:
        keep_freed_memory()
        self._stop = StopFlag()
        self._questions: SimpleQueue[Question] = SimpleQueue()
        self._answers: SimpleQueue[Any] = SimpleQueue()

    def arrive(self, mark: str) -> tuple[int, bool]:
        """This process, and whether it sees the file `mark`."""
        return os.getpid(), os.path.exists(mark)

    def train(self, order: Order, crew: Crew, deaths: Sequence[str]) -> None:
        """Train until the plan is through or the driver says stop; `deaths`: of all learners before this one."""
        luggage: Any = ray.get(crew.luggage)
        luggage.unpack(order.run_dir)
        with replace(order, stop=self._stop, listeners=[self._ask]).open() as job:
            told = [row.get("problem") for row in scan_rows(order.run_dir / METRICS_FILE).rows]
            run_at(RaySite(job, crew, self._ask), job, deaths=[death for death in deaths if death not in told])

    def _ask(self, question: Question) -> Any:
        self._questions.put(question)
        return self._answers.get()

    @ray.method(concurrency_group="line")
    def hear(self, stop: int | None, *answer: Any) -> Question | None:
        """Give the answer to the last question, if there was one, and wait a moment for the next."""
        self._stop.signal = stop
        for given in answer:
            self._answers.put(given)
        try:
            return self._questions.get(timeout=_HEAR_S)
        except Empty:
            return None


class RaySite:
    """See `clearl.runtimes.site.Site`. Keeps each worker on the node where its replay is."""

    keeps_later = False  # a node may hold files of an earlier run at the same path

    def __init__(self, job: Job, crew: Crew, ask: Callable[[Wanted], Any]) -> None:
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
        return ReceivedPairs()

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
