"""A protocol of a user's own declares settings, as ours do: flags, ranges of parameters, changes in the middle."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearl.cli.main import main
from clearl.config import RunConfig, from_yaml, parse_yaml, to_yaml
from clearl.errors import ConfigError
from clearl.plugins import import_plugins
from clearl.protocols import PROTOCOLS, make_plans
from clearl.suites import make_suite
from clearl.tasks.suite import ChangesInPlay
from clearl.wiring import planned

MODULE = '''
from dataclasses import dataclass
from typing import Annotated
from clearl.interfaces import PROTOCOLS, Between, Plan, RangeSettings, single, visits_frames

@dataclass(frozen=True)
class StairSettings(RangeSettings):
    """Stairs"""

    stair_rests: Annotated[int, Between(1, 9), "visits to each value"] = 1

def stairs(tasks, config):
    segments = [single(task, frames=visits_frames(config)) for task in tasks for _ in range(config.stair_rests)]
    return [Plan("stairs", tuple(segments) * config.cycles, evaluate=tuple(tasks))]

stairs.settings = StairSettings
PROTOCOLS.register("stairs", stairs)
'''
RANGE = "CartPole-v1?length=0.5..2.0"


@pytest.fixture(autouse=True)
def stairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "stairs_protocol.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import_plugins(["stairs_protocol"])
    yield
    PROTOCOLS._entries.pop("stairs")
    sys.modules.pop("stairs_protocol")


def test_its_setting_is_a_flag_that_changes_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--protocol", "stairs", "--imports", "stairs_protocol", "--tasks", "breakout,asterix", "--dry-run"]
    assert main(["run", *flags, "--stair-rests", "3", "--frames-per-visit", "1000", "--out", "x"]) == 0
    assert "stairs: 6 segments, 6,000 frames" in capsys.readouterr().out
    (plan,) = planned(RunConfig(protocol="stairs", stair_rests=3, tasks=("breakout", "asterix"), frames_per_visit=1000))
    assert [segment.tasks for segment in plan.segments] == [("breakout",)] * 3 + [("asterix",)] * 3
    assert main(["run", *flags, "--stair-rests", "10", "--out", "x"]) == 2
    assert "stair_rests must be a whole number between 1 and 9, got '10'" in capsys.readouterr().err


def test_its_setting_is_recorded_by_runs_that_use_it() -> None:
    config = RunConfig(protocol="stairs", stair_rests=2)
    assert from_yaml(to_yaml(config)) == config
    assert parse_yaml(to_yaml(RunConfig(protocol="stairs")))["stair_rests"] == 1
    assert "stair_rests" not in parse_yaml(to_yaml(RunConfig()))


def test_it_takes_ranges_and_changes_in_the_middle_of_episodes() -> None:
    config = RunConfig(suite="gym", tasks=(RANGE,), protocol="stairs", drift_values=3, drift_applied="at-once")
    suite = make_suite("gym", config.tasks, config)
    assert suite.tasks == tuple(f"CartPole-v1?length={value}" for value in ("0.5", "1.25", "2"))
    assert isinstance(suite, ChangesInPlay) and suite.changes_in_play
    with pytest.raises(ConfigError, match="has a range, which is for protocol drift"):
        make_suite("gym", config.tasks, RunConfig(suite="gym", tasks=(RANGE,)))
    with pytest.raises(ConfigError, match="drift_applied at-once is for protocol drift, but protocol is 'random'"):
        RunConfig(protocol="random", drift_applied="at-once")


def test_a_length_in_episodes_is_refused_by_protocols_that_divide_frames() -> None:
    for protocol in ("stairs", "overlap", "drift", "random"):
        by_episodes = RunConfig(protocol=protocol, frames_per_visit=None, episodes_per_visit=3)
        with pytest.raises(ConfigError, match=f"protocol {protocol} needs a length in frames: give frames_per_visit"):
            make_plans(by_episodes, ("a", "b"))


def test_every_shipped_protocol_with_settings_is_refused_without_what_it_needs() -> None:
    with pytest.raises(ConfigError, match="protocol probe needs probe_task"):
        RunConfig(protocol="probe")
    with pytest.raises(ConfigError, match="protocol schedule and the setting schedule"):
        RunConfig(protocol="schedule")
    with pytest.raises(ConfigError, match="probe_task is for protocol probe, but protocol is 'stairs'"):
        RunConfig(protocol="stairs", probe_task="asterix")
