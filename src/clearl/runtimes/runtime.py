"""The contract of runtimes: a `RunSpec` asks for a run, a `Factory` makes its parts in the process that needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from clearl.acting.evaluator import Evaluator
from clearl.acting.worker import Worker
from clearl.config import RunConfig, to_yaml
from clearl.learning.batching import Intake
from clearl.learning.learner import Learner
from clearl.nets.network import PolicyNetwork
from clearl.registry import load_entry
from clearl.runtimes.host import StopFlag
from clearl.runtimes.recorder import Recorder, RowListener
from clearl.storage.checkpoints import CheckpointStore, Saved
from clearl.tasks.plan import Plan
from clearl.tasks.schedule import PlanCursor
from clearl.tasks.suite import Suite
from clearl.unroll import UnrollLayout


class Factory(Protocol):
    """Makes the parts of a run from its config; another process makes the same ones from the same config."""

    suite: Suite

    @property
    def layout(self) -> UnrollLayout: ...

    @property
    def draws(self) -> int:
        """Replayed unrolls that a worker sends for each slot with its new one."""
        ...

    @property
    def replay_store(self) -> str:
        """The kind of replay store: `ram` or `disk`."""
        ...

    def network(self) -> PolicyNetwork:
        """Return the network of this process, with the run's initial weights until others are loaded."""
        ...

    def worker(
        self, slots: Sequence[int], network: PolicyNetwork, *, incarnation: int = 0, suite: Suite | None = None
    ) -> Worker:
        """Return a worker for some slots; `incarnation` counts its restarts, each with random numbers of its own.

        `suite` takes the place of the run's own, which it wraps.
        """
        ...

    def evaluator(self, network: PolicyNetwork, *, suite: Suite | None = None) -> Evaluator: ...


@dataclass(frozen=True)
class RunContext:
    """One network's whole training, with its parts made."""

    config: RunConfig
    plan: Plan
    factory: Factory
    factory_entry: str
    """See `RunSpec.factory_entry`."""
    learner: Learner
    intake: Intake
    cursor: PlanCursor
    recorder: Recorder
    checkpoints: CheckpointStore
    saved: Saved | None
    """The checkpoint that the run resumes from. Rows were cut back to it, so it is determined only once."""
    run_dir: Path
    stop: StopFlag

    @cached_property
    def config_yaml(self) -> str:
        """The config, as every worker and evaluator gets it."""
        return to_yaml(self.config)


@dataclass(frozen=True)
class RunSpec:
    """One network's whole training as requested; without `factory` and `listeners` it can go to another machine."""

    config: RunConfig
    plan: Plan
    run_dir: Path
    open_context: Callable[[RunSpec, Factory], AbstractContextManager[RunContext]]
    """Opens the run in the process of its learner."""
    factory_entry: str
    """`module:function` that makes the factory out of (config as YAML, run directory), in another process."""
    factory: Factory | None
    """The factory of this process; None in a process that has to make its own."""
    stop: StopFlag
    listeners: Sequence[RowListener]

    def open(self) -> AbstractContextManager[RunContext]:
        """Open the run from its newest checkpoint on; its files are closed at the end of the context."""
        factory = self.factory or load_entry(self.factory_entry)(to_yaml(self.config), self.run_dir)
        return self.open_context(self, factory)


class Runtime(Protocol):
    """Trains a run to the end of its plan, or until it is told to stop."""

    def __call__(self, spec: RunSpec) -> None: ...
