"""Runs that differ only in seed or machine are one arm; what cannot be compared is refused."""

from __future__ import annotations

import pytest

from clearl.errors import ReportError
from clearl.report.arms import derived_name, group_arms, label
from clearl.report.load import load_run, load_runs
from clearl.report.style import PALETTE, arm_colours


def _arms(make_run):
    return group_arms(load_runs([make_run.root]))


def test_the_name_in_the_meta_data_groups_seeds_in_the_papers_order(make_run):
    for arm in ("clear", "mine", "sequential", "clear-75-25"):
        for seed in (2, 0):
            make_run(arm, seed)
    assert [(arm.name, arm.seeds) for arm in _arms(make_run)] == [
        ("sequential", [0, 2]),
        ("clear", [0, 2]),
        ("clear-75-25", [0, 2]),
        ("mine", [0, 2]),
    ]


@pytest.mark.parametrize(
    ("settings", "protocol", "expected"),
    [
        ({"method": "baseline"}, "sequential", "sequential"),
        ({"method": "clear", "replay_fraction": 0}, "sequential", "sequential"),
        ({"method": "clear"}, "sequential", "clear"),
        ({"method": "clear", "replay_fraction": 0.25}, "sequential", "clear-75-25"),
        ({"method": "clear", "replay_fraction": 1.0}, "sequential", "clear-100-replay"),
        ({"method": "clear", "replay_fraction": 0.4}, "sequential", "clear-replay-0.4"),
        ({"method": "clear", "policy_cloning_weight": 0, "value_cloning_weight": 0}, "sequential", "clear-no-cloning"),
        ({"method": "clear", "buffer_share": 1 / 18}, "sequential", "clear-buffer-1/18"),
        ({"method": "clear", "buffer_share": 1 / 180}, "sequential", "clear-buffer-1/180"),
        ({"method": "clear", "pairs": "both"}, "sequential", "clear-both"),
        ({"method": "clear", "pairs": "both", "replay_ratio": 0.5}, "sequential", "clear-both-0.5"),
        ({"method": "ewc"}, "sequential", "ewc"),
        ({"method": "baseline"}, "simultaneous", "simultaneous"),
        ({"method": "baseline"}, "separate", "separate"),
    ],
)
def test_a_run_without_a_name_gets_the_papers(make_run, settings, protocol, expected):
    path = make_run(None, config=settings, protocol=protocol, method=settings["method"])
    assert derived_name(load_run(path)) == expected


def test_settings_that_differ_make_arms_of_their_own_but_the_machine_does_not(make_run):
    make_run(None, 0, config={"learning_rate": 0.001, "workers": 1}, name="x")
    make_run(None, 1, config={"learning_rate": 0.001, "workers": 4}, name="y")
    make_run(None, 0, config={"learning_rate": 0.01}, name="z")
    arms = {arm.name: arm.seeds for arm in _arms(make_run)}
    assert arms == {"clear [learning_rate=0.001]": [0, 1], "clear [learning_rate=0.01]": [0]}


def test_a_setting_that_an_older_version_did_not_have_stands_at_its_default(make_run):
    make_run(None, 0, config={"learning_rate": 0.003}, name="old")
    make_run(None, 1, config={"learning_rate": 0.003, "ewc_lambda": 500.0}, name="new")
    assert {arm.name: arm.seeds for arm in _arms(make_run)} == {"clear": [0, 1]}


def test_a_combination_is_labelled_by_its_parts():
    assert label("l2-init+ewc+clear") == "L2 init + EWC + CLEAR"
    assert label("clear-both-0.5") == "CLEAR, both of each pair, 1:0.5"
    assert label("mine+clear") == "mine + CLEAR" and label("progress-compress+clear") == "P&C + CLEAR"


def test_each_position_of_the_probe_is_an_arm(make_run):
    for position in (2, 0):
        make_run("clear", 0, protocol="probe", probe_position=position, name=f"p{position}")
    assert [arm.name for arm in _arms(make_run)] == ["clear (probe at 0)", "clear (probe at 2)"]
    assert label("clear (probe at 2)") == "CLEAR, probe at 2"


def test_the_same_seed_twice_is_refused(make_run):
    make_run("clear", 0, name="x")
    make_run("clear", 0, name="y")
    with pytest.raises(ReportError, match=r"arm 'clear' has two runs with seed 0: .*x and .*y; give one"):
        _arms(make_run)


def test_an_unfinished_run_is_of_the_planned_length(make_run):
    make_run("clear", 0)
    make_run("clear", 1, until=0.2, status="running")
    assert [arm.seeds for arm in _arms(make_run)] == [[0, 1]]


def test_different_suites_are_refused(make_run):
    make_run("clear", 0)
    make_run("sequential", 0, suite="atari")
    with pytest.raises(ReportError, match="atari: sequential; minatar: clear"):
        _arms(make_run)


def test_boundaries_and_task_order(make_run):
    make_run("ewc", 0, needs_boundaries=True, tasks=["b", "a"])
    (arm,) = _arms(make_run)
    assert arm.needs_boundaries and arm.tasks == ["b", "a"]


OWN = {"method": "pull-to-start+clear", "label": "Pull to start + CLEAR", "colour": "#123ABC"}


def test_a_method_of_ones_own_is_drawn_as_it_declares(make_run):
    make_run(None, **OWN)
    make_run("clear", method="clear", label="CLEAR", colour="")
    clear, own = _arms(make_run)
    assert (label(clear.name), label(own.name)) == ("CLEAR", "Pull to start + CLEAR")
    assert arm_colours([clear.name, own.name]) == {"clear": "#0072b2", "pull-to-start+clear": "#123abc"}
    assert own.name == "pull-to-start+clear", "the name in summary.json is the method's"


def test_two_arms_of_one_method_share_its_label_and_only_one_has_its_colour(make_run):
    for rate in (0.001, 0.01):
        make_run(None, config={"learning_rate": rate, "method": OWN["method"]}, name=str(rate), **OWN)
    names = [arm.name for arm in _arms(make_run)]
    assert [label(name) for name in names] == [
        f"Pull to start + CLEAR [learning_rate={rate}]" for rate in (0.001, 0.01)
    ]
    colours = list(arm_colours(names).values())
    assert colours[0] == "#123abc" and colours[1] in PALETTE


def test_an_arms_own_name_comes_before_the_methods_label(make_run):
    make_run("my idea", **OWN)
    (arm,) = _arms(make_run)
    assert label(arm.name) == "my idea"


@pytest.mark.parametrize("colour", ["red", "#12345", "url(http://x)", 7, None])
def test_a_colour_that_is_none_is_not_taken(make_run, colour):
    make_run(None, **{**OWN, "colour": colour, "label": "two\nlines"})
    (arm,) = _arms(make_run)
    assert arm_colours([arm.name])[arm.name] in PALETTE and "\n" not in label(arm.name)
