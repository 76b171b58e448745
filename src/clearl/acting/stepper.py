"""The one place that steps a policy; actor, evaluator and agent share it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from clearl.acting.preprocess import as_tensor, cleared, clip_reward, observe, push
from clearl.nets.network import PolicyNetwork, StepInput
from clearl.spaces import MASK_FIELD, TaskSpec

Places = np.ndarray | slice


class Decision(NamedTuple):
    """The policy's outputs and actions in n places."""

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
        self._network, self._spec = network, spec.observation
        self._reward_clip, self._column = reward_clip, column
        self.observation = self._repeated(np.zeros((count, *self._spec.frame_shape), self._spec.frame_dtype))
        self.first = np.ones(count, bool)
        self.last_action = np.zeros((count, *spec.action.shape), spec.action.dtype)
        self.last_reward = np.zeros(count, np.float32)
        self.core = torch.zeros(count, network.core_size)

    def begin(self, places: Places, frames: np.ndarray) -> None:
        """Start an episode at `places` with these first frames; nothing is carried over from the one before."""
        self.observation[places] = self._repeated(frames)
        self.first[places] = True
        self.forget(places)

    def forget(self, places: Places) -> None:
        """Drop everything carried over from earlier steps."""
        self.last_action[places] = 0
        self.last_reward[places] = 0
        self.core.numpy()[places] = 0  # through NumPy: outside of inference mode the tensor itself is read-only

    def decide(self, noise: np.ndarray, places: Places | None = None) -> Decision:
        """Sample actions with the `noise` [n, ...] of one step; for `places` only, where they are given."""
        if places is None:
            policy, value, self.core = self._network.act(self._inputs(), self.core, column=self._column)
        else:
            policy, value, core = self._network.act(self._inputs(places), self.core[places], column=self._column)
            if self._network.core_size:
                self.core[places] = core
        said = policy.numpy()
        return Decision(self._network.head.choose(said, noise, self._mask(places)), said, value.numpy())

    def see(
        self, frames: np.ndarray, first: np.ndarray, action: np.ndarray, reward: np.ndarray,
        places: Places | None = None,
    ) -> None:  # fmt: skip
        """Take in the results of the actions; where `first`, an episode began, without a last action."""
        if places is None:
            self.observation = push(self.observation, frames, first, self._spec)
            self.first = first
            self.last_action = cleared(action, first)
            self.last_reward = cleared(reward, first)
        else:
            self.observation[places] = push(self.observation[places], frames, first, self._spec)
            self.first[places] = first
            self.last_action[places] = cleared(action, first)
            self.last_reward[places] = cleared(reward, first)

    def _mask(self, places: Places | None) -> np.ndarray | None:
        """Return the masks of the states, [n, mask_size]; None where they allow all that the tasks have."""
        if not self._spec.mask_size:
            return None
        return self.observation[MASK_FIELD][slice(None) if places is None else places]

    def _repeated(self, frames: np.ndarray) -> np.ndarray:
        """Return the observations of episodes that begin with these frames."""
        window = np.repeat(frames[:, None], self._spec.stack, axis=1)
        return observe(window, np.zeros(window.shape[:2], bool), self._spec)[:, 0]

    def _inputs(self, places: Places = slice(None)) -> StepInput:
        return StepInput(
            as_tensor(self.observation[places]),
            torch.from_numpy(self.last_action[places]),
            torch.from_numpy(clip_reward(self.last_reward[places], self._reward_clip)),
            torch.from_numpy(self.first[places]),
        )
