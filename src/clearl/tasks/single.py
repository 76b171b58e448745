"""Make one Gymnasium environment by its id, with errors that name the remedy."""

from __future__ import annotations

import difflib
import importlib
import inspect
import traceback
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from clearl.errors import ConfigError, EnvironmentFaultError, UnknownNameError
from clearl.tasks.calls import close_env, kept_torch_defaults
from clearl.tasks.construction import rebuild
from clearl.tasks.exits import exits_raise
from clearl.tasks.makers import find_maker, find_spec
from clearl.tasks.masks import RandomActions, mask_method
from clearl.tasks.parameters import (
    TIME_LIMIT,
    Parameters,
    constructor_keywords,
    known_parameters,
    sort_parameters,
    split_task,
    with_options,
)

_CHECKED_STEPS = 5
NUM_ENVS = "num_envs"


def make_env(task: str, *, render_mode: str | None = None, **options: Any) -> Any:
    """Return the environment of a task: an id, perhaps with parameters.

    `module:Env-v0` imports the module first. A user's function gets `render_mode` only if it takes it.
    """
    env_id, parameters = split_task(task)
    maker = find_maker(env_id)
    if render_mode is not None and (maker is None or "render_mode" in inspect.signature(maker).parameters):
        options["render_mode"] = render_mode
    if not parameters:
        return _make_id(env_id, **options)
    keywords = env_keywords(env_id)
    given, rest = _divided(parameters, keywords)
    if TIME_LIMIT in given and maker is None:
        _check_limit(task, given[TIME_LIMIT])
    make = partial(_make_id, env_id, **options, **given)
    env = make()
    attributes, reset_options = sort_parameters(env, task, rest, keywords)
    env = rebuild(env, task, attributes, make) if attributes else env
    return with_options(env, reset_options) if reset_options else env


def _divided(parameters: dict[str, Any], keywords: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divide parameters into keywords of the constructor and the rest."""
    given = {name: value for name, value in parameters.items() if name in keywords}
    return given, {name: value for name, value in parameters.items() if name not in given}


def _check_limit(task: str, limit: Any) -> None:
    if type(limit) is not int or (limit < 1 and limit != -1):
        raise ConfigError(f"task {task!r}: {TIME_LIMIT} is a number of steps, or -1 for no limit, got {limit!r}")


def env_keywords(env_id: str) -> tuple[str, ...]:
    """Return the keywords that the constructor of an environment takes, and the time limit of registered ones."""
    from gymnasium.envs.registration import load_env_creator

    if (maker := find_maker(env_id)) is not None:
        return tuple(name for name in constructor_keywords(maker) if name != NUM_ENVS)
    try:
        entry = _spec(env_id).entry_point
        creator = load_env_creator(entry) if isinstance(entry, str) else entry
        return () if creator is None else tuple(dict.fromkeys((*constructor_keywords(creator), TIME_LIMIT)))
    except (Exception, SystemExit):  # noqa: BLE001 - making it says what is wrong
        return ()


def has_vector(task: str) -> tuple[bool, bool]:
    """Return whether the id of a task registers a vector entry point, and whether it registers nothing else.

    A user's function makes vectors, and nothing else, if it takes `num_envs`.
    """
    env_id = split_task(task)[0]
    if (maker := find_maker(env_id)) is not None:
        makes_vectors = NUM_ENVS in constructor_keywords(maker)
        return makes_vectors, makes_vectors
    try:
        spec = _spec(env_id)
    except (Exception, SystemExit):  # noqa: BLE001 - making it says what is wrong
        return False, False
    return spec.vector_entry_point is not None, spec.entry_point is None


def make_vector(task: str, num_envs: int) -> Any:
    """Return the vector environment that the id of a task registers; parameters as in `make_env`."""
    env_id, parameters = split_task(task)
    keywords = constructor_keywords(_vector_maker(env_id))
    if NUM_ENVS in parameters:
        raise ConfigError(f"task {task!r}: num_envs is no parameter of a task; --slots says how many are played")
    given, rest = _divided(parameters, keywords)
    make = partial(_make_registered_vector, env_id, num_envs, given)
    vector = make()
    attributes, reset_options = sort_parameters(vector, task, rest, keywords)
    if reset_options:
        names = ", ".join(reset_options)
        raise ConfigError(f"task {task!r}: {names} is an option of reset, which a vector that resets itself never gets")
    return rebuild(vector, task, attributes, make) if attributes else vector


def _vector_maker(env_id: str) -> Any:
    from gymnasium.envs.registration import load_env_creator

    if (maker := find_maker(env_id)) is not None:
        return maker
    entry: Any = _spec(env_id).vector_entry_point
    return load_env_creator(entry) if isinstance(entry, str) else entry


def _make_registered_vector(env_id: str, num_envs: int, keywords: dict[str, Any]) -> Any:
    vector = _call_vector_maker(env_id, num_envs, keywords)
    if find_maker(env_id) is not None and not _is_vector(vector):
        raise ConfigError(
            f"task {env_id!r}: its function takes num_envs, but returned {vector!r:.80}; return a "
            "gymnasium.vector.VectorEnv, or leave out num_envs"
        )
    if vector.num_envs != num_envs:
        raise ConfigError(f"task {env_id!r}: {num_envs} environments were asked for, and {vector.num_envs} made")
    return vector


def _call_vector_maker(env_id: str, num_envs: int, keywords: dict[str, Any]) -> Any:
    import gymnasium

    try:
        with kept_torch_defaults(), exits_raise():
            if (maker := find_maker(env_id)) is not None:
                return maker(num_envs=num_envs, **keywords)
            named = find_spec(env_id) or env_id
            return gymnasium.make_vec(named, num_envs, vectorization_mode="vector_entry_point", **keywords)
    except ModuleNotFoundError as error:
        raise ConfigError(f"Gymnasium cannot make {env_id!r}: {error}; install it or correct its name") from error
    except (Exception, SystemExit) as error:  # whatever a user's environment raises is shown with its traceback
        problem = f"it could not be made: {type(error).__name__}: {error}\n{traceback.format_exc().rstrip()}"
        raise EnvironmentFaultError(env_id, 0, 0, problem) from error


def _spec(env_id: str) -> Any:
    """Return the spec given for a task, or registered for an id; for `module:Env-v0` the module is imported first."""
    import gymnasium

    if (given := find_spec(env_id)) is not None:
        return given
    module, _, name = env_id.rpartition(":")
    if module:
        importlib.import_module(module)
    return gymnasium.spec(name)


def check_parameters(task: str) -> None:
    """Refuse values that an environment cannot take, by playing a few steps: their range is not declared anywhere."""
    env_id = split_task(task)[0]
    try:
        env = make_env(task)
    except EnvironmentFaultError as error:
        cause = error.__cause__ or error
        raise ConfigError(f"task {task!r} is outside of what {env_id} takes: {_first_line(cause)}") from error
    try:
        with kept_torch_defaults(), exits_raise():
            finite = _plays_finite(task, env)
    except (Exception, SystemExit) as error:  # whatever a user's environment raises
        raise ConfigError(f"task {task!r} is outside of what {env_id} takes: {_first_line(error)}") from error
    finally:
        close_env(task, env)
    if not finite:
        raise ConfigError(f"task {task!r} is outside of what {env_id} takes: it gives NaN or infinity")


def _plays_finite(task: str, env: Any) -> bool:
    import gymnasium

    actions = RandomActions(task, env.action_space, mask_method(env))
    observation, info = env.reset(seed=0)
    shown: list[Any] = [observation]
    with np.errstate(all="ignore"):
        for _ in range(_CHECKED_STEPS):
            observation, reward, terminated, truncated, info = env.step(actions.draw(info))
            shown += [observation, reward]
            if terminated or truncated:
                break
    space = env.observation_space
    flat = [gymnasium.spaces.flatten(space, each) if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple)
            and not np.isscalar(each) else each for each in shown]  # fmt: skip
    return all(bool(np.isfinite(np.asarray(each, np.float64)).all()) for each in flat)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def list_parameters(task: str) -> Parameters:
    """Return the parameters of the environment of a task."""
    env = make_env(task)
    try:
        return known_parameters(env, env_keywords(split_task(task)[0]))
    finally:
        close_env(task, env)


def _make_id(env_id: str, **options: Any) -> Any:
    env = _call_maker(env_id, **options)
    if find_maker(env_id) is None:
        return env
    if _is_vector(env):
        close_env(env_id, env)
        remedy = f"give the function an argument {NUM_ENVS}, the number of environments to make"
        raise ConfigError(f"task {env_id!r}: its function returned a vector of environments; {remedy}")
    if not all(hasattr(env, name) for name in ("reset", "step", "observation_space", "action_space")):
        raise ConfigError(f"task {env_id!r}: its function returned {env!r:.80}; return a gymnasium.Env")
    return env


def _is_vector(env: Any) -> bool:
    return hasattr(env, "single_observation_space") and hasattr(env, NUM_ENVS)


def _call_maker(env_id: str, **options: Any) -> Any:
    import gymnasium

    try:
        with kept_torch_defaults(), exits_raise():
            if (maker := find_maker(env_id)) is not None:
                return maker(**options)
            # Our own checks name task, slot and step; Gymnasium's would repeat them and slow down the first steps.
            return gymnasium.make(find_spec(env_id) or env_id, disable_env_checker=True, **options)
    except ModuleNotFoundError as error:
        raise ConfigError(f"Gymnasium cannot make {env_id!r}: {error}; install it or correct its name") from error
    except gymnasium.error.NameNotFound as error:
        near = difflib.get_close_matches(env_id, gymnasium.registry, n=3, cutoff=0.5)
        hint = f"if a module of yours registers it, add --imports MODULE, or write MODULE:{env_id}"
        if near:
            unknown = UnknownNameError("Gymnasium id", env_id, near)
            unknown.args = (f"{unknown} Or, {hint}",)
            raise unknown from error
        raise ConfigError(f"{error} {hint.capitalize()}") from error
    except gymnasium.error.Error as error:
        raise ConfigError(f"Gymnasium cannot make {env_id!r}: {error}") from error
    except (Exception, SystemExit) as error:  # whatever a user's environment raises is shown with its traceback
        problem = f"it could not be made: {type(error).__name__}: {error}\n{traceback.format_exc().rstrip()}"
        raise EnvironmentFaultError(env_id, 0, 0, problem) from error
