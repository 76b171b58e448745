"""Suites of tasks by name. Nothing heavy is imported before a suite is made, nor a game before it is played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from clearl.config import RunConfig, Setting, settings_of, used_settings
from clearl.errors import ConfigError, UnknownNameError
from clearl.registry import Registry
from clearl.tasks.makers import use_makers

if TYPE_CHECKING:
    from clearl.spaces import TaskSpec
    from clearl.tasks.suite import Suite


class SuiteMaker(Protocol):
    """The type of a registered suite: a class whose tasks can be listed without the packages that its games need."""

    default_tasks: ClassVar[tuple[str, ...]]
    """The tasks of a run whose user names none."""
    known_tasks: ClassVar[tuple[str, ...]]
    """The tasks that `clearl list` shows; empty where the suite takes any id."""
    settings: ClassVar[type | None]
    """The dataclass of the settings that it declares, besides `frame_stack`, which all follow."""

    def __call__(self, tasks: Sequence[str], config: RunConfig) -> Suite: ...


@runtime_checkable
class KnowsSpec(Protocol):
    """A suite whose spec follows from the settings alone, so that forecasts need no package."""

    def spec_for(self, config: RunConfig) -> TaskSpec: ...


SUITES: Registry[SuiteMaker] = Registry(
    "suite",
    {
        "minatar": "clearl.suites.minatar:MinAtarSuite",
        "gym": "clearl.suites.gymnasium:GymnasiumSuite",
        "control": "clearl.suites.control:ControlSuite",
        "atari": "clearl.suites.atari:AtariSuite",
        "minigrid": "clearl.suites.minigrid:MiniGridSuite",
        "vizdoom": "clearl.suites.vizdoom:VizDoomSuite",
        "dmlab": "clearl.suites.dmlab:DmLabSuite",
        "mujoco": "clearl.suites.mujoco:MujocoSuite",
        "metaworld": "clearl.suites.metaworld:MetaWorldSuite",
    },
    settings={
        "minatar": "clearl.suites.settings:StickyActions",
        "gym": "clearl.suites.settings:GymnasiumSettings",
        "atari": "clearl.suites.settings:AtariSettings",
        "vizdoom": "clearl.suites.settings:ActionRepeat",
        "dmlab": "clearl.suites.settings:DmLabSettings",
        "mujoco": "clearl.suites.settings:ActionRepeat",
    },
    group="clearl.suites",
)


def make_suite(name: str, tasks: Sequence[str], config: RunConfig) -> Suite:
    """Make the suite called `name` with `tasks`, or its default ones; `gym:ID,ID` also names the tasks.

    A probe task of `config` joins the tasks, so that the common spec covers everything that the run will meet.
    """
    kind, _, listed = name.partition(":")
    maker = SUITES.get(kind)
    tasks, listed = _expanded(tasks, config), _expanded(list(filter(None, listed.split(","))), config)
    chosen = _choose(name, tasks, listed, maker.default_tasks)
    if config.probe_task is not None and config.probe_task not in chosen:
        chosen = (*chosen, config.probe_task)
    _check_settings(kind, config)
    use_makers(config.environments)
    try:
        suite = maker(chosen, config)
    except UnknownNameError:
        raise
    except ConfigError as error:
        raise ConfigError(f"suite {name}: {error}") from error  # names the setting that is to blame
    if config.drift_applied == "at-once" and not getattr(suite, "changes_in_play", False):
        raise ConfigError(f"suite {kind} takes parameters at construction only; set drift_applied to reset")
    return suite


def _expanded(tasks: Sequence[str], config: RunConfig) -> tuple[str, ...]:
    from clearl.tasks.parameters import expand_ranges

    return expand_ranges(tasks, config.drift_values if "drift_values" in used_settings(config) else None)


def _check_settings(kind: str, config: RunConfig) -> None:
    """Refuse a setting that would do nothing: the user believes that it does something. Off is off everywhere."""
    declared = {suite: _declared(suite) for suite in SUITES}
    for name, setting in {name: setting for own in declared.values() for name, setting in own.items()}.items():
        asked = getattr(config, name)
        if name not in declared[kind] and asked and asked != setting.default:
            able = ", ".join(suite for suite, own in declared.items() if name in own)
            raise ConfigError(f"suite {kind} does not know {name}, which is for {able}; leave it at its default")


def _declared(suite: str) -> dict[str, Setting]:
    kind = SUITES.settings(suite)
    return {} if kind is None else settings_of(kind)


def _choose(name: str, tasks: Sequence[str], listed: tuple[str, ...], default: tuple[str, ...]) -> tuple[str, ...]:
    if listed and not name.startswith("gym:"):
        raise ConfigError(f"suite {name!r} lists its tasks; only 'gym:' does that, name them with --tasks instead")
    for task in tasks if listed else ():
        if task not in listed:
            raise UnknownNameError(f"task of suite {name}", task, listed)
    chosen = tuple(tasks) or listed or default
    if not chosen:
        raise ConfigError(f"suite {name!r} has no default tasks; name some with --tasks A,B")
    twice = sorted({task for task in chosen if chosen.count(task) > 1})
    if twice:
        raise ConfigError(f"tasks {', '.join(twice)} are listed twice; a sequence is repeated with --cycles")
    return chosen
