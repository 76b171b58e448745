"""Runs of different lengths in one report: compress phases are left out of the axis, and numbers cover the frames that
all runs share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from clearl.report.formatting import frames
from clearl.report.rows import Parsed
from clearl.report.run import Run, Span

_SAME = 0.005
"""Plans whose lengths differ by less, such as by the rounding of a round, are of the same length."""


def without_compress_frames(parsed: Parsed, config: dict[str, Any]) -> Parsed:
    """Take the compress phases that came on top of the visits out of the axis of a Progress & Compress run.

    A visit of such a run has as many frames as a visit of any other method, followed by its compress frames. These
    become one point of the axis, at which the evaluation after compressing counts: all methods are scored with the same
    number of frames of learning, and the extra frames are reported separately.
    """
    extra = np.array([span.extra or _old_extra(span, config) for span in parsed.spans])
    if not extra.any() or parsed.planned_frames is None:
        return parsed
    raw = np.array([[span.start, span.end] for span in parsed.spans])
    lengths = np.maximum(raw[:, 1] - raw[:, 0] - extra, 0.0)
    ends = np.cumsum(lengths)
    knots = np.column_stack([raw[:, 0], raw[:, 0] + lengths]).ravel(), np.column_stack([ends - lengths, ends]).ravel()

    def shorten(frame: float) -> float:
        return float(np.interp(frame, *knots))

    spans = [
        replace(span, start=float(end - length), end=float(end), extra=0.0)
        for span, end, length in zip(parsed.spans, ends, lengths, strict=True)
    ]
    last_at: dict[tuple[str, float], float] = {}
    for one in parsed.evaluations:
        key = one.task, shorten(one.frames)
        last_at[key] = max(one.frames, last_at.get(key, 0.0))
    evaluations = [
        replace(one, frames=shorten(one.frames))
        for one in parsed.evaluations
        if one.frames == last_at[one.task, shorten(one.frames)]
    ]
    return replace(
        parsed,
        evaluations=evaluations,
        spans=spans,
        planned_frames=float(ends[-1]),
        seen_frames=shorten(parsed.seen_frames),
        compress_frames=float(raw[-1, 1] - ends[-1]),
    )


def _old_extra(span: Span, config: dict[str, Any]) -> float:
    """Return the compress frames from the settings, for a run whose segments do not record them yet."""
    visit = config.get("frames_per_visit")
    is_ours = config.get("compress_on_top") is True and str(config.get("method")).startswith("progress-compress")
    return max(0.0, span.end - span.start - visit) if is_ours and isinstance(visit, int) else 0.0


def to_common_length(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Return the runs, measured as far as all plans go, and notes that a reader must know."""
    notes = []
    if extra := [run for run in runs if run.compress_frames > 0]:
        most = max(run.compress_frames for run in extra)
        notes.append(
            f"{len(extra)} Progress & Compress runs trained up to {frames(most)} compress frames on top of their "
            "visits. These frames are left out of every axis; a visit's score is that after its compress phase."
        )
    lengths = [run.planned_frames for run in runs if run.planned_frames is not None]
    if not lengths or max(lengths) <= (1 + _SAME) * min(lengths):
        return list(runs), notes
    common = min(lengths)
    shortest = next(run for run in runs if run.planned_frames == common)
    longest = max((run for run in runs if run.planned_frames is not None), key=lambda run: run.planned_frames or 0.0)
    notes.append(
        f"The runs are of different lengths, from {frames(common)} frames ({shortest.path}) to "
        f"{frames(max(lengths))} ({longest.path}). Every number compares their first {frames(common)} frames; the "
        "curves are drawn to their ends."
    )
    if _schedules_differ(runs, common):
        notes.append("Their schedules differ within these frames too, so that tasks come at different times.")
    return [replace(run, common_frames=common) for run in runs], notes


def _schedules_differ(runs: Sequence[Run], common: float) -> bool:
    plans = {
        tuple((span.tasks, round(span.start)) for span in run.spans if span.start < common)
        for run in runs
        if run.protocol not in ("separate", "simultaneous")
    }
    return len(plans) > 1
