"""The Gaussian head: closed forms, the squash in the entropy, limits of the standard deviation, its Fisher."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import distributions, nn

from clearl.errors import ConfigError
from clearl.methods.fisher import diagonal_fisher
from clearl.nets.heads.gaussian import GaussianHead, SquashedGaussian, StdSettings
from clearl.nets.network import StepInput, StepOutput
from clearl.spaces import ActionSpec

MEAN = torch.tensor([[0.3, -1.0, 2.0], [0.0, 4.0, -0.2]], dtype=torch.float64)
LOG_STD = torch.tensor([[-1.0, 0.2, 0.5], [0.0, -2.0, 0.6]], dtype=torch.float64)
BOUNDED = torch.tensor([True, False, True])
MASK = torch.tensor([[True, True, True], [True, False, True]])


def a_head(source: str = "network", dims: int = 2, **std: float) -> GaussianHead:
    return GaussianHead(ActionSpec((), (True,) * dims), StdSettings(source, **std))


def test_log_prob_and_kl_are_those_of_plain_gaussians_over_the_dimensions_in_the_mask() -> None:
    ours = SquashedGaussian(MEAN, LOG_STD, BOUNDED, MASK)
    other = SquashedGaussian(MEAN.flip(0), LOG_STD.flip(0), BOUNDED, MASK)
    theirs = distributions.Normal(MEAN, LOG_STD.exp())
    action = torch.tensor([[0.1, 0.2, 0.3], [1.0, 9.0, -1.0]], dtype=torch.float64)
    torch.testing.assert_close(ours.log_prob(action), (theirs.log_prob(action) * MASK).sum(-1))
    their_other = distributions.Normal(MEAN.flip(0), LOG_STD.flip(0).exp())
    expected = (distributions.kl_divergence(theirs, their_other) * MASK).sum(-1)
    torch.testing.assert_close(ours.kl(other), expected)
    assert (ours.kl(ours) == 0).all()


def test_entropy_is_that_of_the_squashed_action() -> None:
    """Against the density of the squashed action, averaged over many samples."""
    ours = SquashedGaussian(MEAN, LOG_STD, BOUNDED, MASK)
    x = distributions.Normal(MEAN, LOG_STD.exp()).sample((400_000,))
    log_density = distributions.Normal(MEAN, LOG_STD.exp()).log_prob(x)
    slope = 2 * (np.log(2) - x - nn.functional.softplus(-2 * x))
    sampled = -((log_density - torch.where(BOUNDED, slope, 0.0)) * MASK).mean(0).sum(-1)
    torch.testing.assert_close(ours.entropy(), sampled, rtol=0, atol=0.02)


def test_the_entropy_of_a_saturated_action_draws_its_mean_back() -> None:
    mean = torch.tensor([5.0], requires_grad=True)
    SquashedGaussian(mean, torch.zeros(1), torch.tensor([True]), None).entropy().backward()
    assert mean.grad is not None and mean.grad.item() < -0.5


def test_dimensions_outside_the_mask_have_no_influence_and_no_gradient() -> None:
    mean, log_std = MEAN.clone().requires_grad_(), LOG_STD.clone().requires_grad_()
    ours, other = SquashedGaussian(mean, log_std, BOUNDED, MASK), SquashedGaussian(MEAN + 1, LOG_STD, BOUNDED, MASK)
    action = ours.sample(torch.rand(2, 3))
    assert action[1, 1] == 0 and ours.mode()[1, 1] == 0
    (ours.log_prob(action) + ours.entropy() + ours.kl(other) + other.kl(ours)).sum().backward()
    for grad in (mean.grad, log_std.grad):
        assert grad is not None and grad[1, 1] == 0 and torch.isfinite(grad).all()


def test_samples_follow_the_distribution_by_inversion_and_by_noise() -> None:
    head = a_head(dims=1)
    policy = torch.tensor([[0.7, -0.5]])
    uniform = (torch.arange(20_000) + 0.5).unsqueeze(1) / 20_000
    inverted = head.distribution(policy.expand(20_000, 2)).sample(uniform).numpy()
    noise = head.noise(np.random.default_rng(0), np.ones((20_000, 1), bool), 1)[0]
    chosen = head.choose(policy.expand(20_000, 2).numpy(), noise)
    for actions in (inverted, chosen):
        assert actions.mean() == pytest.approx(0.7, abs=0.02) and actions.std() == pytest.approx(np.exp(-0.5), rel=0.02)
    ends = head.distribution(policy.expand(2, 2)).sample(torch.tensor([[0.0], [1.0]]))
    assert torch.isfinite(ends).all()


def test_a_dimension_that_a_task_does_not_have_is_chosen_as_zero() -> None:
    head = a_head(dims=2)
    mask = np.array([[True, False]])
    noise = head.noise(np.random.default_rng(0), mask, 3)
    action = head.choose(np.full((1, 4), 5.0, np.float32), noise[0])
    assert action.dtype == np.float32 and action[0, 0] != 0 and action[0, 1] == 0


@pytest.mark.parametrize("source", ["network", "free"])
def test_the_standard_deviation_starts_where_it_is_told_and_stays_within_its_limits(source: str) -> None:
    head = a_head(source, initial=0.4, floor=0.1, ceiling=1.5)
    layer = nn.Linear(3, head.raw_size)
    nn.init.zeros_(layer.bias)
    head.initialise(layer, torch.Generator().manual_seed(0))
    policy = head.policy(layer(torch.randn(5, 3)))
    assert policy.shape == (5, head.action.policy_size)
    torch.testing.assert_close(policy[:, 2:].exp(), torch.full((5, 2), 0.4), rtol=0.02, atol=0)
    for extreme in (-50.0, 50.0):
        raw = torch.full((1, head.raw_size), extreme)
        if head.free_std is not None:
            nn.init.constant_(head.free_std, extreme)
        std = head.policy(raw)[:, 2:].exp()
        assert (std >= 0.1 - 1e-6).all() and (std <= 1.5 + 1e-6).all()
        (entropy,) = head.distribution(head.policy(raw)).entropy()
        assert torch.isfinite(entropy)


def test_limits_that_leave_no_room_are_refused() -> None:
    with pytest.raises(ConfigError, match="action_std_floor < action_std_initial < action_std_ceiling"):
        StdSettings(initial=0.5, floor=0.5)


def test_a_softened_policy_has_the_variance_times_the_temperature() -> None:
    ours = SquashedGaussian(MEAN, LOG_STD, BOUNDED, None)
    wide = SquashedGaussian(MEAN, LOG_STD + 0.5 * np.log(4.0), BOUNDED, None)
    torch.testing.assert_close(ours.softened(4.0).kl(wide), torch.zeros(2, dtype=torch.float64))


class LinearGaussian(nn.Module):
    """One linear layer: its Fisher can be written down."""

    core_size = 0

    def __init__(self, inputs: int, head: GaussianHead) -> None:
        super().__init__()
        self.policy, self.head = nn.Linear(inputs, head.raw_size), head

    def unroll(self, inputs: StepInput, state: torch.Tensor) -> StepOutput:
        raw = self.policy(inputs.observation)
        return StepOutput(self.head.policy(raw), raw[..., 0], state)

    def act(self, inputs: StepInput, state: torch.Tensor, *, column: str = "act") -> StepOutput:
        return self.unroll(inputs, state)

    def evaluated_columns(self, *, in_training: bool) -> tuple[str, ...]:
        return ("",)


def some_windows(observation: torch.Tensor) -> dict[str, torch.Tensor]:
    count = len(observation)
    return {
        "observation": observation,
        "last_action": torch.zeros(count, 1, 2),
        "last_reward": torch.zeros(count, 1),
        "first": torch.zeros(count, 1, dtype=torch.bool),
        "valid": torch.ones(count, 1, dtype=torch.bool),
        "mask": torch.ones(count, 2, dtype=torch.bool),
        "core_state": torch.zeros(count, 0),
    }


def test_its_fisher_is_the_closed_form() -> None:
    """E[(d log pi / d W_ij)^2] = E[x_j^2] / sigma_i^2, and 2 (d log sigma / d s)^2 for the free parameter s."""
    torch.manual_seed(0)
    head = a_head("free", dims=2, initial=0.5, floor=0.1, ceiling=2.0)
    network = LinearGaussian(3, head)
    nn.init.constant_(head.free_std, 0.0)  # type: ignore[arg-type]  # it is there: the source is "free"
    observation = torch.randn(50, 1, 3)
    found = diagonal_fisher(network, some_windows(observation), np.random.default_rng(0))
    squares = observation.squeeze(1).square().mean(0)
    torch.testing.assert_close(found["policy.weight"], (squares / 0.25).expand(2, 3))
    torch.testing.assert_close(found["policy.bias"], torch.full((2,), 4.0))
    share = np.log(0.5 / 0.1) / np.log(20)
    slope = np.log(20) * share * (1 - share)
    torch.testing.assert_close(found["head.free_std"], torch.full((2,), 2 * slope**2), check_dtype=False)


def test_its_fisher_by_layers_is_that_of_each_step_and_of_many_samples() -> None:
    torch.manual_seed(0)
    network, observation = (
        LinearGaussian(3, a_head("network", dims=2, initial=0.5, floor=0.1, ceiling=2.0)),
        torch.randn(4, 1, 3),
    )
    windows = some_windows(observation)
    windows["mask"][2, 1] = False
    windows["valid"][3] = False
    found = diagonal_fisher(network, windows, np.random.default_rng(0))
    parameters = dict(network.named_parameters())
    sums = {name: torch.zeros_like(p) for name, p in parameters.items()}
    draws = 3000
    for step in range(3):
        policy = network.head.distribution(
            network.head.policy(network.policy(observation[step, 0])), windows["mask"][step]
        )
        for _ in range(draws):
            log_prob = policy.log_prob(policy.sample(torch.rand(2)))
            grads = torch.autograd.grad(log_prob, list(parameters.values()), retain_graph=True)
            for total, grad in zip(sums.values(), grads, strict=True):
                total += grad.square() / (3 * draws)
    for name, sampled in sums.items():
        torch.testing.assert_close(found[name], sampled, rtol=0.15, atol=0.02)
