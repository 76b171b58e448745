"""Combine vectors of environments, so that one environment can leave or join while the rest continue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clearl.errors import EnvironmentFaultError
from clearl.tasks.suite import Envs
from clearl.types import EnvStep

Seat = tuple[Envs, int]
"""One environment of a vector, by its index."""

_threads = 1


def env_threads() -> int:
    """Return how many threads a vector in C++ may use in this process: 1 unless its runtime allows more."""
    return _threads


def allow_env_threads(count: int) -> None:
    """Set the threads of vectors that are made from now on: all cores if no other process acts."""
    global _threads
    _threads = max(1, count)


def combine(seats: Sequence[Seat]) -> Envs:
    """Combine environments, each in the middle of its episode, into one vector; do not use their old vectors again.

    Vectors in Python hand over their environments (`combined`). Those in C++ cannot: they are stepped whole, and the
    results of environments that are no longer in use are dropped.
    """
    first = seats[0][0]
    if len(seats) == first.num_envs and all(seat == (first, index) for index, seat in enumerate(seats)):
        return first
    combined = getattr(first, "combined", None)
    return combined(seats) if combined is not None else BundledEnvs(seats)


def is_divisible(envs: Envs) -> bool:
    """Return whether each environment of a vector can be taken out and restarted alone."""
    return envs.num_envs == 1 or hasattr(envs, "combined")


def take_faults(envs: Envs) -> list[EnvironmentFaultError]:
    """Return the faults since the last call that a vector repaired itself; most vectors cannot, and raise instead."""
    take = getattr(envs, "take_faults", None)
    return [] if take is None else take()


class BundledEnvs:
    """Environments of several vectors that cannot be divided; see `combine`."""

    def __init__(self, seats: Sequence[Seat]) -> None:
        self.num_envs = len(seats)
        self.seats = [seat for envs, index in seats for seat in _inner(envs, index)]
        vectors = {id(envs): envs for envs, _ in self.seats}
        self._vectors = [
            (envs, *_places([(place, i) for place, (owner, i) in enumerate(self.seats) if owner is envs]))
            for envs in vectors.values()
        ]

    def reset(self, *, seed: int | None = None) -> np.ndarray:
        raise NotImplementedError("environments are started before they are bundled")

    def step(self, actions: np.ndarray) -> EnvStep:
        answers: dict[str, np.ndarray] = {}
        for envs, places, indices in self._vectors:
            all_actions = _fillers(envs, actions)
            all_actions[indices] = actions[places]
            for name, values in vars(self._step(envs, all_actions, places, indices)).items():
                if values is None:
                    continue
                if name not in answers:
                    answers[name] = np.zeros((self.num_envs, *values.shape[1:]), values.dtype)
                answers[name][places] = values[indices]
        return EnvStep(**answers)

    def get_state(self) -> None:
        """Return None: a vector that cannot be divided cannot save single environments."""

    def set_state(self, state: dict[str, Any]) -> np.ndarray:
        raise NotImplementedError("these environments have no state to go on from: get_state gave None")

    def close(self) -> None:
        for envs, _, _ in self._vectors:
            envs.close()

    def take_faults(self) -> list[EnvironmentFaultError]:
        """Return the faults of all vectors; see `take_faults`."""
        vectors = self._vectors
        return [_placed(f, places, indices) for envs, places, indices in vectors for f in take_faults(envs)]

    def _step(self, envs: Envs, actions: np.ndarray, places: np.ndarray, indices: np.ndarray) -> EnvStep:
        try:
            return envs.step(actions)
        except EnvironmentFaultError as fault:
            raise _placed(fault, places, indices) from fault


def _fillers(envs: Envs, actions: np.ndarray) -> np.ndarray:
    """Return actions for all environments of a vector, of which those no longer in use take theirs."""
    allowed = getattr(envs, "allowed_actions", None)
    return np.zeros((envs.num_envs, *actions.shape[1:]), actions.dtype) if allowed is None else allowed()


def _placed(fault: EnvironmentFaultError, places: np.ndarray, indices: np.ndarray) -> EnvironmentFaultError:
    found = np.flatnonzero(indices == fault.slot)
    return fault.in_slot(int(places[found[0]]) if len(found) else int(places[0]))


def _inner(envs: Envs, index: int) -> list[Seat]:
    return [envs.seats[index]] if isinstance(envs, BundledEnvs) else [(envs, index)]


def _places(pairs: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    places, indices = np.array(pairs, np.int64).T
    return places, indices
