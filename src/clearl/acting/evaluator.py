"""The evaluator: whole episodes of some tasks with the current policy, without learning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from clearl.acting.preprocess import clip_reward, stack_frames
from clearl.nets.distribution import action_noise, choose_actions
from clearl.nets.network import PolicyNetwork, StepInput
from clearl.seeding import derive, generator
from clearl.tasks.suite import Envs, Suite
from clearl.types import EnvSpec, EnvStep

_NOISE_STEPS = 32


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
        self, *, suite: Suite, network: PolicyNetwork, seed: int, episodes: int, max_steps: int, reward_clip: str,
        switch_episodes: int | None = None,
    ) -> None:  # fmt: skip
        self.suite, self.network, self.max_steps = suite, network, max_steps
        self.episodes, self.switch_episodes = episodes, switch_episodes or episodes
        self._seed, self._reward_clip = seed, reward_clip
        self._envs: dict[tuple[str, int], Envs] = {}

    @torch.inference_mode()
    def evaluate(
        self, tasks: Sequence[str], index: int, *, switch: bool = False, cancelled: Callable[[], bool] = lambda: False
    ) -> list[Evaluation]:
        """The `index`-th evaluation of each task: its seed depends on nothing else, so that a resumed run agrees.

        An evaluation at a switch plays `switch_episodes`, with random numbers of its own.

        All tasks are played at the same time: an action for all their episodes costs little more than for one task's.

        Raises `EvaluationCancelled` once `cancelled` says so: a run that is told to stop must not wait for episodes.
        """
        purpose, episodes = ("switch", self.switch_episodes) if switch else ("evaluate", self.episodes)
        tables = [
            _Table(
                self._make(task, episodes), self.suite.mask(task), generator(self._seed, purpose, task, index), number
            )
            for number, task in enumerate(tasks)
        ]
        frames = [
            table.envs.reset(seed=derive(self._seed, purpose, task, index))
            for table, task in zip(tables, tasks, strict=True)
        ]
        players = _Players(self.network, self.suite.spec, np.concatenate(frames), self._reward_clip)
        for _ in range(self.max_steps):
            if cancelled():
                raise EvaluationCancelled
            actions = players.act(np.concatenate([next(table.noise) for table in tables]))
            for table in tables:
                if players.playing[table.places].any():
                    players.see(table.places, actions[table.places], table.envs.step(actions[table.places]))
            if not players.playing.any():
                break
        column = self.network.evaluated_column()
        return [
            Evaluation(
                task, tuple(players.score[table.places].tolist()), int(players.steps[table.places].sum()), column
            )
            for task, table in zip(tasks, tables, strict=True)
        ]

    def close(self) -> None:
        """Close every environment."""
        for envs in self._envs.values():
            envs.close()
        self._envs.clear()

    def _make(self, task: str, episodes: int) -> Envs:
        if (task, episodes) not in self._envs:
            seed = derive(self._seed, "evaluate", task)
            self._envs[task, episodes] = self.suite.make(task, num_envs=episodes, seed=seed, training=False)
        return self._envs[task, episodes]


class _Table:
    """The environments of one task, and the places of their episodes among all that are played."""

    def __init__(self, envs: Envs, mask: np.ndarray, rng: np.random.Generator, number: int) -> None:
        count = envs.num_envs
        self.envs, self.places = envs, slice(number * count, (number + 1) * count)
        self.noise = _noise(rng, np.repeat(mask[None], count, axis=0))


def _noise(rng: np.random.Generator, mask: np.ndarray) -> Iterator[np.ndarray]:
    while True:
        yield from action_noise(rng, mask, _NOISE_STEPS)


class _Players:
    """What the policy sees and remembers of the episode in each environment."""

    def __init__(self, network: PolicyNetwork, spec: EnvSpec, frames: np.ndarray, reward_clip: str) -> None:
        count = len(frames)
        self.playing = np.ones(count, bool)
        self.score, self.steps = np.zeros(count), np.zeros(count, np.int64)
        self._network, self._stack, self._reward_clip = network, spec.stack, reward_clip
        self._window = np.repeat(frames[:, None], spec.stack, axis=1)
        self._first = np.zeros((count, spec.stack), bool)
        self._first[:, -1] = True
        self._core = torch.zeros(count, network.core_size)
        self._last_action, self._last_reward = np.zeros(count, np.int64), np.zeros(count, np.float32)

    def act(self, noise: np.ndarray) -> np.ndarray:
        """Actions [n]. No thought is given to those who are through, which the longest episode leaves more and more."""
        rows = np.flatnonzero(self.playing)
        first = self._first[rows]
        inputs = StepInput(
            torch.from_numpy(stack_frames(self._window[rows], first, self._stack)[:, 0]),
            torch.from_numpy(self._last_action[rows]),
            torch.from_numpy(clip_reward(self._last_reward[rows], self._reward_clip)),
            torch.from_numpy(first[:, -1]),
        )
        places = torch.from_numpy(rows)
        logits, _, core = self._network.act(inputs, self._core[places], column="evaluate")
        if self._network.core_size:
            self._core[places] = core
        actions = np.zeros(len(noise), np.int64)
        actions[rows] = choose_actions(logits.numpy(), noise[rows])
        return actions

    def see(self, places: slice, actions: np.ndarray, step: EnvStep) -> None:
        """Take in what came of the actions at some places."""
        playing, window, first = self.playing[places], self._window[places], self._first[places]
        self.score[places] += np.where(playing, step.reward, 0.0)
        self.steps[places] += playing
        playing &= ~(step.terminated | step.truncated)
        if self._stack > 1:
            window[:, :-1], first[:, :-1] = window[:, 1:].copy(), first[:, 1:].copy()
        window[:, -1], first[:, -1] = step.frames, step.first
        self._last_action[places] = np.where(step.first, 0, actions)
        self._last_reward[places] = np.where(step.first, 0, step.reward)
