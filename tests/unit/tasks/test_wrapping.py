from __future__ import annotations

import sys
from pathlib import Path

import pytest

from clearl.config import RunConfig
from clearl.errors import ConfigError, EnvironmentFaultError, UnknownNameError
from clearl.plugins import import_asked, named_modules
from clearl.suites import make_suite

OWN = """
from gymnasium import RewardWrapper

class Tenfold(RewardWrapper):
    def __init__(self, env, by=10):
        super().__init__(env)
        self.by = by
    def reward(self, reward):
        return self.by * reward

def breaks(env):
    raise OSError("no device")
"""


@pytest.fixture
def own_wrappers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_wrappers.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_wrappers", raising=False)


def test_wrappers_of_gymnasium_by_name_with_arguments() -> None:
    config = RunConfig(suite="gym:CartPole-v1", wrappers=("TimeLimit?max_episode_steps=3", "FlattenObservation"))
    suite = make_suite("gym:CartPole-v1", (), config)
    envs = suite.make("CartPole-v1", num_envs=1, seed=0)
    envs.reset()
    ends = [envs.step(suite.mask("CartPole-v1")[:1].astype(int)).truncated[0] for _ in range(3)]
    envs.close()
    assert ends == [False, False, True]


def test_a_wrapper_of_ones_own(own_wrappers: None) -> None:
    suite = make_suite("gym:CartPole-v1", (), RunConfig(wrappers=("own_wrappers:Tenfold?by=7",)))
    envs = suite.make("CartPole-v1", num_envs=1, seed=0)
    envs.reset()
    assert envs.step(suite.mask("CartPole-v1")[:1].astype(int)).reward.tolist() == [7.0]
    envs.close()


@pytest.mark.parametrize(
    ("wrapper", "kind", "told"),
    [
        ("FlatenObservation", UnknownNameError, "did you mean 'FlattenObservation'"),
        ("TimeLimit", ConfigError, "'TimeLimit' cannot be put around 'CartPole-v1'.*max_episode_steps"),
        ("nowhere:Wrapper", ConfigError, "'nowhere:Wrapper' cannot be imported"),
        ("own_wrappers:breaks", EnvironmentFaultError, "raised OSError: no device"),
    ],
)
def test_what_cannot_be_is_told(wrapper: str, kind: type[Exception], told: str, own_wrappers: None) -> None:
    with pytest.raises(kind, match=told):
        make_suite("gym:CartPole-v1", (), RunConfig(wrappers=(wrapper,)))


def test_a_strangers_wrapper_is_not_imported_unasked(own_wrappers: None) -> None:
    settings = {"suite": "gym:CartPole-v1", "wrappers": ["own_wrappers:Tenfold", "FlattenObservation"]}
    assert named_modules(settings) == ("own_wrappers",)
    with pytest.raises(ConfigError, match="not imported unasked.*--imports own_wrappers"):
        import_asked(settings, source="config.yaml")
    assert "own_wrappers" not in sys.modules
