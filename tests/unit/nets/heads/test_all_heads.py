"""What every head promises, whatever its actions are made of."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from clearl.nets.heads import Head, make_head
from clearl.nets.heads.categorical import MaskedCategorical
from clearl.nets.heads.gaussian import StdSettings
from clearl.spaces import ActionSpec

SPECS = {
    "choice": ActionSpec((4,)),
    "choices": ActionSpec((3, 2, 5)),
    "reals": ActionSpec((), (True, False)),
    "choice and reals": ActionSpec((3,), (True,)),
    "choices and reals": ActionSpec((2, 4), (False, True, True)),
}
COUNT = 6


@pytest.fixture(params=[(name, source) for name in SPECS for source in ("network", "free")], ids=str)
def head(request: pytest.FixtureRequest) -> Head:
    name, source = request.param
    return make_head(SPECS[name], StdSettings(source))


def policies(head: Head, seed: int = 0) -> torch.Tensor:
    raw = torch.randn(COUNT, head.raw_size, generator=torch.Generator().manual_seed(seed))
    return head.policy(raw)


def masks(head: Head) -> torch.Tensor:
    """The last option of every choice and the last real number are not there, where something is left."""
    mask = torch.ones(head.action.mask_size, dtype=torch.bool)
    mask[np.cumsum(head.action.choices) - 1] = False
    if head.action.reals > 1:
        mask[-1] = False
    return mask.expand(COUNT, -1)


def drawn(head: Head, policy: torch.Tensor, mask: torch.Tensor, seed: int = 0) -> torch.Tensor:
    uniform = torch.rand(COUNT, *head.uniform_shape, generator=torch.Generator().manual_seed(seed))
    return head.distribution(policy, mask).sample(uniform)


def test_sizes_are_those_that_the_spec_says(head: Head) -> None:
    policy = policies(head)
    assert policy.shape == (COUNT, head.action.policy_size) and policy.dtype == torch.float32
    action = drawn(head, policy, masks(head))
    assert action.shape == (COUNT, *head.action.shape)
    assert head.embed(action).shape == (COUNT, head.embedding_size)
    noise = head.noise(np.random.default_rng(0), masks(head).numpy(), 3)
    chosen = head.choose(policy.detach().numpy(), noise[0])
    assert chosen.shape == action.shape and chosen.dtype == head.action.dtype
    assert head.distribution(policy, masks(head)).mode().shape == action.shape


def test_the_same_numbers_give_the_same_actions(head: Head) -> None:
    policy, mask = policies(head), masks(head)
    assert torch.equal(drawn(head, policy, mask), drawn(head, policy, mask))
    assert not torch.equal(drawn(head, policy, mask).float(), drawn(head, policy, mask, seed=1).float())


def test_kl_is_zero_from_itself_and_positive_from_another(head: Head) -> None:
    ours, other = (head.distribution(policies(head, seed), masks(head)) for seed in (0, 1))
    torch.testing.assert_close(ours.kl(ours), torch.zeros(COUNT))
    assert (ours.kl(other) > 0).all()


def test_what_is_masked_has_no_influence_and_no_gradient_is_nan(head: Head) -> None:
    """A change of the numbers behind the mask changes nothing."""
    raw = (50 * torch.randn(COUNT, head.raw_size)).requires_grad_()
    mask, policy = masks(head), head.policy(raw)
    ours, other = head.distribution(policy, mask), head.distribution(policies(head), mask)
    action = drawn(head, policy.detach(), mask)
    total = ours.log_prob(action) + ours.entropy() + ours.kl(other) + other.kl(ours)
    (grad,) = torch.autograd.grad(total.sum(), raw)
    assert torch.isfinite(total).all() and torch.isfinite(grad).all()
    for start, size in zip(np.cumsum([0, *head.action.choices]), head.action.choices, strict=False):
        assert (grad[:, start + size - 1] == 0).all()


def test_an_expectation_under_samples_agrees_with_the_entropy_and_the_kl_before_squashing(head: Head) -> None:
    """E_pi[log pi - log rho] = KL[pi || rho], which checks log_prob, kl and sample against each other."""
    count = 20_000
    policy, other = policies(head)[:1], policies(head, 3)[:1]
    mask = masks(head)[:1]
    uniform = torch.rand(count, *head.uniform_shape, generator=torch.Generator().manual_seed(5))
    many = head.distribution(policy.expand(count, -1), mask)
    action = many.sample(uniform)
    gap = many.log_prob(action) - head.distribution(other.expand(count, -1), mask).log_prob(action)
    expected = head.distribution(policy, mask).kl(head.distribution(other, mask))
    assert gap.mean().item() == pytest.approx(expected.item(), abs=5 * gap.std().item() / count**0.5)


def test_acting_follows_the_distribution(head: Head) -> None:
    """The mean of log pi(a) over actions chosen with noise is that over actions by inversion."""
    count = 20_000
    policy, mask = policies(head)[:1].detach().expand(count, -1), masks(head)[:1].expand(count, -1)
    noise = head.noise(np.random.default_rng(1), mask.numpy(), 1)[0]
    chosen = torch.from_numpy(head.choose(policy.numpy(), noise))
    distribution = head.distribution(policy, mask)
    uniform = torch.rand(count, *head.uniform_shape, generator=torch.Generator().manual_seed(5))
    one, two = distribution.log_prob(chosen), distribution.log_prob(distribution.sample(uniform))
    assert one.mean().item() == pytest.approx(two.mean().item(), abs=6 * one.std().item() / count**0.5 + 1e-6)


def test_a_state_s_mask_is_exact_in_acting_too() -> None:
    for spec in (SPECS["choice"], SPECS["choices"], SPECS["choices and reals"]):
        head, count = make_head(spec), 2000
        rng = np.random.default_rng(0)
        mask = np.ones((count, spec.mask_size), bool)
        mask[:, 0] = False
        noise = head.noise(rng, np.ones((count, spec.mask_size), bool), 1)[0]
        policy = np.zeros((count, spec.policy_size), np.float32)
        policy[:, 0] = 1e4
        chosen = head.choose(policy, noise, mask).reshape(count, -1)
        assert (chosen[:, 0] != 0).all()


def test_a_choice_without_options_does_not_count() -> None:
    head = make_head(ActionSpec((3, 2)))
    mask = torch.tensor([True, True, True, False, False])
    policy = torch.randn(1, 5)
    ours = head.distribution(policy, mask)
    alone = MaskedCategorical(policy[:, :3])
    action = torch.tensor([[1, 0]])
    torch.testing.assert_close(ours.log_prob(action), alone.log_prob(action[:, 0]))
    torch.testing.assert_close(ours.entropy(), alone.entropy())
    noise = head.noise(np.random.default_rng(0), mask.numpy()[None], 1)[0]
    assert head.choose(policy.numpy(), noise)[0, 1] == 0
