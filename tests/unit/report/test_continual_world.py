"""Continual World's metrics against their definitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clearl.report import continual_world as cw
from clearl.report.load import load_run, load_runs
from clearl.report.run import Curve
from clearl.report.scales import Scale

SCALE = Scale(floor=-10.0, top=10.0)


def _run(make_run, values, **options):
    """Two tasks, one visit each of 1,000 frames; `values(share)` is the return on both."""
    return load_run(make_run("clear", cycles=1, returns=lambda task, share: values(share), **options))


def test_performance_and_forgetting_on_returns(make_run):
    run = _run(make_run, lambda share: -10.0 + 40 * share if share <= 0.5 else 0.0)
    assert cw.performance(run, "a", SCALE) == pytest.approx(0.5)
    assert cw.forgetting(run, "a", SCALE) == pytest.approx(1.0 - 0.5, abs=0.05)
    assert cw.forgetting(run, "b", SCALE) == 0.0  # trained to the end
    assert cw.performance(run, "a", Scale(0.0, None)) is None and cw.forgetting(run, "c", SCALE) is None


def test_success_rates_take_the_place_of_returns(make_run):
    run = _run(make_run, lambda share: 0.0)
    success = Curve(np.array([0.0, 1000.0, 2000.0]), np.array([0.0, 0.8, 0.3]))
    run = replace(run, success={"a": success})
    assert cw.performance(run, "a", SCALE) == pytest.approx(0.3)
    assert cw.forgetting(run, "a", SCALE) == pytest.approx(0.5)


def test_forward_transfer_is_normalised_by_what_was_left_to_gain(make_run):
    (alone,) = load_runs([make_run.separate("separate", 0, cycles=1, returns=lambda task, share: -10 + 20 * share)])
    run = _run(make_run, lambda share: 4.0)
    # Alone, p rises from 0 to 1 over the visit: AUC 0.5. Ours is 0.7 throughout.
    assert cw.forward_transfer(run, "b", SCALE, [alone]) == pytest.approx((0.7 - 0.5) / (1 - 0.5))
    assert cw.forward_transfer(run, "b", SCALE, []) is None
