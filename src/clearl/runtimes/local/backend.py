"""The default runtime: workers and the evaluator in processes of this machine, pairs and weights in shared memory."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Sequence
from contextlib import closing

from clearl.runtimes.backend import Wake
from clearl.runtimes.host import keep_freed_memory
from clearl.runtimes.local.processes import LocalProcess, ProcessPool, process_pool, workers_of
from clearl.runtimes.local.shared_memory import SharedBlock, SharedPairs, SharedWeights
from clearl.runtimes.loop import run_loop
from clearl.runtimes.runtime import RunContext, RunSpec
from clearl.unroll import UnrollLayout


def run_local(spec: RunSpec) -> None:
    """Train with worker processes; children never outlive this call."""
    keep_freed_memory()
    suite = None if spec.factory is None else spec.factory.suite
    count = None if suite is None else workers_of(spec.config, suite.spec, suite)
    pool = process_pool(spec.config, spec.factory_entry, lambda: count)  # they import while the learner is built
    try:
        with spec.open() as context, closing(LocalBackend(context, pool)) as backend:
            run_loop(backend, context)
    finally:
        pool.close()


class LocalBackend:
    """See `clearl.runtimes.backend.Backend`."""

    keep_unrolls_after_checkpoint = True

    def __init__(self, context: RunContext, pool: ProcessPool) -> None:
        suite = context.factory.suite
        self.workers = workers_of(context.config, suite.spec, suite)
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
