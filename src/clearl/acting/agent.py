"""What a run trained, ready to act: one observation in, one action out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from clearl.acting.stepper import Stepper
from clearl.errors import ConfigError
from clearl.nets.network import PolicyNetwork
from clearl.seeding import generator
from clearl.spaces import TaskSpec


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
    """Acts in one environment. Call `reset` when an episode begins."""

    def __init__(
        self, network: PolicyNetwork, spec: TaskSpec, *, reward_clip: str, seed: int = 0, origin: Origin | None = None
    ) -> None:
        self.network, self.spec, self.origin = network, spec, origin
        self._reward_clip = reward_clip
        self._rng = generator(seed, "agent")
        self.reset()

    def reset(self) -> None:
        """Forget the episode so far."""
        self._stepper = Stepper(self.network, self.spec, 1, reward_clip=self._reward_clip, column="evaluate")
        self._last_action: np.ndarray | None = None

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
        frames, stepper = fit_frame(observation, self.spec)[None], self._stepper
        if self._last_action is None:
            stepper.begin(slice(None), frames)
        else:
            stepper.see(frames, np.zeros(1, bool), self._last_action, np.array([reward], np.float32))
        allowed = np.ones(self.spec.action.mask_size, bool) if mask is None else np.asarray(mask, bool)
        head = self.network.head
        decision = stepper.decide(head.noise(self._rng, allowed[None], 1)[0])
        if deterministic:
            likeliest = head.distribution(torch.from_numpy(decision.policy), torch.from_numpy(allowed)).mode()
            self._last_action = likeliest.numpy()
        else:
            self._last_action = decision.action
        return int(self._last_action[0])


def fit_frame(observation: np.ndarray, spec: TaskSpec) -> np.ndarray:
    """An environment's observation as a frame of `spec`: channels first, padded with zeros where it is smaller."""
    frame, shape = np.asarray(observation), spec.observation.frame_shape
    if frame.ndim == 3 and frame.shape != shape and frame.shape[:2] == shape[1:]:
        frame = np.moveaxis(frame, -1, 0)
    if frame.ndim != len(shape) or any(a > b for a, b in zip(frame.shape, shape, strict=True)):
        raise ConfigError(f"an observation of shape {np.shape(observation)} does not fit frames of {shape}")
    fitted = np.zeros(shape, spec.observation.frame_dtype)
    fitted[tuple(slice(size) for size in frame.shape)] = frame
    return fitted
