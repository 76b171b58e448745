"""The paper's claims, each as an effect and the range in which the effect must lie for the claim to hold.

The ranges were fixed before any run of this package, each with its reason; the numbers of the paper and of a small
prototype on MinAtar were known then. Scores count from the return of an untrained network. A claim about a rival is
judged only where the rival is not below the plain baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from clearl.report.effects import (
    Sample,
    cumulative,
    drift_difference,
    kept,
    mean,
    new_task_means,
    new_tasks,
    position_between,
    probe_means,
    ratio,
    ratio_to_best,
    shared_tasks,
)
from clearl.report.paper import ATARI, DMLAB, PaperTable
from clearl.report.run import Arm


@dataclass(frozen=True)
class Claim:
    """One claim of the paper and how it is tested."""

    id: str
    claim: str
    paper: str
    arms: tuple[tuple[str, ...], ...]
    """For each arm that it compares, the acceptable names, the preferred one first."""
    measure: str
    effect: Callable[..., float]
    range: tuple[float, float]
    reason: str
    gather: Callable[[Sequence[Arm]], list[Sample] | None]
    table: PaperTable | None = None
    is_probe: bool = False
    """True if it compares positions of a probe, with those of the baseline."""
    rivals: tuple[int, ...] = ()
    """Places in `arms` of methods that must not be below the baseline for the claim to be judged."""

    @property
    def is_ratio(self) -> bool:
        """True if the effect is a ratio, whose interval is made on the log scale."""
        return self.effect in (ratio, ratio_to_best)

    def tasks(self, arms: Sequence[Arm]) -> list[str]:
        """Return the tasks that the claim can be judged on one by one."""
        if self.is_probe:
            return []
        return new_tasks(arms) if self.gather is new_task_means else shared_tasks(arms)


_DRIFT = (
    "change of the probe's return from its first to its last position, as a share of its mean, minus the same change "
    "of the baseline"
)
_RATIO = "cumulative score of {} as a share of that of {}, mean over the tasks"

CLAIMS = (
    Claim(
        "separate-simultaneous", "Training on all tasks at once is as good as training on each alone",
        "“very little difference between separate and simultaneous training”",
        (("simultaneous",), ("separate",)), _RATIO.format("simultaneous", "separate"), ratio, (0.85, 1.15),
        "the paper calls a difference of up to 11 % on a task very little", cumulative, DMLAB,
    ),
    Claim(
        "sequential-forgets", "Without replay, a task is forgotten while others are trained",
        "“tasks that are not currently being learned exhibit very dramatic catastrophic forgetting”",
        (("sequential",),), "share of a task's score that the baseline keeps while the task is away", mean,
        (-np.inf, 0.75), "losing a quarter or more of what was learnt is forgetting", kept,
    ),
    Claim(
        "clear-keeps", "CLEAR hardly forgets",
        "“almost eliminating catastrophic forgetting”",
        (("clear", "clear-75-25"),), "share of a task's score that CLEAR keeps while the task is away", mean,
        (0.85, np.inf), "a loss of at most 15 % is what remains of an almost eliminated one", kept,
    ),
    Claim(
        "clear-simultaneous", "With CLEAR, sequential training is almost as good as simultaneous training",
        "“sequential tasks train almost as well as simultaneous tasks”",
        (("clear",), ("simultaneous",)), _RATIO.format("CLEAR", "simultaneous"), ratio, (0.85, np.inf),
        "almost as good allows a loss of 15 %; the paper says it of 8 %", cumulative, DMLAB,
    ),
    Claim(
        "no-cloning-between", "Without cloning, CLEAR stands between the baseline and itself",
        "“Without behavioral cloning, the mixture of new experience and replay still reduces catastrophic forgetting, "
        "though the effect is reduced”",
        (("clear-no-cloning",), ("sequential",), ("clear",)),
        "where CLEAR without cloning stands in cumulative score: 0 = baseline, 1 = CLEAR",
        position_between, (0.0, 1.0), "strictly between the two", cumulative, DMLAB,
    ),
    Claim(
        "balance", "Half new, half replay is a good balance",
        "“50-50 new-replay represents a good tradeoff”",
        (("clear",), ("sequential",), ("clear-75-25",), ("clear-100-replay",)),
        "cumulative score of 50-50 as a share of the best of 100-0, 75-25 and 0-100", ratio_to_best, (0.95, np.inf),
        "a good balance loses at most 5 % against the best other one", cumulative, DMLAB,
    ),
    Claim(
        "full-replay-plasticity", "100 % replay learns new tasks worse",
        "“100% replay reduces forgetting but lowers performance overall”",
        (("clear-100-replay",), ("clear",)),
        "mean return over the first visit of every task but the first: 100 % replay as a share of 50-50", ratio,
        (-np.inf, 1.0), "worse means below 1", new_task_means,
    ),
    Claim(
        "small-buffer", "A buffer of 1/18 of all frames costs little",
        "“only minimal difference in performance”",
        (("clear-buffer-1/18",), ("clear",)), _RATIO.format("buffer 1/18", "buffer 1/2"), ratio, (0.9, np.inf),
        "little is at most 10 %", cumulative, DMLAB,
    ),
    Claim(
        "tiny-buffer", "A buffer of 1/180 of all frames costs little",
        "“a slight decrease in robustness to catastrophic forgetting”",
        (("clear-buffer-1/180",), ("clear",)), _RATIO.format("buffer 1/180", "buffer 1/2"), ratio, (0.9, np.inf),
        "little is at most 10 %", cumulative, DMLAB,
    ),
    Claim(
        "probe-clear", "With CLEAR, a new task is learnt equally well early and late",
        "“the performance attained on the probe task is independent of the point at which it is introduced”",
        (("clear",), ("sequential",)), _DRIFT, drift_difference,
        (-0.15, 0.15), "equal allows the same 15 % as the other claims of likeness; the probe is no new kind of task, "
        "so that the baseline, which replays nothing, says how much position matters by itself", probe_means,
        is_probe=True,
    ),
    Claim(
        "probe-full-replay", "With 100 % replay, a new task is learnt worse the later it comes",
        "“deteriorates markedly as it appears later in the sequence of tasks”",
        (("clear-100-replay",), ("sequential",)), _DRIFT, drift_difference,
        (-np.inf, 0.0), "worse late means a change below the baseline's", probe_means, is_probe=True,
    ),
    Claim(
        "clear-progress-compress", "CLEAR is at least as good as Progress & Compress",
        "“CLEAR performs comparably to or better than P&C”",
        (("clear-75-25", "clear"), ("progress-compress",)), _RATIO.format("CLEAR", "P&C"), ratio, (0.9, np.inf),
        "comparable allows a loss of 10 %", cumulative, ATARI, rivals=(1,),
    ),
    Claim(
        "clear-ewc", "CLEAR is better than EWC",
        "“significantly better than EWC and baseline”",
        (("clear-75-25", "clear"), ("ewc",)), _RATIO.format("CLEAR", "EWC"), ratio, (1.0, np.inf),
        "better means above 1", cumulative, ATARI, rivals=(1,),
    ),
    Claim(
        "progress-compress-ewc", "Progress & Compress is better than EWC",
        "its table gives P&C above EWC on four of six games",
        (("progress-compress",), ("ewc",)), _RATIO.format("P&C", "EWC"), ratio, (1.0, np.inf),
        "better means above 1", cumulative, ATARI, rivals=(0, 1),
    ),
)  # fmt: skip
