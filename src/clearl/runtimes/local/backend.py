"""The default runtime: workers and the evaluator in processes of this machine, pairs and weights in shared memory."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Sequence
from contextlib import closing
from math import prod

import numpy as np

from clearl.runtimes.backend import Wake
from clearl.runtimes.host import cores, keep_freed_memory
from clearl.runtimes.local.processes import SLOTS_IF_SMALL, LocalProcess, ProcessPool, process_pool
from clearl.runtimes.local.shared_memory import SharedBlock, SharedPairs, SharedWeights
from clearl.runtimes.loop import run_loop
from clearl.runtimes.runtime import RunContext, RunSpec
from clearl.spaces import TaskSpec
from clearl.tasks.suite import StepsSlowly
from clearl.unroll import UnrollLayout

_SMALL_BYTES = 4096


def run_local(spec: RunSpec) -> None:
    """Train with worker processes; children never outlive this call."""
    keep_freed_memory()
    pool = process_pool(spec.config, spec.factory_entry)  # they import while the learner is built
    try:
        with spec.open() as context, closing(LocalBackend(context, pool)) as backend:
            run_loop(backend, context)
    finally:
        pool.close()


def default_workers(cores: int, slots: int, spec: TaskSpec, *, slow_steps: bool = False) -> int:
    """Return how many workers keep the cores busy beside the learner.

    A worker's step has a fixed cost, whatever the number of its slots. Where observations are small that cost
    dominates, and few workers with many slots do better: the 32 unrolls of an update on MinAtar's Breakout cost one
    worker 22 ms of CPU and two 32, beside 16 for the update. With large observations the fixed cost is small, and so
    it is beside the steps of a physics engine: on HalfCheetah two workers made 1.2 times the frames of one on 2 cores.
    """
    observation = spec.observation
    nbytes = sum(
        prod(shape) * np.dtype(observation.parts[name].dtype).itemsize for name, shape in observation.shapes.items()
    )
    if nbytes <= _SMALL_BYTES and not slow_steps:
        return max(1, min(cores - 1, slots // SLOTS_IF_SMALL))
    return max(1, min(cores, slots // 4))


class LocalBackend:
    """See `clearl.runtimes.backend.Backend`."""

    keep_unrolls_after_checkpoint = True

    def __init__(self, context: RunContext, pool: ProcessPool) -> None:
        suite = context.factory.suite
        self.workers = context.config.workers or default_workers(
            cores(), context.config.slots, context.factory.layout.spec,
            slow_steps=isinstance(suite, StepsSlowly) and suite.slow_steps,
        )  # fmt: skip
        self.evaluators: Sequence[tuple[str, ...]] = [context.plan.evaluate]
        self._selector = selectors.DefaultSelector()
        self._idle = pool

    def take(self, wake: Wake, *, background: bool) -> LocalProcess:
        child = self._idle.take(background=background)
        self._selector.register(child.channel, selectors.EVENT_READ, wake)
        return child

    def prepare(self, *, background: bool) -> None:
        self._idle.prepare(background=background)

    def unregister(self, child: LocalProcess) -> None:
        self._selector.unregister(child.channel)

    def wait(self, wait_s: float) -> list[Callable[[], None]]:
        return [key.data for key, _ in self._selector.select(wait_s)]

    def pairs(self, layout: UnrollLayout, slots: int, draws: int) -> SharedPairs:
        return SharedPairs(SharedBlock.create(SharedPairs.nbytes(layout, slots, draws)), layout, slots, draws)

    def weight_store(self, size: int) -> SharedWeights:
        return SharedWeights(SharedBlock.create(SharedWeights.nbytes(size)), size)

    def close(self) -> None:
        self._selector.close()
