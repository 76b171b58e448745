"""Check a method: it trains, comes back from its state, and keeps to the seam."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearl.config import RunConfig
from clearl.learning.learner import Learner
from clearl.methods import make_method
from clearl.methods.method import Method, layers
from clearl.nets.network import StepInput, as_module
from clearl.spaces import MASK_FIELD, ActionSpec, ObservationSpec, PartSpec, TaskSpec, discrete_spec
from clearl.types import Batch, Visit
from clearl.unroll import as_plain
from clearl.wiring import make_network

SPEC = discrete_spec((4,), "float32", 4)
CONTINUOUS = TaskSpec(SPEC.observation, ActionSpec(bounded=(True, False, True, True)))
JOINT = TaskSpec(
    ObservationSpec({"doors": PartSpec((2,), "bool"), "place": PartSpec((3,), "float32")}, mask_size=6),
    ActionSpec((2, 3), (True,)),
)
"""Records with a mask of each state; two choices and a real number in one action."""
STEPS, UNROLLS, BATCH_FRAMES, VISIT_UPDATES = 5, 6, 30, 8
HOOKS = ("visit", "before_step", "after_step", "diagnostics")


def check_method(name: str, **settings: Any) -> None:
    """Run every check on a registered method, or on a combination (`a+b+c`).

    With discrete actions, with continuous ones, and with both in records and masks; without and with a recurrent core.
    """
    for spec in (SPEC, CONTINUOUS, JOINT):
        for lstm in (False, True):
            for check in METHOD_CHECKS:
                check(name, lstm, spec, **settings)


def trains_the_same_twice(name: str, lstm: bool, spec: TaskSpec = SPEC, **settings: Any) -> None:
    """Train twice over several visits: the same results, without randomness from outside."""
    one, two = (a_learner(name, lstm, spec, **settings) for _ in range(2))
    torch.manual_seed(5)
    before = torch.get_rng_state()
    train(one, range(3 * VISIT_UPDATES), spec)
    assert torch.equal(torch.get_rng_state(), before), "a method draws from generators of its own, seeded by the config"
    torch.manual_seed(6)
    train(two, range(3 * VISIT_UPDATES), spec)
    assert_same(one, two)


def comes_back_bit_for_bit(name: str, lstm: bool, spec: TaskSpec = SPEC, **settings: Any) -> None:
    """Restore a checkpoint before or after a switch: it holds all that training depends on.

    It is restored into a learner whose network begins elsewhere, as one that has grown does.
    """
    for updates in (VISIT_UPDATES - 1, VISIT_UPDATES + 3):
        one, two = (a_learner(name, lstm, spec, network_seed=seed, **settings) for seed in (1, 2))
        train(one, range(updates), spec)
        state = json.loads(json.dumps(one.state()))
        two.restore({key: tensor.clone() for key, tensor in one.tensors().items()}, state)
        for learner in (one, two):
            train(learner, range(updates, 2 * VISIT_UPDATES + 2), spec)
        assert_same(one, two)


@torch.no_grad()
def acts_as_it_unrolls(name: str, lstm: bool, spec: TaskSpec = SPEC, **settings: Any) -> None:
    """Act step by step with the same policy as in an unroll, and with no action outside the mask."""
    learner = a_learner(name, lstm, spec, **settings)
    with torch.enable_grad():
        train(learner, range(VISIT_UPDATES + 2), spec)
    network, batch = learner.network, a_batch(learner.network.core_size, 99, 0.0, spec)
    inputs = StepInput(batch.observation, batch.last_action, batch.last_reward, batch.first)
    unrolled, state = network.unroll(inputs, batch.core_state), batch.core_state
    uniform = torch.rand(UNROLLS, *network.head.uniform_shape, generator=torch.Generator().manual_seed(0))
    masks = [*batch.mask, batch.mask[-1]] if batch.mask.dim() == 3 else [batch.mask] * (STEPS + 1)
    for t, mask in enumerate(masks):
        acted = network.act(StepInput(*(part[t] for part in inputs)), state)
        evaluated = network.act(StepInput(*(part[t] for part in inputs)), state, column="evaluate")
        state = acted.state
        torch.testing.assert_close(acted.policy, unrolled.policy[t], rtol=1e-5, atol=1e-5)
        assert evaluated.policy.shape == acted.policy.shape and evaluated.state.shape == state.shape
        chosen = network.head.embed(network.head.distribution(evaluated.policy, mask).sample(uniform)) != 0
        assert not chosen[~mask].any(), "an action that the task does not have, or the state forbids"
    torch.testing.assert_close(state, unrolled.state, rtol=1e-5, atol=1e-5)


def says_what_it_is(name: str, lstm: bool, spec: TaskSpec = SPEC, **settings: Any) -> None:
    """Check that labels, boundaries, share of replay, weights and diagnostics are there and make sense."""
    method = make_method(RunConfig(method=name, **settings))
    for layer in layers(method):
        assert layer.label, f"{type(layer).__name__} needs a label for reports"
        assert layer.colour == "" or re.fullmatch("#[0-9a-f]{6}", layer.colour), f"colour {layer.colour!r}"
        assert layer.replay_fraction == method.replay_fraction, "a wrapper replays what its base replays"
        assert layer.extra_frames_share <= method.extra_frames_share, "a wrapper asks for the frames of its base"
    assert method.needs_boundaries == any(type(layer).needs_boundaries for layer in layers(method))
    assert 0 <= method.replay_fraction <= 1
    assert all(math.isfinite(weight) for weight in method.weights().values())
    assert all(math.isfinite(number) for number in method.diagnostics().values())


def is_told_of_visits_only_if_it_needs_them(name: str, lstm: bool, spec: TaskSpec = SPEC, **settings: Any) -> None:
    """Check that no layer that does without boundaries is told task, index or switch."""
    learner = a_learner(name, lstm, spec, **settings)
    told: list[object] = []
    for layer in layers(learner.method):
        if not layer.needs_boundaries:
            vars(layer)["visit"] = lambda *what: told.append(what)
    train(learner, range(VISIT_UPDATES + 2), spec)
    assert not told, "a method that needs no boundaries was told of a visit"


def hands_every_hook_to_its_base(name: str, lstm: bool, spec: TaskSpec = SPEC, **settings: Any) -> None:
    """Count the calls of each hook at every layer: a wrapper that overrides one calls `super()` in it."""
    learner = a_learner(name, lstm, spec, **settings)
    counted = [(layer, counted_calls(layer)) for layer in layers(learner.method)]
    train(learner, range(VISIT_UPDATES + 2), spec)
    learner.method.diagnostics()
    for (outer, asked), (base, calls) in pairwise(counted):
        for hook in HOOKS if base.needs_boundaries else HOOKS[1:]:
            kind, told = type(outer).__name__, f"{calls[hook]} of {asked[hook]} calls reached {type(base).__name__}"
            assert calls[hook] == asked[hook], f"{kind}.{hook} must call super().{hook} once: {told}"


def hands_over_its_network(name: str, lstm: bool, spec: TaskSpec = SPEC, **settings: Any) -> None:
    """Send the state dict to a network that a worker built: it must hold everything."""
    learner, other = (a_learner(name, lstm, spec, **settings) for _ in range(2))
    train(learner, range(VISIT_UPDATES + 2), spec)
    as_module(other.network).load_state_dict(as_module(learner.network).state_dict())
    batch = a_batch(learner.network.core_size, 99, 0.0, spec)
    inputs = StepInput(batch.observation, batch.last_action, batch.last_reward, batch.first)
    one, two = (network.unroll(inputs, batch.core_state) for network in (learner.network, other.network))
    assert torch.equal(one.policy, two.policy)
    for in_training in (False, True):
        columns = [each.network.evaluated_columns(in_training=in_training) for each in (learner, other)]
        assert columns[0] == columns[1]


METHOD_CHECKS: tuple[Callable[..., None], ...] = (
    trains_the_same_twice,
    comes_back_bit_for_bit,
    acts_as_it_unrolls,
    says_what_it_is,
    is_told_of_visits_only_if_it_needs_them,
    hands_every_hook_to_its_base,
    hands_over_its_network,
)


def counted_calls(layer: Method) -> Counter[str]:
    """Count the calls of each hook of a layer from now on."""
    calls: Counter[str] = Counter()

    def counted(hook: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[hook] += 1
            return original(*args, **kwargs)

        return call

    vars(layer).update({hook: counted(hook, getattr(layer, hook)) for hook in HOOKS})
    return calls


def a_learner(name: str, lstm: bool, spec: TaskSpec = SPEC, *, network_seed: int = 1, **settings: Any) -> Learner:
    """Return a small learner of a method, on vectors."""
    config = RunConfig(
        **{"method": name, "torso": "mlp", "lstm": lstm, "lstm_size": 5, "fisher_batches": 3, **settings}
    )
    method = make_method(config)
    network = make_network(replace(config, seed=network_seed), spec, method)
    return Learner(network=network, method=method, config=config, batch_frames=BATCH_FRAMES, total_frames=None)


def train(learner: Learner, updates: range, spec: TaskSpec = SPEC) -> None:
    """Make some updates, in visits of 8 to two tasks by turns."""
    for update in updates:
        index, frames = update // VISIT_UPDATES, VISIT_UPDATES * BATCH_FRAMES
        visit = Visit(index, ("ab"[index % 2],), update * BATCH_FRAMES, index * frames, (index + 1) * frames)
        batch = a_batch(learner.network.core_size, update, learner.method.replay_fraction, spec)
        stats = learner.update(batch, visit if learner.method.needs_boundaries else None)
        assert stats.applied, f"update {update} was not finite"
        assert stats.loss.keys() == learner.method.weights().keys(), "losses and weights have the same names"
        assert all(math.isfinite(value) for value in stats.loss.values()), f"losses {stats.loss}"


def a_batch(core_size: int, seed: int, replay_fraction: float, spec: TaskSpec = SPEC) -> Batch:
    """Make a batch of two tasks with different action masks, in turns; no masked action occurs."""
    rng = torch.Generator().manual_seed(seed)
    shape, mask = (STEPS, UNROLLS), _task_masks(spec.action)
    if spec.observation.is_record:
        observation, mask = _records(spec.observation, mask, rng)
    else:
        observation = torch.randn(STEPS + 1, UNROLLS, 4, generator=rng)
    return Batch(
        observation=observation,
        first=torch.rand(STEPS + 1, UNROLLS, generator=rng) < 0.2,
        last_reward=torch.randn(STEPS + 1, UNROLLS, generator=rng),
        core_state=torch.randn(UNROLLS, core_size, generator=rng),
        reward=torch.randn(shape, generator=rng),
        discount=torch.full(shape, 0.9),
        valid=torch.rand(shape, generator=rng) < 0.9,
        mask=mask,
        behaviour_value=torch.randn(shape, generator=rng),
        is_replay=torch.arange(UNROLLS) < round(replay_fraction * UNROLLS),
        **_actions(spec.action, mask, rng),
    )


def _task_masks(action: ActionSpec) -> Tensor:
    """Return [B, mask_size]: every second option or number for one task, the others for the other.

    Of several choices both tasks have the first options; one task has the last option and the real numbers as well.
    """
    places, odd = torch.arange(action.mask_size), torch.arange(UNROLLS)[:, None] % 2 == 1
    if len(action.choices) < 2:
        return (places % 2 == 1) == odd
    return (places < sum(action.choices) - 1) | odd


def _records(spec: ObservationSpec, mask: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the bytes of records [T+1, B, nbytes], and the masks [T, B, mask_size] of tasks and states."""
    records = np.zeros((STEPS + 1, UNROLLS), spec.record_dtype)
    for name, part in spec.parts.items():
        numbers = torch.randn(STEPS + 1, UNROLLS, *part.shape, generator=rng).numpy()
        records[name] = numbers > 0 if part.dtype == "bool" else numbers
    states = torch.rand(STEPS + 1, UNROLLS, spec.mask_size, generator=rng) < 0.5
    states[..., [0, 2]] = True  # the first option of either choice
    records[MASK_FIELD] = states.numpy()
    return torch.from_numpy(as_plain(records)), states[:-1] & mask


def _actions(action: ActionSpec, mask: Tensor, rng: torch.Generator) -> dict[str, Tensor]:
    if action.is_discrete:
        return _discrete_actions(mask, rng)
    return _joint_actions(action, mask, rng) if action.choices else _continuous_actions(mask, rng)


def _discrete_actions(mask: Tensor, rng: torch.Generator) -> dict[str, Tensor]:
    return {
        "last_action": torch.randint(4, (STEPS + 1, UNROLLS), generator=rng),
        "action": mask.float().expand(STEPS, -1, -1).flatten(0, 1).multinomial(1, generator=rng).view(STEPS, UNROLLS),
        "behaviour_policy": torch.randn(STEPS, UNROLLS, 4, generator=rng),
    }


def _continuous_actions(mask: Tensor, rng: torch.Generator) -> dict[str, Tensor]:
    """Draw actions before squashing, and policies of means and log standard deviations."""
    return {
        "last_action": torch.randn(STEPS + 1, UNROLLS, 4, generator=rng) * mask,
        "action": torch.randn(STEPS, UNROLLS, 4, generator=rng) * mask,
        "behaviour_policy": torch.randn(STEPS, UNROLLS, 8, generator=rng) * 0.3,
    }


def _joint_actions(action: ActionSpec, mask: Tensor, rng: torch.Generator) -> dict[str, Tensor]:
    """Draw one of the allowed options of each choice, then real numbers; the last action is that of the step before."""
    *options, reals = mask.float().flatten(0, 1).split([*action.choices, action.reals], 1)
    chosen = [allowed.multinomial(1, generator=rng) for allowed in options]
    drawn = torch.cat([*chosen, torch.randn(reals.shape, generator=rng) * reals], 1).view(STEPS, UNROLLS, -1)
    return {
        "last_action": torch.cat([drawn[:1], drawn]),
        "action": drawn,
        "behaviour_policy": torch.randn(STEPS, UNROLLS, action.policy_size, generator=rng) * 0.3,
    }


def assert_same(one: Learner, two: Learner) -> None:
    """Assert that two learners are equal, bit for bit."""
    assert json.dumps(one.state()) == json.dumps(two.state()), "states differ"
    tensors = two.tensors()
    assert one.tensors().keys() == tensors.keys(), "tensors of other names"
    for name, tensor in one.tensors().items():
        assert torch.equal(tensor, tensors[name]), f"tensor {name} differs"
