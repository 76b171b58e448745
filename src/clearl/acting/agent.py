"""What a run trained, ready to act: one observation in, one action out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
        channels: int | None = None,
        deterministic: bool = False,
    ) -> int:
        """The action for an observation, sampled, or the likeliest if `deterministic`.

        `reward` is what the last action brought (used by networks with a memory); `mask` says which actions exist.
        `channels` is the axis of an image's channels, 0 or 2; needed only where its shape does not tell.
        """
        with one_thread():
            return self._act(observation, reward, mask, channels, deterministic)

    def _act(
        self, observation: np.ndarray, reward: float, mask: np.ndarray | None, channels: int | None, deterministic: bool
    ) -> int:
        frames, stepper = fit_frame(observation, self.spec, channels)[None], self._stepper
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


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread: for a single observation more only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fit_frame(observation: np.ndarray, spec: TaskSpec, channels: int | None = None) -> np.ndarray:
    """An environment's observation as a frame of `spec`: channels first, padded with zeros where it is smaller."""
    frame, shape = np.asarray(observation), spec.observation.frame_shape
    if frame.dtype.kind == "f" and not np.isfinite(frame).all():
        raise ConfigError("the observation holds NaN or infinity")
    if frame.ndim == 3 and len(shape) == 3:
        frame = np.moveaxis(frame, _channel_axis(frame.shape, shape) if channels is None else channels, 0)
    if frame.ndim != len(shape) or any(a > b for a, b in zip(frame.shape, shape, strict=True)):
        raise ConfigError(f"an observation of shape {np.shape(observation)} does not fit frames of {shape}")
    fitted = np.zeros(shape, spec.observation.frame_dtype)
    fitted[tuple(slice(size) for size in frame.shape)] = frame
    return fitted


def _channel_axis(given: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """The axis of the channels in an image that becomes (C, H, W); an error where both the first and the last fit."""
    first = given[0] <= shape[0] and given[1:] == shape[1:]
    last = given[2] <= shape[0] and given[:2] == shape[1:]
    if first and last:
        raise ConfigError(
            f"an image of {given} may have its channels first or last; say which: act(..., channels=0) or channels=2"
        )
    return 2 if last else 0
