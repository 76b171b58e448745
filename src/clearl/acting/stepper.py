"""The one place that steps a policy; actor, evaluator and agent share it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from clearl.acting.preprocess import cleared, clip_reward, push_frames, stack_frames
from clearl.nets.network import PolicyNetwork, StepInput
from clearl.spaces import TaskSpec

Places = np.ndarray | slice


class Decision(NamedTuple):
    """What the policy said and chose in n places."""

    action: np.ndarray  # [n, *action_shape]
    policy: np.ndarray  # [n, policy_size]
    value: np.ndarray  # [n]


class Stepper:
    """Asks a policy for actions in some places, and carries what it must know of the episode in each.

        stepper.begin(slice(None), envs.reset())
        while True:
            decision = stepper.decide(noise)
            step = envs.step(decision.action)
            stepper.see(step.frames, step.first, decision.action, step.reward)

    That is: the frame stack, the recurrent state, the last action and the last reward.
    """

    def __init__(
        self, network: PolicyNetwork, spec: TaskSpec, count: int, *, reward_clip: str, column: str = "act"
    ) -> None:
        """`column` is "act" or "evaluate"; see `PolicyNetwork.act`."""
        self._network, self._stack = network, spec.observation.stack
        self._reward_clip, self._column = reward_clip, column
        window = np.zeros((count, self._stack, *spec.observation.frame_shape), spec.observation.frame_dtype)
        self.observation = stack_frames(window, np.zeros(window.shape[:2], bool), self._stack)[:, 0]
        self.first = np.ones(count, bool)
        self.last_action = np.zeros((count, *spec.action.shape), spec.action.dtype)
        self.last_reward = np.zeros(count, np.float32)
        self.core = torch.zeros(count, network.core_size)

    def begin(self, places: Places, frames: np.ndarray) -> None:
        """Start an episode at `places` with these first frames; nothing of the one before is carried on."""
        window = np.repeat(frames[:, None], self._stack, axis=1)
        self.observation[places] = stack_frames(window, np.zeros(window.shape[:2], bool), self._stack)[:, 0]
        self.first[places] = True
        self.forget(places)

    def forget(self, places: Places) -> None:
        """Carry nothing on from the steps before."""
        self.last_action[places] = 0
        self.last_reward[places] = 0
        self.core.numpy()[places] = 0  # through NumPy: outside of inference mode the tensor itself is read-only

    def decide(self, noise: np.ndarray, places: Places | None = None) -> Decision:
        """Actions sampled with the `noise` [n, ...] of one step; for `places` only, where they are given."""
        if places is None:
            policy, value, self.core = self._network.act(self._inputs(), self.core, column=self._column)
        else:
            policy, value, core = self._network.act(self._inputs(places), self.core[places], column=self._column)
            if self._network.core_size:
                self.core[places] = core
        said = policy.numpy()
        return Decision(self._network.head.choose(said, noise), said, value.numpy())

    def see(
        self, frames: np.ndarray, first: np.ndarray, action: np.ndarray, reward: np.ndarray,
        places: Places | None = None,
    ) -> None:  # fmt: skip
        """Take in what came of the actions; where `first`, an episode began, and had no action before it."""
        if places is None:
            self.observation = push_frames(self.observation, frames, first)
            self.first = first
            self.last_action = cleared(action, first)
            self.last_reward = np.where(first, np.float32(0), reward)
        else:
            self.observation[places] = push_frames(self.observation[places], frames, first)
            self.first[places] = first
            self.last_action[places] = cleared(action, first)
            self.last_reward[places] = np.where(first, np.float32(0), reward)

    def _inputs(self, places: Places = slice(None)) -> StepInput:
        return StepInput(
            torch.from_numpy(self.observation[places]),
            torch.from_numpy(self.last_action[places]),
            torch.from_numpy(clip_reward(self.last_reward[places], self._reward_clip)),
            torch.from_numpy(self.first[places]),
        )
