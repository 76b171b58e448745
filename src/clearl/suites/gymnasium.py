"""Any Gymnasium environments: `gym:CartPole-v1,Acrobot-v1`, or `gym:my_module:MyEnv-v0`."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from clearl.config import RunConfig, used_settings
from clearl.errors import ConfigError, MissingExtraError
from clearl.suites.environments import EnvironmentSuite
from clearl.suites.settings import GymnasiumSettings
from clearl.tasks.in_play import attributes_in_play, set_attributes
from clearl.tasks.loop import LoopEnvs
from clearl.tasks.parameters import split_task
from clearl.tasks.single import check_parameters, has_vector, make_env, make_vector
from clearl.tasks.suite import Envs
from clearl.tasks.wrapping import wrapped


class GymnasiumSuite(EnvironmentSuite):
    """Ids as tasks, with parameters; see `clearl.tasks.parameters`."""

    name = "gym"
    default_tasks: ClassVar[tuple[str, ...]] = ()
    known_tasks: ClassVar[tuple[str, ...]] = ()
    settings: ClassVar[type | None] = GymnasiumSettings

    def __init__(self, tasks: Sequence[str], config: RunConfig) -> None:
        if importlib.util.find_spec("gymnasium") is None:
            raise MissingExtraError("suite gym", "gymnasium", "install it with: pip install gymnasium")
        _check_distinct(tasks)
        for task in tasks if "drift_values" in used_settings(config) else ():
            if "?" in task:
                check_parameters(task)
        self._wrappers: tuple[str, ...] = config.wrappers
        super().__init__(tasks, config, make_vector=partial(_make_vector, config))
        self.changes_in_play = config.drift_applied == "at-once"
        self._in_play = attributes_in_play(self.tasks, self.make_env) if self.changes_in_play else {}

    def make_env(self, task: str, *, render_mode: str | None = None) -> Any:
        return wrapped(make_env(task, render_mode=render_mode), task, self._wrappers)

    def change(self, envs: Envs, task: str) -> Envs:
        assert isinstance(envs, LoopEnvs), "vectors are refused"
        return envs.changed(
            task, lambda env: set_attributes(env.unwrapped, self._in_play[task]), partial(self.one, task)
        )


def _check_distinct(tasks: Sequence[str]) -> None:
    """Refuse two names of one task, such as `?g=2` and `?g=2.0`: they would be trained and reported as two."""
    names: dict[Any, str] = {}
    for task in tasks:
        env_id, parameters = split_task(task)
        values = frozenset((name, isinstance(value, bool), value) for name, value in parameters.items())
        other = names.setdefault((env_id, values), task)
        if other != task:
            raise ConfigError(f"{other} and {task} are two names of one task; use one of them")


def _make_vector(config: RunConfig, task: str, num_envs: int) -> Any | None:
    registered, alone = has_vector(task)
    if not registered or not (config.vector_entry_point or alone):
        return None
    for name in ("action_repeat", "sticky_action_probability", "wrappers"):
        if getattr(config, name) not in (None, 0, 1, ()):
            raise ConfigError(f"{task} is a vector environment, which {name} cannot change; leave it at its default")
    if config.drift_applied == "at-once":
        raise ConfigError(f"{task} is a vector environment: drift_applied at-once changes single environments only")
    return make_vector(task, num_envs)
