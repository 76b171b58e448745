"""Measure each stage of training alone on all cores: environments and inference one process a core, the learner one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any, cast

from clearl.config import RunConfig, to_yaml
from clearl.errors import WorkerError
from clearl.runtimes.host import ALLOCATOR_ENVIRONMENT, cores

STAGES = ("environment", "inference", "learner")
_ON_EVERY_CORE = ("environment", "inference")


@dataclass(frozen=True)
class Reading:
    """The result of one measurement of a stage, over all its processes."""

    frames_per_s: float
    frames_per_cpu_s: float
    """Frames for each second of one core: on a shared machine this repeats better than the rate."""
    split: dict[str, float] = field(default_factory=dict)
    """Seconds by name; the learner's only."""


class StageProcesses:
    """The processes of one stage, idle between measurements. Use as a context."""

    def __init__(self, name: str, config: RunConfig) -> None:
        self.name, self._config = name, config
        self._children: list[subprocess.Popen[str]] = []
        self.flops_per_frame = 0.0

    def __enter__(self) -> StageProcesses:
        processes = cores() if self.name in _ON_EVERY_CORE else 1
        task = json.dumps({"stage": self.name, "config": to_yaml(self._config), "processes": processes})
        for _ in range(processes):
            self._children.append(_start(task))
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            with suppress(BrokenPipeError):
                cast(IO[str], child.stdin).close()
        for child in self._children:
            child.wait()
            cast(IO[str], child.stdout).close()

    def wait_until_ready(self) -> None:
        """Return when all processes have built what they need and warmed up."""
        for child in self._children:
            self.flops_per_frame = float(self._receive(child)["flops_per_frame"])

    def measure(self, seconds: float) -> Reading:
        """Work for `seconds` in all processes at once."""
        for child in self._children:
            _tell(child, str(seconds))
        answers = [self._receive(child) for child in self._children]
        cpu_s = sum(answer["cpu_seconds"] for answer in answers)
        return Reading(
            frames_per_s=sum(answer["frames"] / answer["seconds"] for answer in answers),
            frames_per_cpu_s=sum(answer["frames"] for answer in answers) / max(cpu_s, 1e-9),
            split=answers[0]["split"],
        )

    def _receive(self, child: subprocess.Popen[str]) -> dict[str, Any]:
        line = cast(IO[str], child.stdout).readline()
        if not line:
            raise WorkerError(f"the process that measures {self.name} ended with code {child.wait()}; see above")
        return json.loads(line)


def ideal_rate(rates: Sequence[float]) -> float:
    """Return the rate of doing all stages one after the other, each at its own: 1 / (sum of 1 / rate)."""
    return 1.0 / sum(1.0 / rate for rate in rates)


def _start(task: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-m", "clearl.bench.work"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, **ALLOCATOR_ENVIRONMENT},
    )  # fmt: skip
    _tell(child, task)
    return child


def _tell(child: subprocess.Popen[str], line: str) -> None:
    stdin = cast(IO[str], child.stdin)
    stdin.write(line + "\n")
    stdin.flush()
