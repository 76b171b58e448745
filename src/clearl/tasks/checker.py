"""Check whether an environment is fit for training, and name the remedies. Most trouble in learning starts here."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from clearl.errors import ClearlError, ConfigError, UnfitMaskError, UnfitSpaceError, UnknownNameError
from clearl.tasks.actions import MASK_KEY, describe_actions
from clearl.tasks.exits import exits_raise
from clearl.tasks.masks import RandomActions, mask_method
from clearl.tasks.observations import TaskObservations, common_observation, describe_observations
from clearl.tasks.readings import doubt
from clearl.tasks.single import make_env
from clearl.tasks.writing import ObservationWriter

Severity = Literal["error", "warning", "note"]
COMPARED_STEPS = 200
LARGE_OBSERVATION = 100.0


@dataclass(frozen=True)
class EnvFinding:
    """Something about an environment that a user should know before training on it."""

    severity: Severity
    """error: training cannot work; warning: it works, but probably not as intended; note: good to know."""
    problem: str
    remedy: str


@dataclass
class _Play:
    """The results of random play with one seed."""

    observations: list[np.ndarray] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    largest_observation: float = 0.0
    ends: list[tuple[int, bool]] = field(default_factory=list)
    """Length of each episode, and whether it was terminated rather than truncated."""
    findings: dict[EnvFinding, None] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        return any(finding.severity == "error" for finding in self.findings)


def check_env(
    env_id: str, *, steps: int = 2_000, beat: Callable[[str], object] = lambda what: None
) -> list[EnvFinding]:
    """Return everything that is wrong with a Gymnasium environment, the worst first; an empty list if it is sound.

    `beat` gets a description of each call before it is made, so that a caller can tell a hang from slow play.
    """
    env_id = env_id.removeprefix("gym:")
    findings: dict[EnvFinding, None] = {}
    for check in (_check_spaces, _check_signatures, _check_play):
        try:
            beat("making it")
            env = _Watched(make_env(env_id), beat)
        except UnknownNameError:
            raise
        except ClearlError as error:
            mistyped = isinstance(error, ConfigError)
            remedy = "correct the task" if mistyped else "make the environment constructible with gymnasium.make alone"
            return [EnvFinding("error", str(error), remedy)]
        with exits_raise():
            findings.update(dict.fromkeys(check(env_id, env, steps)))
        beat("close")
        findings.update(dict.fromkeys(_close(env)))
        if any(finding.severity == "error" for finding in findings):
            break
    order = ("error", "warning", "note")
    return sorted(findings, key=lambda finding: order.index(finding.severity))


class _Watched:
    """An environment that reports each call before it is made."""

    def __init__(self, env: Any, beat: Callable[[str], object]) -> None:
        self._env, self._beat, self._steps = env, beat, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    @property
    def unwrapped(self) -> _Watched:
        return _Watched(self._env.unwrapped, self._beat)

    def reset(self, **options: Any) -> Any:
        self._beat(f"reset after {self._steps} steps")
        return self._env.reset(**options)

    def step(self, action: Any) -> Any:
        self._steps += 1
        self._beat(f"step {self._steps}")
        return self._env.step(action)


def _close(env: Any) -> Iterator[EnvFinding]:
    try:
        with exits_raise():
            env.close()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's environment raises is a finding
        yield _raised("close", error, "mend close; the traceback shows where")


def _check_spaces(env_id: str, env: Any, steps: int) -> Iterator[EnvFinding]:
    parts: list[tuple[Callable[[str, Any], Any], Any]] = [
        (describe_observations, env.observation_space),
        (describe_actions, env.action_space),
    ]
    described = []
    for read, space in parts:
        try:
            described.append(read(env_id, space))
        except UnfitSpaceError as error:
            yield EnvFinding("error", error.problem, error.remedy)
    if len(described) == len(parts):
        for part in TaskObservations(described[0]).parts:
            if (found := doubt(part)) is not None:
                yield EnvFinding("warning", *found)


def _check_signatures(env_id: str, env: Any, steps: int) -> Iterator[EnvFinding]:
    # The bare environment: Gymnasium's wrappers would fail first, with errors about themselves.
    bare = env.unwrapped
    try:
        answer = bare.reset(seed=1)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's environment raises is a finding
        remedy = "define reset(self, *, seed=None, options=None) and begin it with super().reset(seed=seed)"
        yield _raised("reset(seed=1)", error, remedy)
        return
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        yield EnvFinding(
            "error", f"reset returns {_kind(answer)}", "return the pair (observation, info), info being a dict"
        )
        return
    masks = mask_method(env if bare.action_space == env.action_space else bare)
    try:
        answer = bare.step(RandomActions(env_id, bare.action_space, masks).draw(answer[1]))
    except UnfitMaskError as error:
        yield EnvFinding("error", f"{error.problem} after reset", error.remedy)
        return
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's environment raises is a finding
        yield _raised("step", error, "mend step; the traceback shows where")
        return
    if not (isinstance(answer, tuple) and len(answer) == 5):
        yield EnvFinding(
            "error",
            f"step returns {_kind(answer)}",
            "return (observation, reward, terminated, truncated, info); Gym's old `done` was split in two, because a "
            "time limit is no death",
        )


def _check_play(env_id: str, env: Any, steps: int) -> Iterator[EnvFinding]:
    play = _play(env_id, env, seed=1, steps=steps)
    yield from play.findings
    if play.failed:
        return
    again = _play(env_id, env, seed=1, steps=COMPARED_STEPS)
    fresh_env = make_env(env_id)
    fresh = _play(env_id, fresh_env, seed=1, steps=COMPARED_STEPS)
    yield from _close(fresh_env)
    remedy = "draw every random number from self.np_random, which super().reset(seed=seed) seeds"
    if not _same(play, fresh):
        yield EnvFinding(
            "warning", "two environments with the same seed and actions differ: runs cannot be repeated", remedy
        )
    elif not _same(play, again):
        yield EnvFinding(
            "warning", "after reset with the same seed the same actions lead elsewhere", remedy + "; reset all"
        )
    yield from _check_ends(env, play, steps)
    yield from _check_scales(play, steps)


def _play(env_id: str, env: Any, *, seed: int, steps: int) -> _Play:
    play = _Play()
    observations = TaskObservations(describe_observations(env_id, env.observation_space))
    spec = common_observation({env_id: observations}, stack=1)
    writer, frame = ObservationWriter(observations, spec), np.zeros((1, *spec.frame_shape), spec.frame_dtype)
    ask_mask = mask_method(env)
    actions = RandomActions(env_id, env.action_space, ask_mask)
    length = 0

    def see(observation: Any) -> None:
        problem = writer.write(observation, frame[0])
        if problem is not None:
            remedy = f"return what observation_space promises: {env.observation_space}"
            play.findings[EnvFinding("error", problem, remedy)] = None
            return
        if len(play.observations) <= COMPARED_STEPS:
            play.observations.append(frame.copy())
        parts = [observations.value(observation, part) for part in observations.parts if part.dtype == "float32"]
        play.largest_observation = max([play.largest_observation, *(float(np.abs(part).max()) for part in parts)])
        given = (
            np.asarray(observation) if len(observations.parts) == 1 and not observations.parts[0].path else observation
        )
        if not env.observation_space.contains(given):
            play.findings[
                EnvFinding("warning", "an observation lies outside observation_space", "correct its bounds or dtype")
            ] = None

    try:
        observation, info = env.reset(seed=seed)
        see(observation)
        masked = MASK_KEY in info or ask_mask is not None
        for _ in range(steps):
            if play.failed:
                break
            observation, reward, terminated, truncated, info = env.step(actions.draw(info))
            length += 1
            see(observation)
            play.findings.update(dict.fromkeys(_check_answer(reward, terminated, truncated)))
            play.findings.update(dict.fromkeys(_check_info(info, masked=masked)))
            play.rewards.append(float(reward))
            if terminated or truncated:
                play.ends.append((length, bool(terminated)))
                length = 0
                observation, info = env.reset()
                see(observation)
    except UnfitMaskError as error:
        play.findings[EnvFinding("error", f"{error.problem} after {len(play.rewards)} steps", error.remedy)] = None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's environment raises is a finding
        place = f"step {len(play.rewards) + 1} of random play"
        play.findings[_raised(place, error, "mend it; the traceback shows where")] = None
    return play


def _check_answer(reward: Any, terminated: Any, truncated: Any) -> Iterator[EnvFinding]:
    if np.ndim(reward) != 0 or not math.isfinite(reward):
        yield EnvFinding("error", f"a reward is {reward!r}", "return a finite number as reward")
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(value, bool | np.bool_):
            yield EnvFinding("warning", f"{name} is {_kind(value)}, not a bool", f"return bool({name})")


def _check_info(info: Any, *, masked: bool) -> Iterator[EnvFinding]:
    if not isinstance(info, dict):
        yield EnvFinding("error", f"the info of a step is {_kind(info)}", "return a dict")
    elif MASK_KEY in info and not masked:
        problem = f"{MASK_KEY} is in the info of a step, but not in that of reset: training ignores it"
        yield EnvFinding("warning", problem, "return it from reset, too")


def _check_ends(env: Any, play: _Play, steps: int) -> Iterator[EnvFinding]:
    limit = env.spec.max_episode_steps if env.spec is not None else None
    lengths = {length for length, _ in play.ends}
    remedy = "register it with max_episode_steps=N, or wrap it in gymnasium.wrappers.TimeLimit"
    if limit is None and not play.ends:
        yield EnvFinding("warning", f"no episode ended in {steps} random steps, and there is no time limit", remedy)
    elif limit is None and all(terminated for _, terminated in play.ends):
        yield EnvFinding("note", "there is no time limit: an agent that avoids the end plays for ever", remedy)
    if len(play.ends) >= 3 and len(lengths) == 1 and all(terminated for _, terminated in play.ends):
        yield EnvFinding(
            "warning",
            f"every episode was terminated after {lengths.pop()} steps, which looks like a time limit",
            "report a time limit as truncated, so that the agent does not learn to fear the clock",
        )


def _check_scales(play: _Play, steps: int) -> Iterator[EnvFinding]:
    if play.largest_observation > LARGE_OBSERVATION:
        yield EnvFinding(
            "warning",
            f"observations reach {play.largest_observation:.3g}; networks learn badly from such numbers",
            "train with --normalise-observations, or scale them to about -1..1",
        )
    largest = max(map(abs, play.rewards), default=0.0)
    if largest == 0:
        yield EnvFinding(
            "note", f"no reward in {steps} random steps", "expect slow learning, or reward steps on the way"
        )
    elif largest > 1:
        problem = f"rewards reach {largest:.3g}, and training takes them as they are"
        yield EnvFinding("note", problem, "train with --scale-returns, or with --reward-clip unit")


def _same(one: _Play, other: _Play) -> bool:
    count = min(len(one.observations), len(other.observations))
    rewards = min(len(one.rewards), len(other.rewards))
    return one.rewards[:rewards] == other.rewards[:rewards] and all(
        np.array_equal(a, b) for a, b in zip(one.observations[:count], other.observations[:count], strict=True)
    )


def _raised(what: str, error: BaseException, remedy: str) -> EnvFinding:
    text = "".join(traceback.format_exception(error)).rstrip()
    return EnvFinding("error", f"{what} raised {type(error).__name__}: {error}\n{text}", remedy)


def _kind(value: Any) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"{type(value).__name__}"
