from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clearl.report.metrics import recovery_frames
from clearl.report.run import Curve, Run, Span


def _run(returns: list[float]) -> Run:
    """Visits to a, b, a, b of 100 frames each; evaluations of a every 20 frames."""
    spans = tuple(Span((task,), 100.0 * i, 100.0 * (i + 1)) for i, task in enumerate("abab"))
    curve = Curve(np.arange(len(returns)) * 20.0, np.array(returns, float))
    return Run(Path("x"), {"status": "finished"}, {}, {"a": curve}, spans, planned_frames=400.0, seen_frames=400.0)


LEARNT = [0, 2, 4, 6, 8, 10]  # until frame 100, where the task is left at 10


@pytest.mark.parametrize(
    ("away_and_back", "frames"),
    [
        ([8, 6, 4, 2, 1, 5, 8.9, 9.1, 10, 10], 60.0),  # 90 % of 10 first at frame 260
        ([9, 9, 9, 9, 9.5, 9.5, 9.5, 9.5, 9.5, 9.5], 0.0),  # never forgotten
        ([8, 6, 4, 2, 1, 2, 3, 4, 5, 5], 100.0),  # not in this visit
    ],
)
def test_frames_until_the_old_score_is_back(away_and_back: list[float], frames: float) -> None:
    assert recovery_frames(_run([*LEARNT, *away_and_back]), "a", 0.0) == frames


def test_a_task_that_was_never_left_or_never_learnt_has_none() -> None:
    run = _run([0.0] * 16)
    assert recovery_frames(run, "a", 0.0) is None and recovery_frames(run, "b", 0.0) is None
