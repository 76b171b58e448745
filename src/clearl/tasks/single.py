"""One Gymnasium environment by its id, with errors that say what to do."""

from __future__ import annotations

import difflib
import traceback
from typing import Any

from clearl.errors import ConfigError, EnvironmentFaultError, UnknownNameError


def make_env(env_id: str, **options: Any) -> Any:
    """The environment called `env_id`; `module:Env-v0` imports the module first."""
    import gymnasium

    try:
        # Our own checks name task, slot and step; Gymnasium's would say it again and slow down the first steps.
        return gymnasium.make(env_id, disable_env_checker=True, **options)
    except ModuleNotFoundError as error:
        raise ConfigError(f"Gymnasium cannot make {env_id!r}: {error}; install it or correct its name") from error
    except gymnasium.error.NameNotFound as error:
        near = difflib.get_close_matches(env_id, gymnasium.registry, n=3, cutoff=0.5)
        if near:
            raise UnknownNameError("Gymnasium id", env_id, near) from error
        raise ConfigError(f"{error} If a module of yours registers it, write module:{env_id} or --imports") from error
    except gymnasium.error.Error as error:
        raise ConfigError(f"Gymnasium cannot make {env_id!r}: {error}") from error
    except Exception as error:  # whatever a user's environment raises is shown with its traceback
        problem = f"it could not be made: {type(error).__name__}: {error}\n{traceback.format_exc().rstrip()}"
        raise EnvironmentFaultError(env_id, 0, 0, problem) from error
