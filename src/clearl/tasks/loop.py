"""Step n single environments in a loop as one batch; one that fails is rebuilt, and its fault reported."""

from __future__ import annotations

import contextlib
import copy
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol, SupportsFloat

import numpy as np
import numpy.typing as npt

from clearl.errors import EnvironmentFaultError
from clearl.seeding import derive
from clearl.tasks.calls import close_env
from clearl.tasks.success import Successes
from clearl.tasks.writing import ObservationWriter
from clearl.types import EnvStep


class SingleEnv(Protocol):
    """The part of Gymnasium's `Env` that is used here."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]: ...

    def step(self, action: Any, /) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]: ...

    def close(self) -> None: ...


FLOAT32_MAX = float(np.finfo(np.float32).max)

WriteMask = Callable[[Any, Any], str | None]
"""Writes the mask in an info into a frame; returns what is wrong with it, or None."""


_SOUND_STEPS = 32
"""Steps that a rebuilt environment must survive before it may be rebuilt again: one that fails at once stays broken."""


class LoopEnvs:
    """Implements `Envs`: termination resets in the same step, truncation in the next one, whose action is ignored.

    With `rebuild`, an environment that raises or returns values unfit for training is closed and rebuilt; the others
    continue. Its episode is cut before the action that failed: that step is not valid, and the next frame opens an
    episode. `take_faults` returns the fault.
    """

    def __init__(
        self,
        task: str,
        envs: Sequence[SingleEnv],
        *,
        seed: int,
        frame_shape: tuple[int, ...],
        frame_dtype: npt.DTypeLike,
        writer: ObservationWriter,
        convert_actions: Callable[[np.ndarray], Sequence[Any]] = np.ndarray.tolist,
        write_mask: WriteMask | None = None,
        rebuild: Callable[[], SingleEnv] | None = None,
    ) -> None:
        """Take `convert_actions`, from stored actions [n, ...] to those of the environments; by default, plain numbers.

        `write_mask` writes the allowed actions from a state's info into its frame; None if all are always allowed.
        """
        self.num_envs = len(envs)
        self._task = task
        self._envs = list(envs)
        self._seed: int | None = seed
        self._last_seed, self._rebuild = seed, rebuild
        self._frame_shape, self._frame_dtype = frame_shape, frame_dtype
        self._writer, self._convert_actions, self._write_mask = writer, convert_actions, write_mask
        self._rows = writer.rows()
        self._waiting = [False] * self.num_envs
        self._steps = [0] * self.num_envs
        self._successes = Successes(self.num_envs)
        self._rebuilt_at: list[int | None] = [None] * self.num_envs
        self._faults: list[EnvironmentFaultError] = []

    def reset(self, *, seed: int | None = None) -> np.ndarray:
        frames = self._empty_frames()
        if seed is not None:
            self._seed = self._last_seed = seed
        for slot in range(self.num_envs):
            self._restart(slot, frames)
            self._successes.begin(slot)
        # Later episodes continue the environments' own random streams.
        self._seed = None
        return frames

    def step(self, actions: np.ndarray) -> EnvStep:
        n = self.num_envs
        frames, reward = self._empty_frames(), [0.0] * n
        terminated, truncated, first, valid = [False] * n, [False] * n, [False] * n, [True] * n
        self._check_finite(actions)
        self._rows.begin()
        for slot, action in enumerate(self._convert_actions(actions)):
            if self._waiting[slot]:
                self._restart(slot, frames)
                self._successes.begin(slot)
                valid[slot], first[slot] = False, True
                continue
            try:
                reward[slot], died, cut = self._act(slot, action, frames)
            except EnvironmentFaultError as fault:
                self._rows.drop(slot)
                self._replace(slot, fault, frames)
                self._successes.begin(slot)
                valid[slot], first[slot] = False, True
                continue
            if died:
                terminated[slot] = first[slot] = True
                self._restart(slot, frames)
            elif cut:
                truncated[slot] = self._waiting[slot] = True
        for slot, problem in self._rows.finish(frames).items():
            self._replace(slot, self._found(slot, problem), frames)
            self._successes.begin(slot)
            reward[slot], valid[slot], first[slot] = 0.0, False, True
        ended = np.array(terminated, bool)
        success = self._successes.so_far()
        self._successes.begin(ended)
        cut, counts, begun = (np.array(each, bool) for each in (truncated, valid, first))
        return EnvStep(frames, np.array(reward, np.float32), ended, cut, counts, begun, success)

    @staticmethod
    def combined(seats: Sequence[tuple[LoopEnvs, int]]) -> LoopEnvs:
        """Combine environments of other vectors, each in its present state; see `clearl.tasks.vectors`."""
        made = copy.copy(seats[0][0])
        made.num_envs, made._seed, made._faults = len(seats), None, []
        for name in ("_envs", "_waiting", "_steps", "_rebuilt_at"):
            setattr(made, name, [getattr(envs, name)[index] for envs, index in seats])
        made._rows = made._writer.rows()
        made._successes = Successes.combined([(envs._successes, index) for envs, index in seats])
        return made

    def changed(self, task: str, change: Callable[[Any], None], rebuild: Callable[[], SingleEnv]) -> LoopEnvs:
        """Return these environments as those of another task, each `change`d in the middle of its episode."""
        made = copy.copy(self)
        made._task, made._rebuild = task, rebuild
        for env in made._envs:
            change(env)
        return made

    def take_faults(self) -> list[EnvironmentFaultError]:
        """Return the faults since the last call after which an environment was rebuilt."""
        faults, self._faults = self._faults, []
        return faults

    def get_state(self) -> dict[str, Any] | None:
        """Return None: Gymnasium has no way to save an environment."""
        return None

    def set_state(self, state: dict[str, Any]) -> np.ndarray:
        raise NotImplementedError("these environments have no state to go on from: get_state gave None")

    def close(self) -> None:
        envs, self._envs = self._envs, []
        for env in envs:
            close_env(self._task, env)

    def _check_finite(self, actions: np.ndarray) -> None:
        if actions.dtype.kind == "f" and not np.isfinite(actions).all():
            slot = int(np.flatnonzero(~np.isfinite(actions).reshape(len(actions), -1).all(1))[0])
            self._fault(slot, f"the policy chose the action {actions[slot].tolist()}; lower learning_rate")

    def _empty_frames(self) -> np.ndarray:
        return np.zeros((self.num_envs, *self._frame_shape), self._frame_dtype)

    def _restart(self, slot: int, frames: np.ndarray) -> None:
        try:
            self._begin(slot, frames, None if self._seed is None else derive(self._seed, slot))
        except EnvironmentFaultError as fault:
            self._replace(slot, fault, frames)

    def _replace(self, slot: int, fault: EnvironmentFaultError, frames: np.ndarray) -> None:
        """Rebuild one environment and begin an episode in it; raise `fault` if the last rebuild did not help."""
        before, now = self._rebuilt_at[slot], self._steps[slot]
        if self._rebuild is None or (before is not None and now - before < _SOUND_STEPS):
            raise fault
        with contextlib.suppress(Exception, SystemExit):
            self._envs[slot].close()
        try:
            self._envs[slot] = self._rebuild()
        except (Exception, SystemExit) as error:
            raise fault from error
        self._rebuilt_at[slot] = now
        frames[slot] = np.zeros(self._frame_shape, self._frame_dtype)
        self._begin(slot, frames, derive(self._last_seed, "rebuilt", slot, now))
        self._faults.append(fault)

    def _begin(self, slot: int, frames: np.ndarray, seed: int | None) -> None:
        self._waiting[slot] = False
        seed = None if seed is None else seed & 0x7FFFFFFF
        try:
            observation, info = self._envs[slot].reset(seed=seed)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an environment raises is reported with its place
            self._fault(slot, f"reset raised {type(error).__name__}: {error}", error)
        self._write(slot, observation, frames, info)

    def _act(self, slot: int, action: Any, frames: np.ndarray) -> tuple[float, bool, bool]:
        self._steps[slot] += 1
        try:
            observation, reward, terminated, truncated, info = self._envs[slot].step(action)
            gained, died, cut = float(reward), bool(terminated), bool(truncated)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an environment raises is reported with its place
            self._fault(slot, f"step raised {type(error).__name__}: {error}", error)
        if not abs(gained) <= FLOAT32_MAX:  # false for NaN, too
            self._fault(slot, f"the reward is {gained}, which is no finite number in float32; return one that is")
        if (problem := self._successes.see(slot, info)) is not None:
            self._fault(slot, problem)
        # No action follows the last state of an episode: it may allow none.
        if died or cut:
            self._write(slot, observation, frames, {})
        else:
            self._put(slot, observation, frames, info)
        return gained, died, cut

    def _put(self, slot: int, observation: Any, frames: np.ndarray, info: dict[str, Any]) -> None:
        """Write an observation, whose real numbers are checked with those of the others at the end of the step."""
        problem = self._rows.put(slot, observation, frames[slot])
        if problem is None and self._write_mask is not None:
            problem = self._write_mask(info, frames[slot])
        if problem is not None:
            self._fault(slot, problem)

    def _write(self, slot: int, observation: Any, frames: np.ndarray, info: dict[str, Any]) -> None:
        problem = self._writer.write(observation, frames[slot])
        if problem is None and self._write_mask is not None:
            problem = self._write_mask(info, frames[slot])
        if problem is not None:
            self._fault(slot, problem)

    def _fault(self, slot: int, problem: str, cause: BaseException | None = None) -> NoReturn:
        if cause is not None:
            problem += "\n" + "".join(traceback.format_exception(cause)).rstrip()
        raise self._found(slot, problem) from cause

    def _found(self, slot: int, problem: str) -> EnvironmentFaultError:
        return EnvironmentFaultError(self._task, slot, self._steps[slot], problem)
