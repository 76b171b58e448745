"""Colours that mean something, grids without empty cells, and names that fit."""

from __future__ import annotations

import pytest

from clearl.report.style import arm_colours, fit, grid_columns, lighter
from clearl.report.task_names import names_note, short_names


def test_a_method_keeps_its_colour_and_positions_are_its_shades():
    names = [f"{arm} (probe at {position})" for arm in ("sequential", "clear") for position in (0, 5, 10)]
    colours = arm_colours(names)
    assert colours["clear (probe at 10)"] == "#0072b2" and colours["sequential (probe at 10)"] == "#d55e00"
    assert len(set(colours.values())) == 6
    light = [sum(bytes.fromhex(colours[f"clear (probe at {position})"][1:])) for position in (0, 5, 10)]
    assert light == sorted(light, reverse=True)
    assert arm_colours(["clear"])["clear"] == "#0072b2" and lighter("#000000", 1.0) == "#ffffff"


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (3, 3), (5, 5), (6, 3), (8, 4), (9, 3), (10, 5), (12, 4)])
def test_panels_leave_no_empty_cells_where_that_can_be(count, columns):
    assert grid_columns(count) == columns and count % columns == 0


def test_long_names_are_cut_in_their_middle():
    assert fit("space_invaders", 2.9) == "space_invaders"
    shown = fit("MiniGrid-Dynamic-Obstacles-Random-16x16-v0", 2.0)
    assert len(shown) < 25 and shown.startswith("MiniGrid") and shown.endswith("v0") and "…" in shown


def test_what_all_names_share_goes_first():
    names = [f"MiniGrid-DoorKey-{size}x{size}-random-start-v0" for size in (5, 6)]
    assert short_names(names, 20) == ["…5x5…", "…6x6…"]
    assert short_names(["a", "b"], 20) == ["a", "b"] and short_names([], 3) == []
    assert short_names(["x" * 30, "x" * 30 + "y"], 9) == ["xxxx…xxxx", "xxxx…xxxy"]


def test_control_schemes_have_a_legend_and_other_names_do_not():
    note = names_note(["breakout", "breakout@2", "breakout@1"], "minatar")
    assert note == "@1, @2: the same game under another control scheme, that is with its actions permuted."
    assert names_note(["breakout"], "minatar") == "" and names_note(["x@2"], "gym:x@2") == ""
