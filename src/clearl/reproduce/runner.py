"""Run what the catalogue planned: each run in a process of its own, several at once, finished ones never again."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from clearl.config import RunConfig, diff, from_yaml, may_change, to_yaml
from clearl.errors import RunDirectoryError, WorkerError
from clearl.records.reader import last_frames
from clearl.records.run_dir import CONFIG_FILE, RunDir, holds_run, read_meta
from clearl.records.schema import METRICS_FILE
from clearl.records.shield import Shield
from clearl.reproduce import tied
from clearl.reproduce.catalog import FORGETS
from clearl.reproduce.planned import PlannedRun, config_path, forget_commands, plain_frames, run_command
from clearl.runtimes.host import ALLOCATOR_ENVIRONMENT, StopFlag, stop_on_signals
from clearl.runtimes.local.processes import least_workers
from clearl.storage.files import write_atomically


class _Job:
    """A planned run in a process of its own, or in several one after the other."""

    def __init__(self, run: PlannedRun, out: Path) -> None:
        path = out / run.path
        self.run, self.log = run, path.with_name(path.name + ".log")
        write_configs([run], out)
        self._commands, self._asked_to_stop = _commands(run, config_path(path), path), False
        self._process = self._begin()

    def has_ended(self, stop: StopFlag) -> bool:
        """Return whether its last process has exited, or one that none follows; start the next one if that is due."""
        if self._process.poll() is None:
            return False
        if self._process.returncode != 0 or stop or not self._commands:
            return True
        self._process = self._begin()
        return False

    @property
    def succeeded(self) -> bool:
        """True if all of its processes have exited, each with code 0."""
        return self._process.returncode == 0 and not self._commands

    def stop(self) -> None:
        """Ask for a checkpoint and the end, once: a second signal would end it without."""
        if not self._asked_to_stop and self._process.poll() is None:
            self._process.terminate()
        self._asked_to_stop = True

    def wait(self) -> None:
        """Wait for the end of its process."""
        self._process.wait()

    def _begin(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **ALLOCATOR_ENVIRONMENT}  # several runs share the cores
        command = [*_TIED, str(os.getpid()), sys.executable, "-m", *self._commands.pop(0)]
        with open(self.log, "ab") as file:
            # A process group of its own: Ctrl-C reaches us only, and we pass it on once.
            return subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment,
                process_group=0,
            )  # fmt: skip


_TIED = (sys.executable, "-I", "-S", tied.__file__)
Report = Callable[[str], None]


def run_all(runs: Sequence[PlannedRun], out: Path, *, jobs: int, say: Report = print) -> bool:
    """Run everything that is not finished yet, `jobs` at a time; return False if stopped before the end.

    A run that fails does not keep the others from running; at the end it is an error. `out/status.txt` always says
    what is done, what runs and what comes next, in one line.
    """
    waiting = [run for run in runs if not is_finished(out / run.path)]
    for run in runs:
        if run not in waiting:
            _refuse_other_settings(run, out / run.path)
    status = Status(out, total=len(runs), done=len(runs) - len(waiting))
    if status.done:
        say(f"{status.done} of {status.total} runs are finished already")
    shield = Shield("status.txt")
    running: list[_Job] = []
    failures: list[_Job] = []
    with stop_on_signals() as stop, _none_left_behind(running):
        while (waiting and not stop) or running:
            while waiting and len(running) < jobs and not stop:
                running.append(_Job(waiting.pop(0), out))
            job = _wait_for_one(running, stop, lambda: shield.call(status.write, [job.run for job in running], waiting))
            if job is None:
                continue
            running.remove(job)
            if job.succeeded:
                status.finished()
                say(f"[{status.done}/{status.total}] {_short(job.run)}")
            elif not stop:
                failures.append(job)
                say(f"failed: {_short(job.run)}; its output is in {job.log}")
        shield.call(status.write, [], waiting)
    if failures:
        first = failures[0]
        count = f"{len(failures)} {'run' if len(failures) == 1 else 'runs'}"
        raise WorkerError(f"{count} failed; {first.run.path} ends with:\n{_tail(first.log)}")
    return not stop


def default_jobs(runs: Sequence[PlannedRun], cores: int) -> int:
    """Return how many runs leave a core to each of their processes: the learner and its workers, or one `inline`."""
    return max(1, cores // max(_processes(run.config, cores) for run in runs))


def _processes(config: RunConfig, cores: int) -> int:
    if config.runtime == "inline":
        return 1
    return 1 + (config.workers or least_workers(cores, config.slots))


def _short(run: PlannedRun) -> str:
    return run.path.removeprefix("runs/")


class Status:
    """One line about a set of runs, kept in a file, so that another terminal, or somebody tomorrow, can read it."""

    _EVERY_S = 5.0

    def __init__(self, out: Path, *, total: int, done: int) -> None:
        self.out, self.total, self.done = out, total, done
        self._done_before, self._began = done, time.monotonic()
        self._written = -math.inf

    def finished(self) -> None:
        """Count one more finished run."""
        self.done += 1
        self._written = -math.inf

    def write(self, running: Sequence[PlannedRun], waiting: Sequence[PlannedRun]) -> None:
        """Write the line anew, unless that was done a moment ago."""
        if running and time.monotonic() - self._written < self._EVERY_S:
            return
        self._written = time.monotonic()
        self.out.mkdir(parents=True, exist_ok=True)
        write_atomically(self.out / "status.txt", (self.line(running, waiting) + "\n").encode())

    def line(self, running: Sequence[PlannedRun], waiting: Sequence[PlannedRun]) -> str:
        parts = [f"{self.done} of {self.total} runs finished"]
        if running:
            parts.append("running " + ", ".join(f"{_short(run)}{self._share(run)}" for run in running))
        if waiting:
            parts.append(f"next {_short(waiting[0])}")
        since = self.done - self._done_before
        if running and since:
            hours = (time.monotonic() - self._began) / since * (self.total - self.done) / 3600
            parts.append(f"about {hours:.1f} h left")
        return "; ".join(parts)

    def _share(self, run: PlannedRun) -> str:
        """Return how far a run is, from the last row of its metrics."""
        total = plain_frames(run.config)
        frames = last_frames(self.out / run.path / METRICS_FILE)
        return f" ({frames / total:.0%})" if frames is not None and total else ""


def is_finished(path: Path) -> bool:
    """Return whether `path` holds a finished run."""
    return holds_run(path) and read_meta(path)["status"] == "finished"


def _refuse_other_settings(run: PlannedRun, path: Path) -> None:
    """Refuse a finished run that was made with other settings: a report would take it for the planned one."""
    if run.arm == FORGETS:  # its directory holds the second part only
        return
    made = from_yaml(RunDir.open(path).config_text, str(path / CONFIG_FILE))
    planned = run.config if run.config.tasks else replace(run.config, tasks=made.tasks)
    if changed := {key: values for key, values in diff(made, planned).items() if key not in may_change()}:
        listed = "; ".join(f"{key}: {old!r} there, {new!r} planned" for key, (old, new) in changed.items())
        raise RunDirectoryError(
            f"{path} holds a finished run with other settings ({listed}); move it away, or give another --out"
        )


def write_configs(runs: Sequence[PlannedRun], out: Path) -> None:
    """Write the settings of each run to the file that its command names."""
    for run in runs:
        config = config_path(out / run.path)
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(to_yaml(run.config), encoding="utf-8")


def _commands(run: PlannedRun, config: Path, path: Path) -> list[list[str]]:
    """Return the commands of a run, one after the other."""
    if run.arm != FORGETS:
        return [run_command(run.config, config, path, arm=run.arm)]
    config.write_text(to_yaml(replace(run.config, tasks=run.config.tasks[:1])), encoding="utf-8")
    return forget_commands(run.config, config, path, arm=run.arm)


@contextmanager
def _none_left_behind(running: Sequence[_Job]) -> Iterator[None]:
    """End the jobs that run when the block ends, by an error of ours: as orphans they would keep their directories."""
    try:
        yield
    finally:
        for job in running:
            job.stop()
        for job in running:
            job.wait()


def _wait_for_one(running: Sequence[_Job], stop: StopFlag, meanwhile: Callable[[], None]) -> _Job | None:
    while running:
        for job in running:
            if stop:
                job.stop()
            if job.has_ended(stop):
                return job
        meanwhile()
        time.sleep(0.1)
    return None


def _tail(log: Path, lines: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
