"""Runs what the catalogue planned: each run in a process of its own, several at once, finished ones never again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clearl.config import to_yaml
from clearl.errors import WorkerError
from clearl.records.run_dir import holds_run, read_meta
from clearl.reproduce.catalog import PlannedRun
from clearl.runtimes.host import StopFlag, stop_on_signals


@dataclass
class _Child:
    run: PlannedRun
    process: subprocess.Popen[bytes]
    log: Path


Report = Callable[[str], None]


def run_all(runs: Sequence[PlannedRun], out: Path, *, jobs: int, say: Report = print) -> bool:
    """Run all that is not finished yet, `jobs` at a time; False if it was stopped before the end."""
    waiting = [run for run in runs if not is_finished(out / run.path)]
    done, total = len(runs) - len(waiting), len(runs)
    if done:
        say(f"{done} of {total} runs are finished already")
    children: list[_Child] = []
    with stop_on_signals() as stop:
        while (waiting and not stop) or children:
            while waiting and len(children) < jobs and not stop:
                children.append(_start(waiting.pop(0), out))
            child = _wait_for_one(children, stop)
            if child is None:
                continue
            children.remove(child)
            if child.process.returncode == 0:
                done += 1
                say(f"[{done}/{total}] {child.run.path.removeprefix('runs/')}")
            elif not stop:
                _terminate(children)
                raise WorkerError(f"{child.run.path} failed; its output ends with:\n{_tail(child.log)}")
        return not stop


def is_finished(path: Path) -> bool:
    """Whether the run in `path` is there and has come to its end."""
    return holds_run(path) and read_meta(path)["status"] == "finished"


def _start(run: PlannedRun, out: Path) -> _Child:
    path = out / run.path
    path.parent.mkdir(parents=True, exist_ok=True)
    config = path.with_name(path.name + ".yaml")
    config.write_text(to_yaml(run.config))
    log = path.with_name(path.name + ".log")
    command = [sys.executable, "-m", "clearl", "run", "--config", str(config), "--out", str(path), "--arm", run.arm]
    with open(log, "ab") as file:
        process = subprocess.Popen(
            [*command, "--quiet"], stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=_environment()
        )
    return _Child(run, process, log)


def _environment() -> dict[str, str]:
    """One thread and a heap that keeps what it has freed: page faults are half of a small learner's cost."""
    allocator = {
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 35),
        "MALLOC_TOP_PAD_": str(1 << 26),
    }
    return {**os.environ, "OMP_NUM_THREADS": "1", **allocator}


def _wait_for_one(children: Sequence[_Child], stop: StopFlag) -> _Child | None:
    passed_on = False
    while children:
        if stop and not passed_on:
            _terminate(children)
            passed_on = True
        for child in children:
            if child.process.poll() is not None:
                return child
        time.sleep(0.1)
    return None


def _terminate(children: Sequence[_Child]) -> None:
    for child in children:
        if child.process.poll() is None:
            child.process.send_signal(signal.SIGTERM)


def _tail(log: Path, lines: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
