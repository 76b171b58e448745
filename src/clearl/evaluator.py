"""The evaluator: whole episodes of one task with the current policy, without learning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from clearl.nets.distribution import MaskedCategorical
from clearl.nets.network import PolicyNetwork, StepInput
from clearl.preprocess import clip_reward, stack_frames
from clearl.seeding import derive, generator
from clearl.tasks.suite import Envs, Suite


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
        spec, count = self.suite.spec, self.episodes
        rng = generator(self._seed, "evaluate", task, index)
        envs = self._make(task)
        window = np.repeat(envs.reset(seed=derive(self._seed, "evaluate", task, index))[:, None], spec.stack, axis=1)
        first = np.zeros((count, spec.stack), bool)
        first[:, -1] = True
        mask = torch.from_numpy(np.repeat(self.suite.mask(task)[None], count, axis=0))
        core = torch.zeros(count, self.network.core_size)
        last_action, last_reward = np.zeros(count, np.int64), np.zeros(count, np.float32)
        scores, running, total_steps = np.zeros(count), np.ones(count, bool), 0

        for _ in range(self.max_steps):
            if cancelled():
                raise EvaluationCancelled
            inputs = StepInput(
                torch.from_numpy(stack_frames(window, first, spec.stack)[:, 0]),
                torch.from_numpy(last_action),
                torch.from_numpy(clip_reward(last_reward, self._reward_clip)),
                torch.from_numpy(first[:, -1].copy()),
            )
            logits, _, core = self.network.act(inputs, core, column="evaluate")
            action = MaskedCategorical(logits, mask).sample(torch.from_numpy(rng.random(count, np.float32))).numpy()
            step = envs.step(action)
            scores += np.where(running, step.reward, 0.0)
            total_steps += int(running.sum())
            running &= ~(step.terminated | step.truncated)
            if not running.any():
                break
            window = np.concatenate([window[:, 1:], step.frames[:, None]], axis=1)
            first = np.concatenate([first[:, 1:], step.first[:, None]], axis=1)
            last_action = np.where(step.first, 0, action)
            last_reward = np.where(step.first, 0, step.reward).astype(np.float32)
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
