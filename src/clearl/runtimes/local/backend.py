"""The default runtime: workers and the evaluator in processes of this machine, pairs and weights in shared memory."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Sequence
from contextlib import closing
from math import prod

import numpy as np

from clearl.runtimes.backend import Wake
from clearl.runtimes.host import cores, keep_freed_memory
from clearl.runtimes.local.processes import SLOTS_IF_SMALL, ChildProcess, Spares, spare_children
from clearl.runtimes.local.shared_memory import PairBlock, SharedBlock, WeightBoard
from clearl.runtimes.loop import run_at
from clearl.runtimes.runtime import Job, Order
from clearl.spaces import TaskSpec
from clearl.unroll import UnrollLayout

_SMALL_BYTES = 4096


def run_local(order: Order) -> None:
    """Train with worker processes; children never outlive this call."""
    keep_freed_memory()
    spares = spare_children(order.config, order.parts_entry)  # they import while the learner is built
    try:
        with order.open() as job, closing(_ThisMachine(job, spares)) as site:
            run_at(site, job)
    finally:
        spares.close()


def default_workers(cores: int, slots: int, spec: TaskSpec) -> int:
    """Workers that keep the cores busy beside the learner.

    A step costs a worker something whatever the number of its slots. Where observations are small that is most of it,
    and few workers with many slots do better: the 32 unrolls of an update on MinAtar's Breakout cost one worker 22 ms
    of CPU and two 32, beside 16 for the update. Large observations take their time by themselves.
    """
    observation = spec.observation
    nbytes = sum(
        prod(shape) * np.dtype(observation.parts[name].dtype).itemsize for name, shape in observation.shapes.items()
    )
    if nbytes <= _SMALL_BYTES:
        return max(1, min(cores - 1, slots // SLOTS_IF_SMALL))
    return max(1, min(cores, slots // 4))


class _ThisMachine:
    """See `clearl.runtimes.backend.Site`."""

    keeps_later = True

    def __init__(self, job: Job, spares: Spares) -> None:
        self.workers = job.config.workers or default_workers(cores(), job.config.slots, job.parts.layout.spec)
        self.evaluators: Sequence[tuple[str, ...]] = [job.plan.evaluate]
        self._selector = selectors.DefaultSelector()
        self._spares = spares

    def take(self, wake: Wake) -> ChildProcess:
        child = self._spares.take()
        self._selector.register(child.channel, selectors.EVENT_READ, wake)
        return child

    def prepare(self) -> None:
        self._spares.prepare()

    def let_go(self, child: ChildProcess) -> None:
        self._selector.unregister(child.channel)

    def listen(self, wait_s: float) -> list[Callable[[], None]]:
        return [key.data for key, _ in self._selector.select(wait_s)]

    def pairs(self, layout: UnrollLayout, slots: int, draws: int) -> PairBlock:
        return PairBlock(SharedBlock.create(PairBlock.nbytes(layout, slots, draws)), layout, slots, draws)

    def board(self, size: int) -> WeightBoard:
        return WeightBoard(SharedBlock.create(WeightBoard.nbytes(size)), size)

    def close(self) -> None:
        self._selector.close()
