"""What a runtime is given: the parts of one run, ready made, and the means to make more of them elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from clearl.checkpoint import CheckpointStore
from clearl.config import RunConfig
from clearl.evaluator import Evaluator
from clearl.intake import Intake
from clearl.learner import Learner
from clearl.nets.network import PolicyNetwork
from clearl.runtimes.recorder import Recorder
from clearl.runtimes.stopping import StopFlag
from clearl.tasks.cursor import PlanCursor
from clearl.tasks.plan import Plan
from clearl.types import UnrollLayout
from clearl.worker import Worker


class Parts(Protocol):
    """Makes the parts of a run from its config; another process makes the same ones from the same config."""

    layout: UnrollLayout

    def network(self) -> PolicyNetwork:
        """A network with the run's initial weights."""
        ...

    def worker(self, slots: Sequence[int], network: PolicyNetwork, *, incarnation: int = 0) -> Worker:
        """A worker for some slots; `incarnation` counts its restarts, each with random numbers of its own."""
        ...

    def evaluator(self, network: PolicyNetwork) -> Evaluator: ...


@dataclass(frozen=True)
class Job:
    """One network's whole training."""

    config: RunConfig
    plan: Plan
    parts: Parts
    parts_entry: str
    """`module:function` that makes `parts` again out of (config as YAML, run directory), in another process."""
    learner: Learner
    intake: Intake
    cursor: PlanCursor
    recorder: Recorder
    checkpoints: CheckpointStore
    run_dir: Path
    stop: StopFlag


class Runtime(Protocol):
    """Runs a job to its end, or until it is stopped; resumes where the job's checkpoints say so."""

    def __call__(self, job: Job) -> None: ...
