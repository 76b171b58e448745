"""A trained agent, ready to act: observations in, actions out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clearl.acting.agent_input import allowed_actions, fit_frames, fit_parts, is_frame
from clearl.acting.agent_tasks import AgentTask
from clearl.acting.stepper import Stepper
from clearl.errors import ConfigError, UnknownNameError
from clearl.nets.network import PolicyNetwork
from clearl.seeding import generator
from clearl.spaces import TaskSpec
from clearl.tasks.observations import TaskObservations

_TASKS_SHOWN = 5


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

    def __repr__(self) -> str:
        shown = [*self.tasks][:_TASKS_SHOWN] + ["..."] * (len(self.tasks) > _TASKS_SHOWN)
        origin = f"; {self.origin}" if self.origin else ""
        return f"Agent({', '.join(shown) or 'tasks unknown'}{origin})"

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

        The action is sampled, or the likeliest one if `deterministic`. `task` names a task that the agent was trained
        on, and so the actions that exist there; it may be left out if there was only one. `mask` says which of them
        the state allows, as the environment gives it in `info["action_mask"]`, or a row for each observation of a
        batch. `reward` is the reward of the last action (used by networks with an LSTM). `first` marks the environments
        of a batch whose episode begins with this observation. Images have the same axes as in the environment;
        otherwise, or if the agent does not know them, `channels` (0 or 2) is the axis of the channels.
        """
        about = self._about(task)
        frames, batched = self._frames(about, observation, channels)
        allowed = allowed_actions(about, mask, len(frames), self.spec)
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
        if shown is not None and (channels is None or spec.is_record) and not is_frame(shown, observation, spec):
            return fit_parts(shown, observation, spec)
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
