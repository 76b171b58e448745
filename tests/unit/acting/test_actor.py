"""The actor: what it writes down is what happened, step by step, across episodes, stacks and unrolls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from clearl.acting.actor import Actor
from clearl.errors import EnvironmentFaultError
from clearl.nets.network import StepInput, StepOutput, build_network
from clearl.spaces import discrete_spec
from clearl.types import EnvStep
from clearl.unroll import UnrollLayout

LENGTH = 4


class CountingEnvs:
    """Frames count the steps of the episode from `base`; every fourth step ends it, by death or by time."""

    def __init__(self, num_envs: int, base: int, *, truncates: bool) -> None:
        self.num_envs, self.base, self.truncates = num_envs, base, truncates
        self.count, self.waiting = 0, False

    def _frames(self) -> np.ndarray:
        return np.full((self.num_envs, 1), self.base + self.count, np.float32)

    def reset(self, *, seed: int | None = None) -> np.ndarray:
        self.count, self.waiting = 0, False
        return self._frames()

    def step(self, actions: np.ndarray) -> EnvStep:
        n = self.num_envs
        if self.waiting:
            return EnvStep(self.reset(), np.zeros(n, np.float32), *(np.full(n, b) for b in (False, False, False, True)))
        self.count += 1
        over = self.count == LENGTH
        self.waiting = over and self.truncates
        died = over and not self.truncates
        frames = self.reset() if died else self._frames()
        flags = (died, over and self.truncates, True, died)
        return EnvStep(frames, actions.astype(np.float32), *(np.full(n, flag) for flag in flags))

    def get_state(self) -> dict[str, Any]:
        return {"count": self.count, "waiting": self.waiting}

    def set_state(self, state: dict[str, Any]) -> np.ndarray:
        self.count, self.waiting = state["count"], state["waiting"]
        return self._frames()

    def close(self) -> None:
        pass


class CountingSuite:
    name, tasks = "counting", ("dies", "times out")

    def __init__(self, stack: int = 1) -> None:
        self.spec = discrete_spec((1,), "float32", 3, stack=stack)
        self.made: list[tuple[str, int]] = []

    def mask(self, task: str) -> np.ndarray:
        return np.array([True, True, task == "dies"])

    def make(self, task: str, *, num_envs: int, seed: int, training: bool = True) -> CountingEnvs:
        self.made.append((task, num_envs))
        return CountingEnvs(num_envs, 100 if task == "dies" else 200, truncates=task != "dies")

    def render(self, task: str, frame: np.ndarray) -> np.ndarray:
        return np.zeros((1, 1, 3), np.uint8)


def an_actor(stack: int = 1, steps: int = 10, slots: int = 2, lstm: bool = False) -> tuple[Actor, UnrollLayout]:
    suite = CountingSuite(stack)
    network = build_network(suite.spec, torso="mlp", lstm=lstm, lstm_size=4, seed=3)
    layout = UnrollLayout(suite.spec, steps, network.core_size)
    actor = Actor(suite=suite, network=network, layout=layout, slots=range(slots), seed=5, reward_clip="unit")
    return actor, layout


def test_death_cuts_at_once_and_the_next_episode_follows() -> None:
    actor, layout = an_actor()
    rows = layout.empty(2)
    actor.assign(["dies", "dies"])
    episodes = actor.fill(rows)
    assert rows.frames[0, :, 0].tolist() == [100, 101, 102, 103, 100, 101, 102, 103, 100, 101, 102]
    assert np.flatnonzero(rows.first[0]).tolist() == [0, 4, 8]
    assert np.flatnonzero(rows.terminated[0]).tolist() == [3, 7]
    assert rows.valid.all()
    assert len(episodes) == 4 and all(episode.steps == LENGTH for episode in episodes)
    assert episodes[0].score == rows.action[0, :4].sum()


def test_a_time_limit_shows_the_last_frame_and_ignores_the_next_action() -> None:
    actor, layout = an_actor()
    rows = layout.empty(2)
    actor.assign(["times out", "times out"])
    episodes = actor.fill(rows)
    assert rows.frames[0, :, 0].tolist() == [200, 201, 202, 203, 204, 200, 201, 202, 203, 204, 200]
    assert np.flatnonzero(~rows.valid[0]).tolist() == [4, 9]
    assert np.flatnonzero(rows.first[0]).tolist() == [0, 5, 10]
    assert not rows.terminated.any()
    assert [episode.steps for episode in episodes] == [LENGTH] * 4


def test_unrolls_continue_each_other() -> None:
    actor, layout = an_actor(steps=3, stack=2)
    actor.assign(["dies", "dies"])
    one, two = layout.empty(2), layout.empty(2)
    actor.fill(one)
    actor.fill(two)
    np.testing.assert_array_equal(one.frames[:, -2:], two.frames[:, :2])
    np.testing.assert_array_equal(one.first[:, -2:], two.first[:, :2])
    np.testing.assert_array_equal(two.last_action, one.action[:, -1])
    np.testing.assert_array_equal(two.last_reward, one.reward[:, -1])


def test_each_slot_has_its_task_and_its_mask() -> None:
    actor, layout = an_actor()
    rows = layout.empty(2)
    actor.assign(["times out", "dies"])
    actor.fill(rows)
    assert rows.frames[0, 0, 0] == 200 and rows.frames[1, 0, 0] == 100
    assert rows.mask.tolist() == [[True, True, False], [True, True, True]]
    assert rows.action[0].max() < 2


def test_a_switch_starts_anew_and_keeps_the_environments() -> None:
    actor, layout = an_actor(steps=2)
    rows = layout.empty(2)
    for task in ("dies", "times out", "dies"):
        actor.assign([task, task])
        actor.fill(rows)
        assert rows.first[:, 0].all() and rows.last_action.tolist() == [0, 0]
    assert actor.suite.made == [("dies", 2), ("times out", 2)]  # type: ignore[attr-defined]


def test_what_is_stored_is_what_the_network_said() -> None:
    """Logits, values and the state at the start let `unroll` compute exactly what was acted on."""
    actor, layout = an_actor(stack=1, steps=9, lstm=True)
    rows = layout.empty(2)
    actor.assign(["dies", "times out"])
    actor.fill(rows)
    actor.fill(rows)  # the second unroll starts in the middle of an episode
    first = rows.first
    last_action = np.concatenate([rows.last_action[:, None], rows.action], 1)
    last_reward = np.concatenate([rows.last_reward[:, None], np.clip(rows.reward, -1, 1)], 1)
    inputs = StepInput(
        torch.from_numpy(rows.frames.swapaxes(0, 1).copy()),
        torch.from_numpy(np.where(first, 0, last_action).T.copy()),
        torch.from_numpy(np.where(first, 0, last_reward).astype(np.float32).T.copy()),
        torch.from_numpy(first.T.copy()),
    )
    with torch.no_grad():
        output: StepOutput = actor.network.unroll(inputs, torch.from_numpy(rows.core_state))
    np.testing.assert_allclose(output.policy[:-1].numpy(), rows.policy.swapaxes(0, 1), atol=1e-5)
    np.testing.assert_allclose(output.value[:-1].numpy(), rows.value.T, atol=1e-5)


def test_a_restored_actor_goes_on_bit_for_bit() -> None:
    one, layout = an_actor(stack=2, steps=3, lstm=True)
    two, _ = an_actor(stack=2, steps=3, lstm=True)
    rows, again = layout.empty(2), layout.empty(2)
    one.assign(["dies", "times out"])
    one.fill(rows)
    state = one.state()
    assert state is not None
    two.restore({**state, "arrays": {name: array.copy() for name, array in state["arrays"].items()}})
    for _ in range(3):
        assert one.fill(rows) == two.fill(again)
        for name, array in rows.named().items():
            np.testing.assert_array_equal(array, again.named()[name], err_msg=name)


def test_a_fault_names_the_slot_of_the_run() -> None:
    suite = CountingSuite()
    network = build_network(suite.spec, torso="mlp", lstm=False, lstm_size=4, seed=3)
    layout = UnrollLayout(suite.spec, 3)
    actor = Actor(suite=suite, network=network, layout=layout, slots=[7, 8, 9], seed=5, reward_clip="unit")
    actor.assign(["dies", "times out", "times out"])

    def fail(actions: np.ndarray) -> EnvStep:
        raise EnvironmentFaultError("times out", 1, 4, "it broke")

    actor._environments.groups[1].envs.step = fail
    with pytest.raises(EnvironmentFaultError, match="slot 9, step 4: it broke"):
        actor.fill(layout.empty(3))


def test_a_rebuilt_environment_begins_an_episode_and_is_told_with_the_slot_of_the_run() -> None:
    class Rebuilt(CountingEnvs):
        """Breaks in its third step."""

        def step(self, actions: np.ndarray) -> EnvStep:
            if self.count != 2:
                return super().step(actions)
            n = self.num_envs
            self.count = 0
            return EnvStep(
                self._frames(), np.zeros(n, np.float32), *(np.full(n, b) for b in (False, False, False, True))
            )

        def take_faults(self) -> list[EnvironmentFaultError]:
            return [EnvironmentFaultError("dies", 1, 3, "it broke")]

    suite = CountingSuite()
    suite.make = lambda task, *, num_envs, seed, training=True: Rebuilt(num_envs, 100, truncates=False)  # type: ignore[method-assign]
    network = build_network(suite.spec, torso="mlp", lstm=False, lstm_size=4, seed=3)
    layout = UnrollLayout(suite.spec, 6, network.core_size)
    actor = Actor(suite=suite, network=network, layout=layout, slots=[8, 9], seed=5, reward_clip="unit")
    rows = layout.empty(2)
    actor.assign(["dies", "dies"])
    actor.take_faults()
    assert actor.fill(rows) == [] and not rows.terminated.any()
    assert rows.frames[0, :, 0].tolist() == [100, 101, 102, 100, 101, 102, 100]
    assert np.flatnonzero(~rows.valid[0]).tolist() == [2, 5] and np.flatnonzero(rows.first[0]).tolist() == [0, 3, 6]
    assert [fault.slot for fault in actor.take_faults()] == [9] and not actor._score.any() and not actor._steps.any()
