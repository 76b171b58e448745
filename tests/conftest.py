"""Fixtures for all tests: run directories made up from formulas, so that every measure has a known answer."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearl.records import MetricsWriter, RunDir, eval_row, segment_row, train_row

pytest_plugins = ["browser", "first_run", "ray_cluster"]


@pytest.fixture(autouse=True)
def no_process_outlives_its_test() -> Iterator[None]:
    """Kill the runs that a failed test left behind, which would slow down all later tests."""
    yield
    for child in multiprocessing.active_children():
        child.kill()
        child.join()


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    """Keep the number of torch's threads: a process that is forked from one with several waits for them for ever."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


Returns = Callable[[str, float], float]
"""The return of a task at a share (0 to 1) of training."""


@dataclass
class RunFactory:
    """Writes run directories below `root` through the same code as training does."""

    root: Path

    def __call__(
        self,
        arm: str | None,
        seed: int = 0,
        *,
        returns: Returns = lambda task, share: 1.0,
        tasks: Sequence[str] = ("a", "b"),
        cycles: int = 2,
        visit_frames: int = 1000,
        evals_per_visit: int = 10,
        train_rows: int = 0,
        until: float = 1.0,
        status: str = "finished",
        protocol: str = "sequential",
        segments: Sequence[tuple[Sequence[str], int]] | None = None,
        config: dict[str, Any] | None = None,
        name: str | None = None,
        **meta: Any,
    ) -> Path:
        """One run; with `until` below 1 it was stopped at that share of its frames."""
        planned = list(segments) if segments is not None else _segments(protocol, tasks, cycles, visit_frames)
        total = sum(frames for _, frames in planned)
        path = self.root / (name or f"{arm or 'run'}-seed{seed}".replace("/", "_"))
        plan = {"name": protocol, "segments": [{"tasks": list(names), "frames": frames} for names, frames in planned]}
        fields = {"seed": seed, "arm": arm, "method": "clear", "suite": "minatar", "protocol": protocol, "plan": plan}
        settings = {"method": "clear", "seed": seed, "learning_rate": 0.003, **(config or {})}
        run = RunDir.create(path, config_text=json.dumps(settings), meta={**fields, "frames_scale": 1, **meta})
        with MetricsWriter(path) as writer:
            start = 0
            for index, (names, frames) in enumerate(planned):
                writer.write(segment_row(tasks=names, start_frames=start, end_frames=start + frames, index=index))
                start += frames
            evaluated = sorted({task for names, _ in planned for task in names} | set(tasks))
            self._rows(writer, returns, evaluated, planned, total, evals_per_visit, train_rows, until)
        run.set_status(status)  # pyright: ignore[reportArgumentType]  # any of the four words
        return path

    def separate(self, arm: str | None, seed: int = 0, *, tasks: Sequence[str] = ("a", "b"), **options: Any) -> Path:
        """A `separate` run: one part for each task, on an x-axis that all share."""
        cycles, frames = options.pop("cycles", 2), options.pop("visit_frames", 1000)
        parent = options.pop("name", None) or f"{arm or 'separate'}-seed{seed}"
        for task in tasks:
            self(
                arm, seed, protocol="separate", tasks=[task], segments=[([task], cycles * frames)],
                frames_scale=len(tasks), name=f"{parent}/{task}", **options,
            )  # fmt: skip
        return self.root / parent

    @staticmethod
    def _rows(writer, returns, tasks, planned, total, evals_per_visit, train_rows, until) -> None:
        every = total / (len(planned) * evals_per_visit)
        frames = [round(every * step) for step in range(len(planned) * evals_per_visit + 1)]
        for step, at in enumerate(frames):
            if at > until * total:
                break
            common = {"frames": at, "updates": step, "wall_s": step * 1.0}
            for task in tasks:
                value = float(returns(task, at / total))
                writer.write(eval_row(task=task, mean_return=value, episodes=16, **common))
            for _ in range(train_rows // len(frames)):
                loss = {"policy_gradient": -1.5, "value": 20.25, "entropy": -300.125}
                writer.write(
                    train_row(tasks=["a"], fps=1e4, loss=loss, lag_updates=1.0, replay={"fill": 0.5}, **common)
                )


def _segments(protocol: str, tasks: Sequence[str], cycles: int, frames: int) -> list[tuple[Sequence[str], int]]:
    if protocol == "simultaneous":
        return [(list(tasks), cycles * frames * len(tasks))]
    return [([task], frames) for _ in range(cycles) for task in tasks]


@dataclass
class Learner:
    """Returns that look like learning: a task rises towards `top` while trained and falls while away."""

    tasks: Sequence[str]
    cycles: int
    keeps: float
    """The share of its score that a task keeps over one visit of another."""
    speed: float = 4.0
    top: float = 10.0
    noise: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def __call__(self, task: str, share: float) -> float:
        visits = len(self.tasks) * self.cycles
        here, score = share * visits, 0.0
        for visit in range(visits):
            passed = min(1.0, max(0.0, here - visit))
            if self.tasks[visit % len(self.tasks)] == task:
                score = self.top - (self.top - score) * np.exp(-self.speed * passed)
            else:
                score *= self.keeps**passed
        return float(score + self.noise * self._rng.standard_normal())


@pytest.fixture(scope="session")
def run_factory() -> type[RunFactory]:
    """For fixtures that outlive a test; within one, use `make_run`."""
    return RunFactory


@pytest.fixture
def make_run(tmp_path: Path) -> RunFactory:
    """Writes made-up run directories below a temporary directory."""
    return RunFactory(tmp_path / "runs")


@pytest.fixture(scope="session")
def learner() -> type[Learner]:
    """Makes up the returns of an agent that learns and forgets."""
    return Learner
