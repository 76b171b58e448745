"""A trained agent, ready to act: observations in, actions out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clearl.acting.stepper import Stepper
from clearl.errors import ConfigError, CorruptFileError, UnknownNameError
from clearl.nets.network import PolicyNetwork
from clearl.seeding import generator
from clearl.spaces import MASK_FIELD, ObservationSpec, TaskSpec
from clearl.tasks.actions import TaskActions, actions_from_json
from clearl.tasks.observations import ObservationWriter, TaskObservations, observations_from_json
from clearl.tasks.suite import DescribesActions, DescribesObservations, Suite


@dataclass(frozen=True)
class AgentTask:
    """The facts about a task that an agent needs to act in it."""

    mask: np.ndarray
    """[mask_size] bool: what the task has of the actions of the spec."""
    actions: TaskActions | None
    """The environment's form of actions; None where it takes the number of the choice."""
    observations: TaskObservations | None = None
    """The environment's form of observations; None where it gives frames."""


@dataclass(frozen=True)
class Origin:
    """The checkpoint that an agent comes from."""

    path: Path
    frames: int
    """Environment frames of training before it."""
    notes: tuple[str, ...] = ()
    """Newer checkpoints that are damaged and were passed over."""

    def __str__(self) -> str:
        return f"{self.path}, after {self.frames:,} frames"


class Agent:
    """Acts in one environment, or in several side by side.

    Call `reset` when an episode begins:

        agent = clearl.load_agent("runs/a")
        action = agent.act(observation, task="Pendulum-v1")
    """

    def __init__(
        self, network: PolicyNetwork, spec: TaskSpec, *, reward_clip: str, seed: int = 0,
        tasks: Mapping[str, AgentTask] | None = None, origin: Origin | None = None,
    ) -> None:  # fmt: skip
        self.network, self.spec, self.tasks, self.origin = network, spec, dict(tasks or {}), origin
        self.reward_clip = reward_clip
        self._rng = generator(seed, "agent")
        self.reset()

    def reset(self) -> None:
        """Forget the episode so far."""
        self._stepper: Stepper | None = None
        self._last_action = np.zeros(0)

    @torch.inference_mode()
    def act(
        self,
        observation: Any,
        *,
        task: str | None = None,
        reward: float | np.ndarray = 0.0,
        first: bool | np.ndarray = False,
        mask: Any = None,
        channels: int | None = None,
        deterministic: bool = False,
    ) -> Any:
        """Choose the action for an observation, as the environment takes it, or one for each of a batch.

        It is sampled, or the likeliest if `deterministic`. `task` names what the agent was trained on, and with it the
        actions that exist there; it may be left out where there was one task only. `mask` is what the state allows of
        them, as the environment gives it in `info["action_mask"]`, or a row for each observation of a batch.
        `reward` is what the last action brought (used by networks with a memory). `first` marks the environments of a
        batch whose episode begins with this observation. Images have the axes that the environment has; `channels` (0
        or 2) is the axis of the channels in an image that has others, or of an agent that does not know.
        """
        about = self._about(task)
        frames, batched = self._frames(about, observation, channels)
        allowed = _allowed(about, mask, len(frames), self.spec)
        self._see(frames, np.full(len(frames), first, bool), reward)
        with one_thread():
            self._decide(allowed, deterministic)
        return self._as_taken(about, batched)

    def _decide(self, allowed: np.ndarray, deterministic: bool) -> None:
        assert self._stepper is not None
        head = self.network.head
        decision = self._stepper.decide(head.noise(self._rng, allowed, 1)[0])
        self._last_action = decision.action
        if deterministic:
            likeliest = head.distribution(torch.from_numpy(decision.policy), torch.from_numpy(allowed)).mode()
            self._last_action = likeliest.numpy().astype(decision.action.dtype)

    def _frames(self, about: AgentTask | None, observation: Any, channels: int | None) -> tuple[np.ndarray, bool]:
        """Return frames [n, ...] of one observation or of a batch, and whether it was a batch."""
        spec = self.spec.observation
        shown = self._shown(observation) if about is None else about.observations
        if shown is not None and (channels is None or spec.is_record) and not _is_frame(shown, observation, spec):
            return _written(shown, observation, spec)
        if spec.is_record:
            raise ConfigError(f"say which task this is, with task=...: {', '.join(self.tasks)}")
        return fit_frames(observation, self.spec, channels)

    def _shown(self, observation: Any) -> TaskObservations | None:
        """Find the form of observations by their shape, where no task is named."""
        known = [task.observations for task in self.tasks.values() if task.observations is not None]
        if self.spec.observation.is_record or not known or len(known) < len(self.tasks):
            return None
        if isinstance(observation, Mapping):  # tasks that share one image share its form
            return known[0]
        shape = np.shape(observation)
        return next((each for each in known if shape[-len(each.parts[0].shape) :] == each.parts[0].shape), None)

    def _see(self, frames: np.ndarray, first: np.ndarray, reward: float | np.ndarray) -> None:
        if self._stepper is None:
            count = len(frames)
            self._stepper = Stepper(self.network, self.spec, count, reward_clip=self.reward_clip, column="evaluate")
            self._stepper.begin(slice(None), frames)
            return
        if len(frames) != len(self._last_action):
            raise ConfigError(
                f"{len(frames)} observations follow {len(self._last_action)}; call reset() before another batch"
            )
        rewards = np.full(len(frames), reward, np.float32)
        self._stepper.see(frames, first, self._last_action, rewards)

    def _about(self, task: str | None) -> AgentTask | None:
        if task is not None and task not in self.tasks:
            raise UnknownNameError("task of this agent", task, self.tasks)
        if task is not None:
            return self.tasks[task]
        if len(self.tasks) == 1:
            return next(iter(self.tasks.values()))
        if not self.spec.action.is_discrete:
            raise ConfigError(f"say which task this is, with task=...: {', '.join(self.tasks)}")
        return None

    def _as_taken(self, about: AgentTask | None, batched: bool) -> Any:
        if about is None or about.actions is None:
            return self._last_action if batched else self._last_action[0].item()
        taken = about.actions.converter(self.spec.action)(self._last_action)
        if not batched:
            return taken[0]
        return list(taken) if isinstance(taken[0], tuple | dict) else np.stack(taken)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread: with a single observation, more threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def agent_tasks(suite: Suite) -> dict[str, AgentTask]:
    """Return all tasks of a suite."""
    return {
        task: AgentTask(
            suite.mask(task),
            suite.actions(task) if isinstance(suite, DescribesActions) else None,
            suite.observations(task) if isinstance(suite, DescribesObservations) else None,
        )
        for task in suite.tasks
    }


def tasks_to_json(tasks: Mapping[str, AgentTask]) -> dict[str, Any]:
    """Convert tasks to the JSON that `tasks_from_json` reads."""
    return {
        name: {
            "mask": task.mask.tolist(),
            "actions": None if task.actions is None else task.actions.description,
            "observations": None if task.observations is None else task.observations.description,
        }
        for name, task in tasks.items()
    }


def tasks_from_json(values: Any, spec: TaskSpec, source: str) -> dict[str, AgentTask]:
    """Return the tasks in a file; version 0.1 wrote masks only, into exports only."""
    tasks = {}
    if not isinstance(values, dict | None):
        raise CorruptFileError(f"{source}: tasks must be an object")
    for name, value in (values or {}).items():
        about = {"mask": value} if isinstance(value, list) else value
        if not isinstance(about, dict):
            raise CorruptFileError(f"{source}: task {name!r} must be an object")
        mask, actions, observations = np.array(about.get("mask")), about.get("actions"), about.get("observations")
        if mask.shape != (spec.action.mask_size,) or mask.dtype != np.bool_:
            raise CorruptFileError(f"{source}: the mask of task {name!r} does not fit its actions")
        tasks[name] = AgentTask(
            mask,
            None if actions is None else actions_from_json(actions, source),
            None if observations is None else _shown_by(observations, spec, source),
        )
    return tasks


def _shown_by(description: Any, spec: TaskSpec, source: str) -> TaskObservations:
    """Return the observations in a file, if they fit the spec."""
    observations = observations_from_json(description, source)
    for part in observations.parts:
        there = spec.observation.parts.get(part.name)
        shape = part.spec.shape
        if there is None or len(there.shape) != len(shape) or any(map(int.__gt__, shape, there.shape)):
            raise CorruptFileError(f"{source}: part {part.name!r} of a task does not fit its observations")
    return observations


def _is_frame(observations: TaskObservations, given: Any, spec: ObservationSpec) -> bool:
    """Return whether an environment shows a Dict that becomes one image, and the image itself is given."""
    is_dict = bool(observations.parts[0].path) and not spec.is_record
    return is_dict and not isinstance(given, Mapping) and np.shape(given)[-3:] == spec.frame_shape


def _written(observations: TaskObservations, given: Any, spec: ObservationSpec) -> tuple[np.ndarray, bool]:
    writer = ObservationWriter(observations, spec)
    keys = [str(part.path[0]) for part in observations.parts if part.path]
    if keys and not isinstance(given, Mapping | tuple):
        raise ConfigError(f"an observation of this task has {' and '.join(dict.fromkeys(keys))}; give the whole of it")
    try:
        batched = observations.is_batch(given)
        count = observations.count(given) if batched else 1
        frames = np.zeros((count, *spec.frame_shape), spec.frame_dtype)
        problems = [
            writer.write(observations.member(given, i) if batched else given, frame) for i, frame in enumerate(frames)
        ]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ConfigError(f"an observation does not fit: {type(error).__name__}: {error}") from error
    if any(problems):
        raise ConfigError(f"an observation does not fit: {next(filter(None, problems))}")
    if spec.mask_size:
        frames[MASK_FIELD] = True
    return frames, batched


def _allowed(about: AgentTask | None, mask: Any, count: int, spec: TaskSpec) -> np.ndarray:
    """Return [count, mask_size] bool: what the task has of the actions, less what the masks of the states forbid."""
    allowed = np.ones((count, spec.action.mask_size), bool)
    if about is not None:
        allowed &= about.mask
    if mask is None:
        return allowed
    possible = [allowed[:, options].any() for options in spec.action.options]
    allowed &= _state_masks(about, mask, count, spec)
    for options, expected in zip(spec.action.options, possible, strict=True):
        if expected and not allowed[:, options].any(1).all():
            raise ConfigError("the mask allows no action at all; end the episode before such a state, or allow one")
    return allowed


def _state_masks(about: AgentTask | None, mask: Any, count: int, spec: TaskSpec) -> np.ndarray:
    """Return masks [count or 1, mask_size], given as by the task's environments or as flags of the spec's actions."""
    size = spec.action.mask_size
    try:
        rows = _mask_rows(mask)
        of_spec = all(not isinstance(row, tuple) and np.shape(row) == (size,) for row in rows)
    except ValueError as error:
        raise ConfigError(f"a mask is an array of flags, or a tuple with one for each choice: {error}") from None
    if len(rows) not in (1, count):
        raise ConfigError(f"{len(rows)} masks do not fit {count} observations; give one for each")
    if of_spec:
        return np.array(rows, bool)
    if about is None or about.actions is None:
        raise ConfigError(f"a mask of shape {np.shape(mask)} does not fit {size} actions; name the task with task=...")
    return np.array([about.actions.state_mask(row, spec.action) for row in rows])


def _mask_rows(mask: Any) -> list[Any]:
    """Return the masks of single states: rows of an array, or of each array of a tuple with one for each choice."""
    if isinstance(mask, tuple) and any(np.ndim(part) for part in mask):
        return list(zip(*mask, strict=True)) if np.ndim(mask[0]) == 2 else [mask]
    return list(np.atleast_2d(np.asarray(mask)))


def fit_frames(observation: Any, spec: TaskSpec, channels: int | None = None) -> tuple[np.ndarray, bool]:
    """Return frames [n, *frame_shape] of one observation or of a batch, and whether it was a batch."""
    given, shape = np.asarray(observation), spec.observation.frame_shape
    batched = given.ndim == len(shape) + 1
    frames = np.stack([fit_frame(frame, spec, channels) for frame in (given if batched else given[None])])
    return frames, batched


def fit_frame(frame: np.ndarray, spec: TaskSpec, channels: int | None = None) -> np.ndarray:
    """Return an environment's observation as a frame: channels first, padded with zeros where it is smaller."""
    given, shape = frame.shape, spec.observation.frame_shape
    if frame.dtype.kind == "f" and not np.isfinite(frame).all():
        raise ConfigError("the observation holds NaN or infinity")
    if spec.observation.frame_dtype == np.bool_ and not np.isin(frame, (0, 1)).all():
        raise ConfigError("the observation holds other numbers than 0 and 1; this agent sees planes of bits")
    if frame.ndim == 3 and len(shape) == 3:
        frame = np.moveaxis(frame, _channel_axis(frame.shape, shape) if channels is None else channels, 0)
    if frame.ndim != len(shape) or any(a > b for a, b in zip(frame.shape, shape, strict=True)):
        raise ConfigError(f"an observation of shape {given} does not fit frames of {shape}")
    fitted = np.zeros(shape, spec.observation.frame_dtype)
    fitted[tuple(slice(size) for size in frame.shape)] = frame
    return fitted


def _channel_axis(given: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Return the axis of the channels in an image that becomes (C, H, W).

    An error where both the first and the last fit.
    """
    first = given[0] <= shape[0] and given[1:] == shape[1:]
    last = given[2] <= shape[0] and given[:2] == shape[1:]
    if first and last:
        raise ConfigError(
            f"an image of {given} may have its channels first or last; say which: act(..., channels=0) or channels=2"
        )
    return 2 if last else 0
