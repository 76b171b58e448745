"""The search for lambdas: it spends a tenth of a lifetime, on seeds of its own, and never ends at an edge by itself."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from clearl.config import RunConfig, resolve
from clearl.reproduce.catalog import SCHEMES


@pytest.fixture(scope="module")
def tool():
    path = Path(__file__).parents[3] / "tools" / "search_constants.py"
    spec = importlib.util.spec_from_file_location("search_constants", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.parametrize(
    "life",
    [
        resolve("minatar-schemes", flags=SCHEMES["laptop"].settings),
        RunConfig(tasks=("a", "b", "c", "d"), cycles=5, frames_per_visit=1_000_000),
        RunConfig(tasks=("a", "b"), cycles=40, frames_per_visit=1000),
    ],
)
def test_a_search_spends_at_most_a_tenth_of_a_lifetime_and_sees_a_switch(tool, life: RunConfig) -> None:
    used = tool.tuning_settings(life)
    frames = used["cycles"] * len(used["tasks"]) * used["frames_per_visit"]
    assert life.frames_per_visit is not None
    assert frames <= life.cycles * len(life.tasks) * life.frames_per_visit / 10
    assert len(used["tasks"]) >= 2 and used["tasks"] == life.tasks[: len(used["tasks"])]


def test_a_grid_grows_until_its_best_lies_inside(tool) -> None:
    assert tool.next_value({1.0: 3.0, 10.0: 2.0, 100.0: 1.0}, 10) == 0.1
    assert tool.next_value({1.0: 1.0, 10.0: 2.0, 100.0: 3.0}, 10) == 1000.0
    assert tool.next_value({1.0: 1.0, 10.0: 3.0, 100.0: 2.0}, 10) is None


def test_no_reported_run_has_a_seed_of_the_search(tool) -> None:
    assert min(tool.SEEDS) > 20 and all(sequence.seeds <= 20 for sequence in SCHEMES.values())
