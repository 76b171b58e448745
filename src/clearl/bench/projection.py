"""Project the duration of a run elsewhere: on one machine and on a cluster, from measured constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SECONDS_A_DAY = 86_400.0


@dataclass(frozen=True)
class Constants:
    """Measurements with the network, unrolls and batches of one run; rates are environment frames per second."""

    run: str
    measured_on: str
    """The suite whose environments were stepped."""
    total_frames: int
    learner_frames_per_s: float
    """The learner alone on all cores of one machine, its intake included."""
    worker_frames_per_s: float
    """One worker on one core: environments, inference, replay."""
    replay_bytes_per_frame: float
    buffer_share: float
    waste_share: float

    @staticmethod
    def of(row: Mapping[str, Any]) -> Constants:
        """Read a row of section `paper` of `benchmarks.growth`."""
        return Constants(
            run=row["run"], measured_on=row["measured_on"], total_frames=row["total_frames"],
            learner_frames_per_s=row["frames_per_s"], worker_frames_per_s=row["worker_frames_per_s"],
            replay_bytes_per_frame=row["replay_bytes_per_frame"], buffer_share=row["buffer_share"],
            waste_share=row["waste_share"],
        )  # fmt: skip

    def one_machine(self, cores: int) -> float:
        """Return frames per second where workers and learner take turns on the same cores, none of which ever waits."""
        return 1.0 / (1.0 / (cores * self.worker_frames_per_s) + 1.0 / self.learner_frames_per_s)

    def cluster(self, workers: int) -> float:
        """Return frames per second of `workers` workers, a core each, and one learner on a machine of its own."""
        return min(self.produced(workers), self.learner_frames_per_s)

    def produced(self, workers: int) -> float:
        """Return the frames per second that a learner must take for `workers` workers never to wait."""
        return workers * self.worker_frames_per_s

    @property
    def workers_served(self) -> float:
        """The number of workers that one learner keeps up with."""
        return self.learner_frames_per_s / self.worker_frames_per_s

    def days(self, frames_per_s: float) -> float:
        """Return the days that all frames of the run take."""
        return self.total_frames / frames_per_s / _SECONDS_A_DAY

    @property
    def replay_bytes(self) -> float:
        """Bytes of all records of a full buffer."""
        return self.buffer_share * self.total_frames * self.replay_bytes_per_frame

    @property
    def most_disk_bytes(self) -> float:
        """Bytes on disk before segments with too much waste are rewritten."""
        return self.replay_bytes / (1.0 - self.waste_share)
