"""The task x time matrix as it is drawn."""

from __future__ import annotations

import numpy as np
import pytest

from clearl.report.arms import group_arms
from clearl.report.heat_map import heat_map, scores_at
from clearl.report.load import load_runs
from clearl.report.scales import Scale, task_scales
from clearl.report.style import figure_style


def _arms(make_run):
    return group_arms(load_runs([make_run.root]))


def test_cells_are_the_mean_scores_at_the_ends_of_the_segments(make_run):
    for seed, top in ((0, 8.0), (1, 4.0)):
        make_run("clear", seed, cycles=1, returns=lambda task, share, top=top: top * min(1.0, 2 * share))
    (arm,) = _arms(make_run)
    scores = scores_at(arm, "a", Scale(0.0, 12.0), np.array([1000.0, 2000.0, 3000.0]))
    assert scores[:2] == pytest.approx([0.5, 0.5], abs=0.02) and np.isnan(scores[2])


def test_two_tasks_make_a_map_with_numbers_and_a_frame_for_every_visit(make_run):
    make_run("sequential", 0, returns=lambda task, share: 2.0 * (share > 0))
    make_run("clear", 0, returns=lambda task, share: 4.0 * (share > 0))
    arms = _arms(make_run)
    with figure_style() as new_figure:
        figure = heat_map(new_figure, arms, task_scales(arms, ["a", "b"]), note="")
    panel = figure.axes[1]
    assert [text.get_text() for text in panel.texts] == ["100"] * 8
    assert [text.get_text() for text in figure.axes[0].texts] == ["50"] * 8
    assert len(panel.patches) == 4 and panel.get_title(loc="left") == "CLEAR"


def test_many_segments_are_sampled_at_even_steps(make_run):
    make_run("clear", 0, cycles=60, visit_frames=10, evals_per_visit=1, returns=lambda task, share: share)
    arms = _arms(make_run)
    with figure_style() as new_figure:
        figure = heat_map(new_figure, arms, task_scales(arms, ["a", "b"]), note="")
    assert figure.axes[0].images[0].get_array().shape == (2, 60) and not figure.axes[0].texts
