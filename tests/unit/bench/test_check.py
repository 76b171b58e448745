"""`make bench-check` itself: what it judges, what it keeps, and how it looks at peers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))  # benchmarks are no part of the package

from benchmarks import check
from benchmarks.peers.compare import compare

OPTIONS = check.Options(repeats=2, seconds=1.0)


def figure(values: list[float], **changes: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {"about": "a ratio", "bound": 2.0, "tolerance": 0.1, "measure": lambda options: values}
    return check.judge("replay", check.Guard(**{**settings, **changes}), OPTIONS)


def test_the_median_counts_within_the_tolerance() -> None:
    assert figure([5.0, 1.81, 0.0])["holds"] and not figure([5.0, 1.79, 0.0])["holds"]
    assert figure([2.19], at_least=False)["holds"] and not figure([2.21], at_least=False)["holds"]


def test_figures_that_are_not_measured_again_stay(tmp_path: Path) -> None:
    path = tmp_path / "new" / "check.json"
    for name, value in (("help", 1.0), ("replay", 2.0), ("help", 3.0)):
        check.write(path, [{**figure([value]), "name": name}])
    found = {row["name"]: row["value"] for row in json.loads(path.read_text())["figures"]}
    assert found == {"replay": 2.0, "help": 3.0}


def test_runs_without_evaluation_are_no_longer_than_asked_for() -> None:
    config = check.workload("minatar")
    never = check.workload("minatar", **check._NO_EVALUATION)
    assert check.run_s(never, 1.0, 50_000.0) == 1.0 < check.run_s(config, 1.0, 50_000.0)


MEASURED = [
    {"name": "clearl", "frames_per_s": 30.0, "settings": {}},
    {"name": "sb3-a2c", "frames_per_s": 10.0, "settings": {}},
    {"name": "clearl", "frames_per_s": 80.0, "settings": {}},
    {"name": "sb3-a2c", "frames_per_s": 20.0, "settings": {}},
    {"name": "clearl", "frames_per_s": 1.0, "settings": {}},
    {"name": "sample-factory", "error": "does not run: no reason"},
    {"name": "rllib-impala", "error": "does not run: a good reason"},
]


def test_a_peer_is_compared_with_what_was_measured_just_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> None:
        asked.append(command)
        Path(command[-1]).write_text(json.dumps({"peers": compare(MEASURED)}))

    monkeypatch.setattr(subprocess, "run", run)
    assert check.GUARDS["sb3-a2c"].measure(OPTIONS) == [3.0, 4.0]
    assert asked[0][2:8] == ["--only", "sb3-a2c", "--rounds", "2", "--seconds", "60"]
    with pytest.raises(check.NotMeasured, match="no reason"):
        check.GUARDS["sample-factory"].measure(OPTIONS)
    with pytest.raises(SystemExit, match="rllib-impala: does not run: a good reason"):
        check.GUARDS["rllib-impala"].measure(OPTIONS)


def test_a_peer_on_robots_is_compared_with_clearl_there() -> None:
    rates = [("clearl-cheetah", 30.0), ("sb3-ppo-cheetah", 10.0), ("clearl", 5.0), ("sb3-ppo", 1.0)]
    lines = [{"name": name, "frames_per_s": rate, "settings": {}} for name, rate in [*rates, ("sb3-ppo-cheetah", 15.0)]]
    found = {row["name"]: row["ratios"] for row in compare(lines)}
    assert found["sb3-ppo-cheetah"] == [3.0, 2.0] and found["sb3-ppo"] == [5.0] and found["clearl-cheetah"] == [1.0]


@pytest.mark.parametrize("kind", ["", "Robot"])
def test_the_two_shapes_of_an_observation_show_the_same_numbers(kind: str) -> None:
    import benchmarks.shapes  # noqa: F401 - registers them

    if kind == "Robot":
        pytest.importorskip("mujoco")
    parts, whole = (gymnasium.make(f"{kind}{name}-v0") for name in ("Parts", "Whole"))
    for env in (parts, whole):
        env.reset(seed=3)
    parts.action_space.seed(3)
    for _ in range(5):
        action = parts.action_space.sample()
        shown = parts.step(action)[0]
        np.testing.assert_array_equal(np.concatenate(list(shown.values())), whole.step(action)[0])
    for env in (parts, whole):
        env.close()


def test_every_target_of_the_peers_is_guarded() -> None:
    bounds = {name: check.GUARDS[name].bound for name in ("sb3-a2c", "rllib-impala", "sample-factory")}
    assert bounds == {"sb3-a2c": 1.5, "rllib-impala": 3.0, "sample-factory": 1.5}
