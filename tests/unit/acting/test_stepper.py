"""The stepper: what it carries from step to step, in all places or in some."""

from __future__ import annotations

import numpy as np
import torch

from clearl.acting.stepper import Stepper
from clearl.nets.heads import make_head
from clearl.nets.network import StepInput, StepOutput
from clearl.spaces import TaskSpec, discrete_spec


class Scribe:
    """Writes down what it is asked; prefers action 1; its state counts its steps."""

    core_size = 1

    def __init__(self, spec: TaskSpec) -> None:
        self.head, self.asked = make_head(spec.action), []

    def act(self, inputs: StepInput, state: torch.Tensor, *, column: str = "act") -> StepOutput:
        self.asked.append(inputs.map(torch.clone))
        count = len(inputs.first)
        return StepOutput(torch.tensor([0.0, 9.0, 0.0]).repeat(count, 1), torch.zeros(count), state + 1)

    def unroll(self, inputs: StepInput, state: torch.Tensor) -> StepOutput:
        raise NotImplementedError

    def evaluated_columns(self, *, in_training: bool) -> tuple[str, ...]:
        return ("",)


def a_stepper(stack: int = 2, count: int = 3) -> tuple[Stepper, Scribe]:
    spec = discrete_spec((1,), "float32", 3, stack=stack)
    scribe = Scribe(spec)
    return Stepper(scribe, spec, count, reward_clip="unit"), scribe


def frames(*values: float) -> np.ndarray:
    return np.array(values, np.float32)[:, None]


QUIET = np.zeros((3, 3), np.float32)


def test_it_carries_stack_state_action_and_reward_until_an_episode_begins() -> None:
    stepper, scribe = a_stepper()
    stepper.begin(slice(None), frames(10, 20, 30))
    with torch.inference_mode():
        decision = stepper.decide(QUIET)
        stepper.see(frames(11, 21, 31), np.array([False, True, False]), decision.action, np.full(3, 5, np.float32))
        stepper.decide(QUIET)
    assert decision.action.tolist() == [1, 1, 1]
    before, after = scribe.asked
    assert before.observation.tolist() == [[10, 10], [20, 20], [30, 30]] and before.first.all()
    assert after.observation.tolist() == [[10, 11], [21, 21], [30, 31]]
    assert after.last_action.tolist() == [1, 0, 1] and after.last_reward.tolist() == [1, 0, 1]
    assert stepper.core.flatten().tolist() == [2, 2, 2]


def test_some_places_step_while_others_stand_still() -> None:
    stepper, scribe = a_stepper()
    stepper.begin(slice(None), frames(10, 20, 30))
    some = np.array([0, 2])
    with torch.inference_mode():
        action = stepper.decide(QUIET[some], some).action
        stepper.see(frames(11, 31), np.zeros(2, bool), action, np.ones(2, np.float32), some)
    assert scribe.asked[0].observation.tolist() == [[10, 10], [30, 30]]
    assert stepper.observation.tolist() == [[10, 11], [20, 20], [30, 31]]
    assert stepper.core.flatten().tolist() == [1, 0, 1] and stepper.last_action.tolist() == [1, 0, 1]


def test_an_episode_that_begins_carries_nothing_on() -> None:
    stepper, _ = a_stepper()
    stepper.begin(slice(None), frames(10, 20, 30))
    with torch.inference_mode():
        stepper.see(frames(11, 21, 31), np.zeros(3, bool), stepper.decide(QUIET).action, np.ones(3, np.float32))
    stepper.begin(np.array([1]), frames(50))
    assert stepper.observation.tolist() == [[10, 11], [50, 50], [30, 31]]
    assert stepper.first.tolist() == [False, True, False]
    assert stepper.last_action.tolist() == [1, 0, 1] and stepper.core.flatten().tolist() == [1, 0, 1]
