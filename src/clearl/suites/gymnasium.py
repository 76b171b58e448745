"""Any Gymnasium environments: `gym:CartPole-v1,Acrobot-v1`, or `gym:my_module:MyEnv-v0`."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any, ClassVar

from clearl.config import RunConfig
from clearl.errors import MissingExtraError
from clearl.suites.environments import EnvironmentSuite
from clearl.suites.settings import GymnasiumSettings
from clearl.tasks.single import make_env


class GymnasiumSuite(EnvironmentSuite):
    """Ids as tasks, with parameters; see `clearl.tasks.parameters`."""

    name = "gym"
    default_tasks: ClassVar[tuple[str, ...]] = ()
    known_tasks: ClassVar[tuple[str, ...]] = ()
    settings: ClassVar[type | None] = GymnasiumSettings

    def __init__(self, tasks: Sequence[str], config: RunConfig) -> None:
        if importlib.util.find_spec("gymnasium") is None:
            raise MissingExtraError("suite gym", "gymnasium", "install it with: pip install gymnasium")
        super().__init__(tasks, config)

    def make_env(self, task: str) -> Any:
        return make_env(task)
