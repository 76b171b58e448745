from __future__ import annotations

import subprocess
import sys

import pytest

from clearl.config import RunConfig
from clearl.errors import ConfigError, UnknownNameError
from clearl.suites import SUITES, make_suite


def test_no_tasks_means_the_default_ones() -> None:
    assert make_suite("minatar", (), RunConfig()).tasks == ("breakout", "space_invaders")


def test_the_probe_task_joins_the_tasks() -> None:
    suite = make_suite("minatar", ("breakout",), RunConfig(protocol="probe", probe_task="asterix"))
    assert suite.tasks == ("breakout", "asterix")


@pytest.mark.parametrize(
    ("name", "tasks", "message"),
    [
        ("minator", (), "unknown suite 'minator'; did you mean 'minatar'"),
        ("minatar", ("breakuot",), "did you mean 'breakout'"),
        ("minatar", ("breakout", "breakout"), "listed twice"),
        ("minatar:breakout", (), "--tasks"),
    ],
)
def test_bad_names_say_what_to_change(name: str, tasks: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_suite(name, tasks, RunConfig())


def test_a_setting_that_would_do_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="minatar does not know noop_max, which is for atari; leave"):
        make_suite("minatar", (), RunConfig(noop_max=3))
    with pytest.raises(ConfigError, match="which is for gym, atari, vizdoom, dmlab, mujoco"):
        make_suite("minatar", (), RunConfig(action_repeat=4))


def test_tasks_can_be_listed_without_the_packages_of_the_games() -> None:
    code = (
        "import sys; from clearl.suites import SUITES; [SUITES.get(name).known_tasks for name in SUITES];"
        "heavy = {'torch', 'gymnasium', 'minatar', 'ale_py', 'envpool', 'vizdoom', 'mujoco', 'metaworld'};"
        "heavy = (heavy | {'matplotlib'}) & set(sys.modules);"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_suite_is_an_unknown_name() -> None:
    with pytest.raises(UnknownNameError):
        SUITES.get("nope")


def test_an_error_of_a_suite_names_the_suite_whatever_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        """A suite that cannot be made."""

        default_tasks = known_tasks = ("a",)
        settings = None

        def __init__(self, tasks: tuple[str, ...], config: RunConfig) -> None:
            raise ConfigError("no task can be suited")

    monkeypatch.setitem(SUITES._entries, "refusing", Refusing)
    with pytest.raises(ConfigError, match="^suite refusing: no task can be suited$"):
        make_suite("refusing", (), RunConfig())
