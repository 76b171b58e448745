"""Forecast the cost of an experiment on this machine: frames, hours at a measured speed, bytes, missing packages."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from clearl.bench.work import noise_batch
from clearl.config import RunConfig
from clearl.errors import ClearlError, ConfigError, MissingExtraError
from clearl.experiment import run
from clearl.learning.learner import Learner
from clearl.methods import make_method
from clearl.reproduce.planned import PlannedRun, plain_frames
from clearl.spaces import TaskSpec
from clearl.suites import SUITES, KnowsSpec
from clearl.unroll import UnrollLayout
from clearl.wiring import make_network, replay_bytes, run_frames, run_replay_bytes

MEASURE_S = 20.0


@dataclass(frozen=True)
class SequenceForecast:
    """The cost of all runs of one sequence of tasks."""

    sequence: str
    runs: int
    frames: int
    replay_bytes: int
    """Replay bytes of the largest single run."""
    frames_per_s: float | None
    """Frames per second of one run here, or of its learner alone if `missing`; None where it could not be measured."""
    missing: str | None
    """Packages that must be installed first."""

    def hours(self, jobs: int) -> float | None:
        """Estimate the wall time with `jobs` runs at once."""
        return None if not self.frames_per_s else self.frames / (self.frames_per_s * jobs) / 3600


def forecast(runs: Sequence[PlannedRun], *, measure_s: float = MEASURE_S) -> list[SequenceForecast]:
    """Return one row for each sequence of tasks; the speed is that of real runs, cut short."""
    rows = []
    for name in dict.fromkeys(planned.sequence for planned in runs):
        configs = [planned.config for planned in runs if planned.sequence == name]
        try:
            lengths = [run_frames(config) for config in configs]
            frames, nbytes = sum(lengths), max(run_replay_bytes(config) for config in configs)
            speed, missing = _speed(configs, lengths, measure_s), None
        except MissingExtraError as error:
            frames, missing = sum(map(plain_frames, configs)), str(error)
            nbytes, speed = 0, None
            with suppress(ConfigError):
                nbytes = max(replay_bytes(config, _known_spec(config), plain_frames(config)) for config in configs)
                speed = measure_learner(next((c for c in configs if c.method == "clear"), configs[0]), measure_s)
        except ClearlError as error:
            frames, nbytes, speed, missing = sum(map(plain_frames, configs)), 0, None, str(error)
        rows.append(SequenceForecast(name, len(configs), frames, nbytes, speed, missing))
    return rows


def _speed(configs: Sequence[RunConfig], frames: Sequence[int], measure_s: float) -> float:
    """Estimate frames per second over all runs; the first CLEAR arm is measured for each size of update."""
    seconds = 0.0
    for pairs in dict.fromkeys((config.pairs, config.replay_ratio) for config in configs):
        same = [index for index, config in enumerate(configs) if (config.pairs, config.replay_ratio) == pairs]
        measured = next((configs[index] for index in same if configs[index].method == "clear"), configs[same[0]])
        seconds += sum(frames[index] for index in same) / measure(measured, measure_s)
    return sum(frames) / seconds


def measure(config: RunConfig, seconds: float) -> float:
    """Measure frames per second with these settings, by training for `seconds` in a directory that is thrown away."""
    marks: list[tuple[float, int]] = []

    def watch(row: dict) -> None:
        if row["kind"] == "train":
            marks.append((time.monotonic(), row["frames"]))
            if time.monotonic() - marks[0][0] > seconds:
                raise _EnoughError

    short = replace(
        config, record_every_updates=1, checkpoint_every_frames=None, protocol="sequential", probe_task=None
    )
    with tempfile.TemporaryDirectory() as directory, suppress(_EnoughError):
        run(short, Path(directory) / "run", console=False, listeners=[watch])
    (first_s, first), (last_s, last) = marks[0], marks[-1]
    return (last - first) / max(last_s - first_s, 1e-9)


def measure_learner(config: RunConfig, seconds: float) -> float:
    """Measure frames per second of updates on noise, where there are no environments to act in: a run is not faster."""
    spec = _known_spec(config)
    method = make_method(config)
    network = make_network(config, spec, method)
    layout = UnrollLayout(spec, config.unroll_steps, network.core_size)
    learner = Learner(
        network=network, method=method, config=config, batch_frames=config.batch_unrolls * layout.frames,
        total_frames=plain_frames(config),
    )  # fmt: skip
    batch = noise_batch(layout, config)
    learner.update(batch, None)  # the first one allocates
    began, before = time.monotonic(), learner.frames
    while time.monotonic() - began < seconds / 4 or learner.frames == before:
        learner.update(batch, None)
    return (learner.frames - before) / (time.monotonic() - began)


def _known_spec(config: RunConfig) -> TaskSpec:
    """Return the spec of a suite whose package is not installed; an error where only the package knows it."""
    maker = SUITES.get(config.suite)
    if not isinstance(maker, KnowsSpec):
        raise ConfigError(f"suite {config.suite} does not tell its spec")
    return maker.spec_for(config)


class _EnoughError(Exception):
    """Thrown out of the listener when enough has been seen."""
