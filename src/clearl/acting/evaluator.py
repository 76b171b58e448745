"""The evaluator: whole episodes of some tasks with the current policy, without learning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from clearl.acting.stepper import Stepper
from clearl.errors import EnvironmentFaultError
from clearl.nets.heads import Head
from clearl.nets.network import PolicyNetwork
from clearl.seeding import derive, generator
from clearl.spaces import MASK_FIELD
from clearl.tasks.masks import allowed_actions
from clearl.tasks.suite import Envs, Suite
from clearl.tasks.vectors import take_faults
from clearl.types import EnvStep

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
    others: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Scores of further columns of the network on the same task."""
    success_rates: Mapping[str, float] = field(default_factory=dict)
    """By column, the share of episodes that succeeded; empty where the environment reports no success."""

    @property
    def mean(self) -> float:
        return float(np.mean(self.scores))

    @property
    def std(self) -> float:
        return float(np.std(self.scores))

    @property
    def success_rate(self) -> float | None:
        return self.success_rates.get(self.column)


@dataclass(frozen=True)
class _Played:
    """Whole episodes of one task with one column."""

    scores: tuple[float, ...]
    steps: int
    success_rate: float | None


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
        self._tell_success: set[str] = set()
        """Tasks that have reported success: some do so only when an episode succeeds."""

    @torch.inference_mode()
    def evaluate(
        self,
        tasks: Sequence[str],
        index: int,
        *,
        switch: bool = False,
        training: Sequence[str] = (),
        cancelled: Callable[[], bool] = lambda: False,
    ) -> list[Evaluation]:
        """Make the `index`-th evaluation of each task: its seed depends on nothing else, so that a resumed run agrees.

        An evaluation at a switch plays `switch_episodes`, with random numbers of its own. Tasks in `training` may be
        evaluated with several columns of a network, on the same seeds.

        Raises `EvaluationCancelled` once `cancelled` says so: a run that is told to stop must not wait for episodes.
        """
        columns = {task: self.network.evaluated_columns(in_training=task in training) for task in tasks}
        played: dict[tuple[str, str], _Played] = {}
        for column in dict.fromkeys(column for several in columns.values() for column in several):
            those = [task for task in tasks if column in columns[task]]
            results = self._play(those, index, column or "evaluate", switch=switch, cancelled=cancelled)
            played |= {(task, column): result for task, result in zip(those, results, strict=True)}
        return [
            _evaluation(task, {column: played[task, column] for column in several}) for task, several in columns.items()
        ]

    def take_faults(self) -> list[EnvironmentFaultError]:
        """Return the faults since the last call after which environments were rebuilt; their episodes began anew."""
        return [fault for envs in self._envs.values() for fault in take_faults(envs)]

    def close(self) -> None:
        """Close every environment."""
        for envs in self._envs.values():
            envs.close()
        self._envs.clear()

    def _play(
        self, tasks: Sequence[str], index: int, column: str, *, switch: bool, cancelled: Callable[[], bool]
    ) -> list[_Played]:
        """Play one episode of each environment of each task.

        All tasks are played at the same time: an action for all their episodes costs little more than for one task's.
        """
        purpose, episodes = ("switch", self.switch_episodes) if switch else ("evaluate", self.episodes)
        tables = [
            _Table(
                self._make(task, episodes), self.network.head, self.suite.mask(task),
                generator(self._seed, purpose, task, index), number,
            )
            for number, task in enumerate(tasks)
        ]  # fmt: skip
        count = len(tasks) * episodes
        stepper = Stepper(
            self.network, self.suite.spec, count, reward_clip=self._reward_clip, column=column or "evaluate"
        )
        players = _Players(count)
        for table, task in zip(tables, tasks, strict=True):
            stepper.begin(table.places, table.envs.reset(seed=derive(self._seed, purpose, task, index)))
        for _ in range(self.max_steps):
            if cancelled():
                raise EvaluationCancelled
            # Finished episodes are skipped; towards the end most are.
            places = np.flatnonzero(players.playing)
            noise = np.concatenate([next(table.noise) for table in tables])
            actions = self._fillers(stepper)
            actions[places] = stepper.decide(noise[places], places).action
            for table in tables:
                here = table.places
                if players.playing[here].any():
                    step = table.envs.step(actions[here])
                    players.score_step(here, step)
                    stepper.see(step.frames, step.first, actions[here], step.reward, here)
            if not players.playing.any():
                break
        return [self._result(task, players, table.places) for table, task in zip(tables, tasks, strict=True)]

    def _fillers(self, stepper: Stepper) -> np.ndarray:
        """Return actions for environments that are stepped only because others of their task still play."""
        spec = self.suite.spec
        if spec.observation.mask_size:
            return allowed_actions(stepper.observation[MASK_FIELD], spec.action)
        return np.zeros_like(stepper.last_action)

    def _result(self, task: str, players: _Players, places: slice) -> _Played:
        if players.told[places].any():
            self._tell_success.add(task)
        rate = float(players.success[places].mean()) if task in self._tell_success else None
        return _Played(tuple(players.score[places].tolist()), int(players.steps[places].sum()), rate)

    def _make(self, task: str, episodes: int) -> Envs:
        if (task, episodes) not in self._envs:
            seed = derive(self._seed, "evaluate", task)
            self._envs[task, episodes] = self.suite.make(task, num_envs=episodes, seed=seed, training=False)
        return self._envs[task, episodes]


def _evaluation(task: str, played: Mapping[str, _Played]) -> Evaluation:
    (column, first), *others = played.items()
    rates = {name: each.success_rate for name, each in played.items() if each.success_rate is not None}
    return Evaluation(
        task, first.scores, first.steps, column, {name: other.scores for name, other in others}, success_rates=rates
    )


class _Table:
    """The environments of one task, and the places of their episodes among all that are played."""

    def __init__(self, envs: Envs, head: Head, mask: np.ndarray, rng: np.random.Generator, number: int) -> None:
        count = envs.num_envs
        self.envs, self.places = envs, slice(number * count, (number + 1) * count)
        self.noise = _noise(head, rng, np.repeat(mask[None], count, axis=0))


def _noise(head: Head, rng: np.random.Generator, mask: np.ndarray) -> Iterator[np.ndarray]:
    while True:
        yield from head.noise(rng, mask, _NOISE_STEPS)


class _Players:
    """The episodes still under way; the score of each first episode, and whether it succeeded."""

    def __init__(self, count: int) -> None:
        self.playing = np.ones(count, bool)
        self.score, self.steps = np.zeros(count), np.zeros(count, np.int64)
        self.success, self.told = np.zeros(count, bool), np.zeros(count, bool)

    def score_step(self, places: slice, step: EnvStep) -> None:
        """Add the rewards of a step at some places."""
        playing = self.playing[places]
        # Without an end before it, only a rebuilt environment begins an episode: its score begins anew, too.
        if len(begun := np.flatnonzero(playing & step.first & ~step.terminated)):
            self.score[places][begun] = self.steps[places][begun] = 0
        self.score[places] += np.where(playing, step.reward, 0.0)
        self.steps[places] += playing & step.valid
        if step.success is not None:
            self.success[places] = np.where(playing, step.success, self.success[places])
            self.told[places] = True
        playing &= ~(step.terminated | step.truncated)
