"""The evaluator: whole episodes of one task with the current policy, without learning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from clearl.nets.distribution import action_noise, choose_actions
from clearl.nets.network import PolicyNetwork, StepInput
from clearl.preprocess import clip_reward, stack_frames
from clearl.seeding import derive, generator
from clearl.tasks.suite import Envs, Suite
from clearl.types import EnvSpec, EnvStep


class EvaluationCancelled(Exception):
    """An evaluation was given up on request; there is nothing to record."""


@dataclass(frozen=True)
class Evaluation:
    """Scores of whole episodes, unclipped."""

    task: str
    scores: tuple[float, ...]
    steps: int
    column: str

    @property
    def mean(self) -> float:
        return float(np.mean(self.scores))

    @property
    def std(self) -> float:
        return float(np.std(self.scores))


class Evaluator:
    """Plays each of `episodes` environments for exactly one episode, so that short episodes are not favoured."""

    def __init__(
        self, *, suite: Suite, network: PolicyNetwork, seed: int, episodes: int, max_steps: int, reward_clip: str
    ) -> None:
        self.suite, self.network, self.episodes, self.max_steps = suite, network, episodes, max_steps
        self._seed, self._reward_clip = seed, reward_clip
        self._envs: dict[str, Envs] = {}

    @torch.inference_mode()
    def evaluate(self, task: str, index: int, *, cancelled: Callable[[], bool] = lambda: False) -> Evaluation:
        """The `index`-th evaluation of `task`: its seed depends on nothing else, so that a resumed run agrees.

        Raises `EvaluationCancelled` once `cancelled` says so: a run that is told to stop must not wait for episodes.
        """
        rng = generator(self._seed, "evaluate", task, index)
        envs = self._make(task)
        frames = envs.reset(seed=derive(self._seed, "evaluate", task, index))
        players = _Players(self.network, self.suite.spec, frames, self._reward_clip)
        mask = np.repeat(self.suite.mask(task)[None], self.episodes, axis=0)
        scores, playing, total_steps = np.zeros(self.episodes), np.ones(self.episodes, bool), 0
        for _ in range(self.max_steps):
            if cancelled():
                raise EvaluationCancelled
            action = players.act(playing, action_noise(rng, mask, 1)[0])
            step = envs.step(action)
            scores += np.where(playing, step.reward, 0.0)
            total_steps += int(playing.sum())
            playing &= ~(step.terminated | step.truncated)
            if not playing.any():
                break
            players.see(action, step)
        return Evaluation(task, tuple(scores.tolist()), total_steps, self.network.evaluated_column())

    def close(self) -> None:
        """Close every environment."""
        for envs in self._envs.values():
            envs.close()
        self._envs.clear()

    def _make(self, task: str) -> Envs:
        if task not in self._envs:
            seed = derive(self._seed, "evaluate", task)
            self._envs[task] = self.suite.make(task, num_envs=self.episodes, seed=seed, training=False)
        return self._envs[task]


class _Players:
    """What the policy sees and remembers of the episode in each environment."""

    def __init__(self, network: PolicyNetwork, spec: EnvSpec, frames: np.ndarray, reward_clip: str) -> None:
        count = len(frames)
        self._network, self._stack, self._reward_clip = network, spec.stack, reward_clip
        self._window = np.repeat(frames[:, None], spec.stack, axis=1)
        self._first = np.zeros((count, spec.stack), bool)
        self._first[:, -1] = True
        self._core = torch.zeros(count, network.core_size)
        self._last_action, self._last_reward = np.zeros(count, np.int64), np.zeros(count, np.float32)

    def act(self, playing: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Actions [n]. No thought is given to those who are through, which the longest episode leaves more and more."""
        rows = np.flatnonzero(playing)
        first = self._first[rows]
        inputs = StepInput(
            torch.from_numpy(stack_frames(self._window[rows], first, self._stack)[:, 0]),
            torch.from_numpy(self._last_action[rows]),
            torch.from_numpy(clip_reward(self._last_reward[rows], self._reward_clip)),
            torch.from_numpy(first[:, -1]),
        )
        places = torch.from_numpy(rows)
        logits, _, self._core[places] = self._network.act(inputs, self._core[places], column="evaluate")
        actions = np.zeros(len(playing), np.int64)
        actions[rows] = choose_actions(logits.numpy(), noise[rows])
        return actions

    def see(self, action: np.ndarray, step: EnvStep) -> None:
        """Take in what came of the actions."""
        self._window = np.concatenate([self._window[:, 1:], step.frames[:, None]], axis=1)
        self._first = np.concatenate([self._first[:, 1:], step.first[:, None]], axis=1)
        self._last_action = np.where(step.first, 0, action)
        self._last_reward = np.where(step.first, 0, step.reward).astype(np.float32)
