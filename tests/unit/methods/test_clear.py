"""CLEAR's losses: each against its definition, aligned in time, on the right half of the batch."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest
import torch
from torch import nn

from clearl.config import RunConfig
from clearl.methods.baseline import Baseline
from clearl.methods.clear import (
    Clear,
    entropy_loss,
    policy_cloning_loss,
    policy_gradient_loss,
    value_cloning_loss,
    value_loss,
)
from clearl.nets.heads import make_head
from clearl.nets.heads.categorical import MaskedCategorical
from clearl.nets.network import StepInput, StepOutput
from clearl.spaces import ActionSpec
from clearl.types import Batch, Visit

T, B, A = 5, 4, 3


class TableNetwork(nn.Module):
    """Looks logits and value up by the integer that the observation holds, so that tests control both."""

    core_size = 0

    def __init__(self, states: int) -> None:
        super().__init__()
        self.head = make_head(ActionSpec.discrete(A))
        generator = torch.Generator().manual_seed(1)
        self.logits = nn.Parameter(torch.randn(states, A, generator=generator, dtype=torch.float64))
        self.values = nn.Parameter(torch.randn(states, generator=generator, dtype=torch.float64))

    def unroll(self, inputs: StepInput, state: torch.Tensor) -> StepOutput:
        index = inputs.observation[..., 0].long()
        return StepOutput(self.logits[index], self.values[index], state)

    def act(self, inputs: StepInput, state: torch.Tensor, *, column: str = "act") -> StepOutput:
        return self.unroll(inputs, state)

    def evaluated_columns(self, *, in_training: bool) -> tuple[str, ...]:
        return ("",)


def make_batch(network: TableNetwork, **changes: torch.Tensor) -> Batch:
    """Every observation is a state of its own; behaviour logits and values are those of the network."""
    generator = torch.Generator().manual_seed(0)
    observation = torch.arange((T + 1) * B).reshape(T + 1, B, 1).float()
    index = observation[:-1, :, 0].long()
    batch = Batch(
        observation=observation,
        first=torch.zeros(T + 1, B, dtype=torch.bool),
        last_action=torch.zeros(T + 1, B, dtype=torch.int64),
        last_reward=torch.zeros(T + 1, B),
        core_state=torch.zeros(B, 0),
        action=torch.randint(A, (T, B), generator=generator),
        reward=torch.randn(T, B, generator=generator, dtype=torch.float64),
        discount=torch.full((T, B), 0.9, dtype=torch.float64),
        valid=torch.ones(T, B, dtype=torch.bool),
        mask=torch.ones(B, A, dtype=torch.bool),
        behaviour_policy=network.logits[index].detach(),
        behaviour_value=network.values[index].detach(),
        is_replay=torch.tensor([False, True, False, True]),
    )
    return replace(batch, **changes)


@pytest.fixture
def network() -> TableNetwork:
    return TableNetwork((T + 1) * B)


def test_cloning_targets_are_aligned_in_time(network: TableNetwork) -> None:
    # Stored outputs of the very same network at the very same observations: nothing to clone.
    losses = Clear().losses(network, make_batch(network))
    assert losses["policy_cloning"].item() == pytest.approx(0, abs=1e-12)
    assert losses["value_cloning"].item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("name", ["behaviour_policy", "behaviour_value"])
@pytest.mark.parametrize("shift", [-1, 1])
def test_cloning_notices_targets_that_are_one_step_off(network: TableNetwork, name: str, shift: int) -> None:
    batch = make_batch(network)
    losses = Clear().losses(network, replace(batch, **{name: getattr(batch, name).roll(shift, 0)}))
    assert losses["policy_cloning" if name == "behaviour_policy" else "value_cloning"].item() > 0.1


def test_only_replay_is_cloned(network: TableNetwork) -> None:
    batch = make_batch(network)
    drifted = replace(batch, behaviour_value=batch.behaviour_value + 1.0)
    assert Clear().losses(network, drifted)["value_cloning"].item() == pytest.approx(2 * T)
    new_only = replace(drifted, is_replay=torch.zeros(B, dtype=torch.bool))
    assert Clear().losses(network, new_only)["value_cloning"].item() == 0


def test_policy_gradient_value_and_entropy_apply_to_new_and_replay_alike(network: TableNetwork) -> None:
    batch = make_batch(network)
    all_new = replace(batch, is_replay=torch.zeros(B, dtype=torch.bool))
    for name in ("policy_gradient", "value", "entropy"):
        assert Clear().losses(network, batch)[name] == Clear().losses(network, all_new)[name]


def test_kl_is_from_behaviour_to_policy() -> None:
    # KL[mu||pi] with mu = (1/2, 1/2), pi = (3/4, 1/4): 0.5 ln(2/3) + 0.5 ln 2 = 0.5 ln(4/3); the reverse differs.
    mu = MaskedCategorical(torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool))
    pi = MaskedCategorical(torch.log(torch.tensor([[0.75, 0.25]])), torch.ones(1, 2, dtype=torch.bool))
    assert policy_cloning_loss(mu, pi).item() == pytest.approx(0.5 * torch.log(torch.tensor(4 / 3)).item())
    assert policy_cloning_loss(pi, mu).item() == pytest.approx(0.130812, abs=1e-6)


def test_value_losses_are_squares() -> None:
    assert value_loss(torch.tensor(3.0), torch.tensor(1.0)).item() == 4.0
    assert value_cloning_loss(torch.tensor(3.0), torch.tensor(1.0)).item() == 4.0


def test_entropy_loss_is_the_negative_entropy() -> None:
    policy = MaskedCategorical(torch.zeros(1, 4), torch.tensor([[True, True, False, True]]))
    assert entropy_loss(policy).item() == pytest.approx(-1.098612, abs=1e-6)


@pytest.mark.parametrize("loss", ["policy_gradient", "value", "entropy", "policy_cloning", "value_cloning"])
def test_gradient_of_every_loss(loss: str) -> None:
    """Analytic gradients against finite differences, V-trace's results held fixed where the paper holds them fixed."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(2, A, generator=generator, dtype=torch.float64, requires_grad=True)
    values = torch.randn(2, generator=generator, dtype=torch.float64, requires_grad=True)
    fixed = torch.randn(2, generator=generator, dtype=torch.float64)
    mask = torch.tensor([[True, True, True], [True, False, True]])
    mu = MaskedCategorical(torch.randn(2, A, generator=generator, dtype=torch.float64), mask)
    functions = {
        "policy_gradient": lambda x, v: policy_gradient_loss(
            MaskedCategorical(x, mask).log_prob(torch.tensor([1, 2])), fixed
        ),
        "value": lambda x, v: value_loss(v, fixed),
        "entropy": lambda x, v: entropy_loss(MaskedCategorical(x, mask)),
        "policy_cloning": lambda x, v: policy_cloning_loss(mu, MaskedCategorical(x, mask)),
        "value_cloning": lambda x, v: value_cloning_loss(v, fixed),
    }
    assert torch.autograd.gradcheck(lambda x, v: functions[loss](x, v) + 0 * v.sum() + 0 * x.sum(), (logits, values))


def test_masked_actions_carry_neither_loss_nor_gradient(network: TableNetwork) -> None:
    mask = torch.ones(B, A, dtype=torch.bool)
    mask[:, 2] = False
    batch = make_batch(network, mask=mask)
    batch = replace(batch, action=batch.action.clamp(max=1))
    sum(Clear().losses(network, batch).values(), torch.tensor(0.0)).backward()
    assert network.logits.grad is not None
    assert network.logits.grad[:, 2].abs().max() == 0
    assert network.logits.grad[:-B, :2].abs().min() > 0
    spiked = replace(batch, behaviour_policy=batch.behaviour_policy + 50.0 * ~mask)
    for name, loss in Clear().losses(network, spiked).items():
        torch.testing.assert_close(loss, Clear().losses(network, batch)[name])


def test_time_limits_bootstrap_and_deaths_do_not(network: TableNetwork) -> None:
    # Column 0 is cut at step 1: its last observation is o_2, the action at o_2 is ignored.
    batch = make_batch(network)
    valid = batch.valid.clone()
    valid[2, 0] = False
    truncated = replace(batch, valid=valid)
    value = network.values.detach()
    on_policy = dataclasses.replace(Clear(), entropy_weight=0.0)
    gradient_at_1 = value_gradient(on_policy, network, truncated)[1 * B]
    # v_1 = r_1 + 0.9 V(o_2): the value of the last observation, nothing behind it.
    expected = 2 * (value[1 * B] - (batch.reward[1, 0] + 0.9 * value[2 * B]))
    assert gradient_at_1.item() == pytest.approx(expected.item())

    discount = batch.discount.clone()
    discount[1, 0] = 0
    died = value_gradient(on_policy, network, replace(batch, discount=discount))[1 * B]
    assert died.item() == pytest.approx((2 * (value[1 * B] - batch.reward[1, 0])).item())


def value_gradient(method: Clear, network: TableNetwork, batch: Batch) -> torch.Tensor:
    network.zero_grad()
    method.losses(network, batch)["value"].backward()
    assert network.values.grad is not None
    return network.values.grad.clone()


def test_ignored_steps_are_in_no_loss(network: TableNetwork) -> None:
    batch = make_batch(network)
    nothing = replace(batch, valid=torch.zeros_like(batch.valid), behaviour_value=batch.behaviour_value + 1)
    assert all(loss.item() == 0 for loss in Clear().losses(network, nothing).values())


def test_losses_are_sums_over_time_and_batch(network: TableNetwork) -> None:
    batch = make_batch(network)
    whole = Clear().losses(network, batch)["entropy"]
    expected = -MaskedCategorical(network.logits[: T * B], torch.ones(A, dtype=torch.bool)).entropy().sum()
    torch.testing.assert_close(whole, expected)


def test_every_term_has_a_weight(network: TableNetwork) -> None:
    assert Clear().losses(network, make_batch(network)).keys() == Clear().weights().keys()


def test_clear_cannot_be_told_of_tasks(network: TableNetwork) -> None:
    assert Clear().needs_boundaries is False
    assert "needs_boundaries" not in {field.name for field in dataclasses.fields(Clear)}
    with pytest.raises(dataclasses.FrozenInstanceError):
        Clear().needs_boundaries = True  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AssertionError):
        Clear().visit(network, Visit(0, ("a",), 0, 0, 1))


def test_baseline_is_clear_without_replay() -> None:
    config = RunConfig(entropy_weight=0.3, replay_fraction=0.5)
    baseline = Baseline.from_config(config)
    assert baseline.replay_fraction == 0
    assert baseline.weights() == Clear.from_config(config).weights()


@pytest.mark.parametrize("method", [Clear, Baseline])
def test_a_weight_has_the_same_default_in_the_method_and_in_the_settings(method: type[Clear | Baseline]) -> None:
    assert method().weights() == method.from_config(RunConfig()).weights()
