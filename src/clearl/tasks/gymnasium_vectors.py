"""Adapt Gymnasium's vector environments, in any of its three autoreset modes.

Our truncated episodes end with a step that is ignored (`EnvStep`). A vector that resets in the step after an end has
that step itself. One that resets in the same step, or on demand, cannot pause one environment while the others act:
the first action of the next episode is chosen without its frame, and neither it nor its reward is trained on.
"""

from __future__ import annotations

import copy
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from clearl.errors import ConfigError, EnvironmentFaultError
from clearl.seeding import derive
from clearl.spaces import MASK_FIELD, TaskSpec
from clearl.tasks.actions import MASK_KEY, TaskActions
from clearl.tasks.autoreset import NextStepAutoreset
from clearl.tasks.calls import close_env
from clearl.tasks.loop import FLOAT32_MAX
from clearl.tasks.masks import allowed_actions
from clearl.tasks.observations import TaskObservations
from clearl.tasks.success import ANY_STEP, LAST_STEP, Successes
from clearl.tasks.writing import ObservationWriter
from clearl.types import EnvStep


class GymnasiumVector:
    """Implements `Envs` with a `gymnasium.vector.VectorEnv`."""

    def __init__(
        self, task: str, vector: Any, *, seed: int, spec: TaskSpec, observations: TaskObservations, actions: TaskActions
    ) -> None:
        self.num_envs = int(vector.num_envs)
        self._task, self._vector, self._spec, self._observations = task, vector, spec, observations
        self._seed: int | None = seed
        self._writer = ObservationWriter(observations, spec.observation)
        self._write_mask = actions.mask_writer(spec.action) if spec.observation.mask_size else None
        self._convert = actions.converter(spec.action)
        self._mode = autoreset_mode(task, vector)
        self._next_step = NextStepAutoreset(self.num_envs)
        self._unseen = np.zeros(self.num_envs, bool)
        """True for environments that have begun an episode whose first frame has not been returned yet."""
        self._successes = Successes(self.num_envs)
        self._steps = 0
        self._masks = np.ones((self.num_envs, spec.action.mask_size), bool)
        """Flags of the states in which the next actions are taken, where states have masks."""

    def reset(self, *, seed: int | None = None) -> np.ndarray:
        seed, self._seed = self._seed if seed is None else seed, None
        observations, info = self._ask("reset", seed=None if seed is None else derive(seed) & 0x7FFFFFFF)
        self._next_step.reset()
        self._unseen[:] = False
        self._successes.begin(slice(None))
        frames = self._frames(observations, info, np.ones(self.num_envs, bool))
        self._note_masks(frames)
        return frames

    def step(self, actions: np.ndarray) -> EnvStep:
        from gymnasium.vector.utils import concatenate, create_empty_array

        if actions.dtype.kind == "f" and not np.isfinite(actions).all():
            slot = int(np.flatnonzero(~np.isfinite(actions).reshape(len(actions), -1).all(1))[0])
            self._fault(slot, f"the policy chose the action {actions[slot].tolist()}; lower learning_rate")
        self._steps += 1
        space = self._vector.single_action_space
        batch = concatenate(space, self._convert(actions), create_empty_array(space, self.num_envs))
        observations, reward, terminated, truncated, info = self._ask("step", batch)
        reward = self._checked(np.asarray(reward, np.float64))
        terminated, truncated = (np.array(flags, bool) for flags in (terminated, truncated))
        if self._mode == "NextStep":
            step = self._after_next_step(observations, info, reward, terminated, truncated)
        else:
            step = self._after_reset(observations, info, reward, terminated, truncated)
        self._note_masks(step.frames)
        return step

    def allowed_actions(self) -> np.ndarray:
        """Return an action [n, *action_shape] for each environment that its state allows."""
        return allowed_actions(self._masks, self._spec.action)

    def get_state(self) -> None:
        """Return None: Gymnasium has no way to save environments."""

    def set_state(self, state: dict[str, Any]) -> np.ndarray:
        raise NotImplementedError("these environments have no state to go on from: get_state gave None")

    def close(self) -> None:
        close_env(self._task, self._vector)

    def _note_masks(self, frames: np.ndarray) -> None:
        if self._write_mask is not None:
            self._masks = frames[MASK_FIELD].copy()

    def _after_next_step(
        self, observations: Any, info: Mapping[str, Any], reward: np.ndarray, terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> EnvStep:  # fmt: skip
        """Convert a step of a vector that resets in the step after an episode's end."""
        frames = self._frames(observations, info, ~(terminated | truncated))
        answer = self._next_step.answer(frames, reward, terminated, truncated)
        self._successes.begin(answer.first)
        success = self._see_successes(info, answer.valid)
        return EnvStep(
            frames, np.where(answer.valid, reward, np.float32(0)), answer.terminated, answer.truncated, answer.valid,
            answer.first, success,
        )  # fmt: skip

    def _after_reset(
        self, observations: Any, info: Mapping[str, Any], reward: np.ndarray, terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> EnvStep:  # fmt: skip
        """Convert a step in which finished environments were reset (SameStep), or are reset here (Disabled)."""
        over, unseen = terminated | truncated, self._unseen
        cut = truncated & ~terminated & ~unseen
        success = self._see_successes(info, ~unseen & ~over, self._final_info(info), ~unseen & over)
        # In the same step, the infos of finished environments are already those of their next episodes.
        frames = self._frames(observations, info, ~over if self._mode == "Disabled" else np.ones_like(over))
        last = self._last_observations(observations, info, cut)
        if self._mode == "Disabled" and over.any():
            observations, info = self._ask("reset", options={"reset_mask": over})
            frames[over] = self._frames(observations, info, over)[over]
        for slot, observation in last.items():
            # The next action is played in the next episode: keep the mask of its first state.
            mask = frames[slot][MASK_FIELD].copy() if self._write_mask is not None else None
            frames[slot] = np.zeros((), frames.dtype)
            self._write_one(slot, observation, frames)
            if mask is not None:
                frames[slot][MASK_FIELD] = mask
        terminated &= ~unseen
        self._successes.begin(unseen | terminated)
        self._unseen = cut
        return EnvStep(
            frames, np.where(unseen, np.float32(0), reward), terminated, cut, ~unseen, unseen | terminated, success
        )

    def _final_info(self, info: Mapping[str, Any]) -> Mapping[str, Any]:
        return info.get("final_info", {}) if self._mode == "SameStep" else info

    def _last_observations(self, observations: Any, info: Mapping[str, Any], cut: np.ndarray) -> dict[int, Any]:
        """Return the last observations of truncated episodes, by slot; copies, as a reset may overwrite them."""
        slots = np.flatnonzero(cut).tolist()
        if slots and self._mode == "SameStep":
            if "final_obs" not in info:
                problem = 'a truncated episode needs its last observation in info["final_obs"]; Gymnasium asks for it'
                self._fault(slots[0], problem)
            observations = info["final_obs"]
        return {slot: copy.deepcopy(self._observations.member(observations, slot)) for slot in slots}

    def _frames(self, observations: Any, info: Mapping[str, Any], acting: np.ndarray) -> np.ndarray:
        """Convert all observations to frames, with the states' masks where `acting`."""
        frames = self._empty()
        for slot in range(self.num_envs):
            masked = acting[slot] and _has(info, MASK_KEY, slot)
            mask = {MASK_KEY: _member(info[MASK_KEY], slot)} if masked else {}
            self._write(slot, observations, mask, frames)
        return frames

    def _write(self, slot: int, observations: Any, mask: Mapping[str, Any], frames: np.ndarray) -> None:
        try:
            observation = self._observations.member(observations, slot)
        except (IndexError, TypeError, ValueError) as error:
            problem = f"the observations are no batch of {self.num_envs}: {error}"
            self._fault(slot, f"{problem}; return one of each environment in every part")
        self._write_one(slot, observation, frames)
        if self._write_mask is not None and (problem := self._write_mask(mask, frames[slot])) is not None:
            self._fault(slot, problem)

    def _write_one(self, slot: int, observation: Any, frames: np.ndarray) -> None:
        if (problem := self._writer.write(observation, frames[slot])) is not None:
            self._fault(slot, problem)

    def _see_successes(
        self, info: Mapping[str, Any], places: np.ndarray, final_info: Mapping[str, Any] | None = None,
        ended: np.ndarray | None = None,
    ) -> np.ndarray | None:  # fmt: skip
        """Take in infos at `places`, and final infos where episodes `ended`; return the successes so far."""
        for source, slots in ((info, places), (final_info or {}, ended)):
            for key in (ANY_STEP, LAST_STEP):
                for slot in np.flatnonzero(slots).tolist() if key in source and slots is not None else ():
                    if _has(source, key, slot):
                        problem = self._successes.see(slot, {key: _member(source[key], slot)})
                        if problem is not None:
                            self._fault(slot, problem)
        return self._successes.so_far()

    def _empty(self) -> np.ndarray:
        observation = self._spec.observation
        return np.zeros((self.num_envs, *observation.frame_shape), observation.frame_dtype)

    def _checked(self, reward: np.ndarray) -> np.ndarray:
        bad = ~(np.abs(reward) <= FLOAT32_MAX)  # true for NaN, too
        if bad.any():
            slot = int(np.flatnonzero(bad)[0])
            self._fault(slot, f"the reward is {reward[slot]}, which is no finite number in float32; return one that is")
        return reward.astype(np.float32)

    def _ask(self, method: str, *args: Any, **options: Any) -> Any:
        try:
            *answer, info = getattr(self._vector, method)(*args, **options)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an environment raises is reported
            text = "".join(traceback.format_exception(error)).rstrip()
            self._fault(0, f"{method} of the vector raised {type(error).__name__}: {error}\n{text}", error)
        if not isinstance(info, Mapping):
            self._fault(0, f"info of the vector is {info!r:.80}; return a dict")
        return *answer, info

    def _fault(self, slot: int, problem: str, cause: BaseException | None = None) -> NoReturn:
        raise EnvironmentFaultError(self._task, slot, self._steps, problem) from cause


def autoreset_mode(task: str, vector: Any) -> str:
    """Return "NextStep", "SameStep" or "Disabled", as the vector's metadata say."""
    mode = vector.metadata.get("autoreset_mode")
    value = getattr(mode, "value", mode)
    if value not in ("NextStep", "SameStep", "Disabled"):
        raise ConfigError(
            f"{task}: its vector environment does not say how it resets (metadata['autoreset_mode'] is {mode!r}); "
            "set it to a gymnasium.vector.AutoresetMode"
        )
    return value


def _has(info: Mapping[str, Any], key: str, slot: int) -> bool:
    """Return whether an info of a vector has a key for one environment; the flags in `_key` tell, if it exists."""
    return key in info and bool(np.asarray(info.get(f"_{key}", True)).reshape(-1)[slot if f"_{key}" in info else 0])


def _member(values: Any, slot: int) -> Any:
    return tuple(part[slot] for part in values) if isinstance(values, tuple) else values[slot]
