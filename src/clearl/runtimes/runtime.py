"""What a runtime is given: an order for one run, which makes the parts of it wherever the runtime wants them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from clearl.acting.evaluator import Evaluator
from clearl.acting.worker import Worker
from clearl.config import RunConfig
from clearl.learning.batching import Intake
from clearl.learning.learner import Learner
from clearl.nets.network import PolicyNetwork
from clearl.registry import load_entry
from clearl.runtimes.host import StopFlag
from clearl.runtimes.recorder import Recorder, RowListener
from clearl.storage.checkpoints import CheckpointStore
from clearl.tasks.plan import Plan
from clearl.tasks.schedule import PlanCursor
from clearl.unroll import UnrollLayout


class Factory(Protocol):
    """Makes the parts of a run from its config; another process makes the same ones from the same config."""

    layout: UnrollLayout
    draws: int
    """Replayed unrolls that a worker sends for each slot with its new one."""

    def network(self) -> PolicyNetwork:
        """A network with the run's initial weights."""
        ...

    def worker(self, slots: Sequence[int], network: PolicyNetwork, *, incarnation: int = 0) -> Worker:
        """A worker for some slots; `incarnation` counts its restarts, each with random numbers of its own."""
        ...

    def evaluator(self, network: PolicyNetwork) -> Evaluator: ...


@dataclass(frozen=True)
class RunContext:
    """One network's whole training, its parts ready made."""

    config: RunConfig
    plan: Plan
    factory: Factory
    factory_entry: str
    """`module:function` that makes `parts` again out of (config as YAML, run directory), in another process."""
    learner: Learner
    intake: Intake
    cursor: PlanCursor
    recorder: Recorder
    checkpoints: CheckpointStore
    run_dir: Path
    stop: StopFlag


@dataclass(frozen=True)
class RunSpec:
    """One network's whole training as it is asked for: plain data but for `stop` and `listeners`."""

    config: RunConfig
    plan: Plan
    run_dir: Path
    job_entry: str
    """`module:function` that makes the job of this order, in whichever process the learner is to be."""
    factory_entry: str
    stop: StopFlag
    listeners: Sequence[RowListener]

    def open(self) -> AbstractContextManager[RunContext]:
        """The job, from the newest checkpoint on; its files are closed at the end of the context."""
        return load_entry(self.job_entry)(self)


class Runtime(Protocol):
    """Carries out an order to its end, or until it is stopped; resumes where the checkpoints say so."""

    def __call__(self, spec: RunSpec) -> None: ...
