"""Settings that methods and suites declare: flat, strict, in `--help`, and a user's own like ours."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest

from clearl.cli.arguments import parse_run
from clearl.cli.run import RunArgs
from clearl.config import (
    RunConfig,
    Tag,
    Weight,
    diff,
    from_yaml,
    may_change,
    names_tagged,
    owned_settings,
    parse_yaml,
    resolve,
    settings,
    settings_of,
    to_yaml,
)
from clearl.errors import ConfigError, UnknownNameError
from clearl.methods import CORRECTIONS, METHODS
from clearl.methods.method import Wrapper
from clearl.suites import SUITES


@dataclass(frozen=True)
class PullSettings:
    """Pull to the start"""

    pull_weight: Annotated[Weight, "weight of the pull"] = 0.5


class Pulled(Wrapper):
    """A user's own method."""

    label = "Pulled"
    settings = PullSettings


@pytest.fixture
def pulled() -> Iterator[None]:
    METHODS.register("pulled", Pulled)
    yield
    del METHODS._entries["pulled"]


@pytest.mark.parametrize("registry", [METHODS, CORRECTIONS, SUITES], ids=["methods", "corrections", "suites"])
def test_a_shipped_plug_in_declares_its_settings_where_its_registry_says(registry: Any) -> None:
    for name in registry:
        assert registry.settings(name) is registry.get(name).settings, name


def test_settings_of_owners_are_attributes_and_keys_like_any_other() -> None:
    config = RunConfig(ewc_lambda=3, seed=2)
    assert (config.ewc_lambda, config.ewc_gamma, config.noop_max) == (3.0, 0.99, 30)
    assert config == RunConfig(seed=2, ewc_lambda=3.0) != RunConfig(seed=2)
    assert hash(config) == hash(RunConfig(seed=2, ewc_lambda=3.0))
    again = dataclasses.replace(config, ewc_gamma=0.5)
    assert diff(config, again) == {"ewc_gamma": (0.99, 0.5)} and again.ewc_lambda == 3.0
    assert from_yaml(to_yaml(again)) == again
    assert parse_yaml(to_yaml(again), "config")["ewc_lambda"] == 3.0
    with pytest.raises(AttributeError, match="no attribute 'ewc_lambada'"):
        _ = config.ewc_lambada
    with pytest.raises(UnknownNameError, match="did you mean 'ewc_lambda'"):
        RunConfig(ewc_lambdo=3)


def test_a_setting_of_a_users_own_works_as_ours_do(pulled: None) -> None:
    assert RunConfig().pull_weight == 0.5
    config = resolve(flags={"method": "pulled+clear", "pull_weight": 2})
    assert config.pull_weight == 2.0 and from_yaml(to_yaml(config)) == config
    assert parse_yaml(to_yaml(RunConfig(method="pulled")), "config")["pull_weight"] == 0.5
    assert "pull_weight" not in parse_yaml(to_yaml(RunConfig()), "config"), "a run that does not use it"
    with pytest.raises(ConfigError, match="pull_weight must be a number between 0 and"):
        RunConfig(pull_weight=-1)


def test_without_its_owner_a_setting_is_unknown_and_its_module_is_named() -> None:
    text = "method: pulled+clear\nimports: [my_methods]\npull_weight: 2\n"
    with pytest.raises(ConfigError, match="unknown setting 'pull_weight'.*--imports my_methods"):
        from_yaml(text)


def test_a_setting_that_every_run_has_cannot_be_declared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Slots:
        """Mine"""

        slots: Annotated[Weight, "mine"] = 0.5

    @dataclass(frozen=True)
    class Lambda:
        """Mine"""

        ewc_lambda: Annotated[Weight, "mine"] = 0.5

    @dataclass(frozen=True)
    class Needed:
        """Mine"""

        needed: Annotated[Weight, "mine"]

    for kind, text in ((Slots, "one of every run"), (Lambda, "declared twice"), (Needed, "needs a default")):
        monkeypatch.setitem(METHODS._entries, "mine", type("Mine", (Pulled,), {"settings": kind}))
        with pytest.raises(ConfigError, match=text):
            RunConfig()


def test_what_an_owner_finds_at_odds_is_refused(monkeypatch: pytest.MonkeyPatch, pulled: None) -> None:
    def conflicts(config: RunConfig) -> Iterator[str]:
        if config.pull_weight > config.slots:
            yield "pull_weight is more than slots"

    monkeypatch.setattr(PullSettings, "conflicts", staticmethod(conflicts), raising=False)
    with pytest.raises(ConfigError, match="pull_weight is more than slots"):
        RunConfig(pull_weight=65)


def test_tags_say_what_makes_no_new_run_and_no_new_arm() -> None:
    assert {"workers", "address", "learner_threads", "worker_timeout_s"} <= may_change()
    machine = names_tagged(Tag.MACHINE, Tag.PLACEMENT)
    assert {"seed", "runtime", "level_cache", "workers"} <= machine
    assert not machine & {"method", "slots", "ewc_lambda", "learning_rate", "action_repeat"}


def test_every_owned_setting_has_a_help_text_and_a_heading() -> None:
    assert [s.name for s in owned_settings().values() if len(s.help) < 5 or not s.group] == []
    assert settings().keys() >= owned_settings().keys() | settings_of(RunConfig).keys() - {"owned"}


MODULE = '''
from dataclasses import dataclass
from typing import Annotated
from clearl.config import Weight
from clearl.methods import METHODS
from clearl.methods.method import Wrapper

@dataclass(frozen=True)
class Settings:
    """Their method"""
    their_weight: Annotated[Weight, "weight of their term"] = 0.25

class Their(Wrapper):
    label = "Theirs"
    settings = Settings

METHODS.register("theirs", Their)
'''


def test_a_flag_of_an_imported_module_works_and_is_in_the_help(tmp_path: Path) -> None:
    (tmp_path / "their_method.py").write_text(MODULE)

    def clearl(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "clearl", "run", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    shown = clearl("--imports", "their_method", "--help")
    assert "--their-weight X" in shown.stdout and "Their method" in shown.stdout
    refused = clearl("--imports=their_method", "--their-weight", "-3", "--out", "x")
    assert refused.returncode == 2 and "their_weight must be a number between 0 and" in refused.stderr
    unknown = clearl("--their-weight", "3", "--out", "x")
    assert unknown.returncode == 2 and "unknown flag '--their-weight'" in unknown.stderr


def test_flags_of_owners_are_grouped_under_their_headings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_run(RunArgs, ["--help"], verb="run", about="")
    shown = capsys.readouterr().out
    headings = ("CLEAR and the baseline", "EWC", "Progress & Compress", "Atari")
    assert [heading for heading in headings if f" {heading} options" not in shown] == []
    assert shown.index("Progress & Compress options") < shown.index("--reset-active")
