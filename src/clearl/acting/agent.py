"""What a run trained, ready to act: one observation in, one action out."""

from __future__ import annotations

import numpy as np
import torch

from clearl.acting.preprocess import clip_reward, stack_frames
from clearl.errors import ConfigError
from clearl.nets.distribution import MaskedCategorical
from clearl.nets.network import PolicyNetwork, StepInput
from clearl.seeding import generator
from clearl.types import EnvSpec


class Agent:
    """Acts in one environment. Call `reset` when an episode begins."""

    def __init__(self, network: PolicyNetwork, spec: EnvSpec, *, reward_clip: str, seed: int = 0) -> None:
        self.network, self.spec = network, spec
        self._reward_clip = reward_clip
        self._rng = generator(seed, "agent")
        self.reset()

    def reset(self) -> None:
        """Forget the episode so far."""
        self._window: np.ndarray | None = None
        self._core = torch.zeros(1, self.network.core_size)
        self._last_action = 0

    @torch.inference_mode()
    def act(
        self,
        observation: np.ndarray,
        *,
        reward: float = 0.0,
        mask: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> int:
        """The action for an observation, sampled, or the likeliest if `deterministic`.

        `reward` is what the last action brought (used by networks with a memory); `mask` says which actions exist.
        """
        frame, spec = fit_frame(observation, self.spec), self.spec
        opening = self._window is None
        if self._window is None:
            self._window = np.repeat(frame[None], spec.stack, axis=0)
        self._window = np.concatenate([self._window[1:], frame[None]])
        first = np.zeros((1, spec.stack), bool)
        inputs = StepInput(
            torch.from_numpy(stack_frames(self._window[None], first, spec.stack)[:, 0]),
            torch.tensor([self._last_action]),
            torch.from_numpy(clip_reward(np.array([reward], np.float32), self._reward_clip)),
            torch.tensor([opening]),
        )
        logits, _, self._core = self.network.act(inputs, self._core, column="evaluate")
        allowed = np.ones(spec.num_actions, bool) if mask is None else np.asarray(mask, bool)
        policy = MaskedCategorical(logits, torch.from_numpy(allowed)[None])
        uniform = torch.from_numpy(self._rng.random(1, np.float32))
        action = policy.probs.argmax(-1) if deterministic else policy.sample(uniform)
        self._last_action = int(action)
        return self._last_action


def fit_frame(observation: np.ndarray, spec: EnvSpec) -> np.ndarray:
    """An environment's observation as a frame of `spec`: channels first, padded with zeros where it is smaller."""
    frame = np.asarray(observation)
    if frame.ndim == 3 and frame.shape != spec.frame_shape and frame.shape[:2] == spec.frame_shape[1:]:
        frame = np.moveaxis(frame, -1, 0)
    if frame.ndim != len(spec.frame_shape) or any(a > b for a, b in zip(frame.shape, spec.frame_shape, strict=True)):
        raise ConfigError(f"an observation of shape {np.shape(observation)} does not fit frames of {spec.frame_shape}")
    fitted = np.zeros(spec.frame_shape, spec.frame_dtype)
    fitted[tuple(slice(size) for size in frame.shape)] = frame
    return fitted
