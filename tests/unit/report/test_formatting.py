"""Numbers read well, and never as minus nothing."""

from __future__ import annotations

import pytest

from clearl.report.formatting import frames, number, percent, with_deviation, with_interval
from clearl.report.stats import Interval, Stat


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0.00"),
        (-0.001, "0.00"),
        (1.234, "1.23"),
        (-1.5, "−1.50"),
        (12.34, "12.3"),
        (8845.1, "8,845"),
    ],
)
def test_numbers_have_three_digits_or_so(value, text):
    assert number(value) == text


def test_a_deviation_has_the_decimals_of_its_mean():
    assert with_deviation(Stat((100.0, 101.0))) == "100 ± 1"
    assert with_deviation(Stat((1.0, 2.0))) == "1.50 ± 0.71"
    assert with_deviation(Stat((1.0,))) == "1.00" and with_deviation(Stat((None,))) == "–"


def test_percentages_intervals_and_frames():
    assert (percent(0.987), percent(-0.001), percent(None)) == ("99 %", "0 %", "–")
    assert with_interval(Interval(0.5, -0.25, 1.0)) == "0.50 [−0.25, 1.00]"
    assert with_interval(Interval(0.5)) == "0.50" and with_interval(None) == "–"
    assert [frames(value) for value in (0, 999, 500_000, 1_440_000, 1.5e9)] == ["0", "999", "500k", "1.44M", "1.5B"]
