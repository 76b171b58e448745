"""V-trace against the paper's double sum, written out literally, and against numbers worked out by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from double_sum import double_sum

from clearl.methods.corrections import Trace, Vtrace
from clearl.nets.heads.categorical import MaskedCategorical


def vtrace(
    *, behaviour_log_probs, target_log_probs, discounts, rewards, values, bootstrap_value, rho_bar=1.0, c_bar=1.0
):
    """V-trace of log-probabilities; the policies themselves do not matter to it."""
    anything = MaskedCategorical(torch.zeros(1))
    ratios = torch.exp(target_log_probs - behaviour_log_probs)
    return Vtrace(rho_bar, c_bar)(Trace(ratios, discounts, rewards, values, bootstrap_value, anything, anything))


@pytest.mark.parametrize(
    ("steps", "rho_bar", "c_bar"), list(itertools.product([1, 2, 7, 20], [0.5, 1.0, 3.0], [0.7, 1.0, 2.0]))
)
def test_equals_the_papers_double_sum(steps: int, rho_bar: float, c_bar: float) -> None:
    rng = np.random.default_rng(steps)
    log_mu, log_pi = rng.normal(-1, 1, (2, steps, 3))
    gamma = np.where(rng.random((steps, 3)) < 0.2, 0.0, 0.97)
    r, v, v_last = rng.normal(size=(steps, 3)), rng.normal(size=(steps, 3)), rng.normal(size=3)
    targets, advantages = vtrace(
        behaviour_log_probs=torch.from_numpy(log_mu),
        target_log_probs=torch.from_numpy(log_pi),
        discounts=torch.from_numpy(gamma),
        rewards=torch.from_numpy(r),
        values=torch.from_numpy(v),
        bootstrap_value=torch.from_numpy(v_last),
        rho_bar=rho_bar,
        c_bar=c_bar,
    )
    for b in range(3):
        ratio = np.exp(log_pi[:, b] - log_mu[:, b])
        rho, c = np.minimum(rho_bar, ratio), np.minimum(c_bar, ratio)
        expected_targets, expected_advantages = double_sum(rho, c, gamma[:, b], r[:, b], v[:, b], v_last[b])
        np.testing.assert_allclose(targets[:, b], expected_targets, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(advantages[:, b], expected_advantages, rtol=1e-12, atol=1e-12)


def test_golden_numbers_on_policy() -> None:
    # On policy with rho = c = 1: n-step returns. gamma 0.5, rewards 1 2 4, V = 1 1 1, bootstrap 8.
    # v_2 = 4 + 0.5*8 = 8, v_1 = 2 + 0.5*8 = 6, v_0 = 1 + 0.5*6 = 4; advantages v_s - V_s.
    zeros = torch.zeros(3, 1)
    targets, advantages = vtrace(
        behaviour_log_probs=zeros,
        target_log_probs=zeros,
        discounts=torch.full((3, 1), 0.5),
        rewards=torch.tensor([[1.0], [2.0], [4.0]]),
        values=torch.ones(3, 1),
        bootstrap_value=torch.tensor([8.0]),
    )
    assert targets.flatten().tolist() == [4.0, 6.0, 8.0]
    assert advantages.flatten().tolist() == [3.0, 5.0, 7.0]


def test_golden_numbers_off_policy() -> None:
    # pi/mu = 1/2, 2 with bars at 1: rho = c = 0.5, 1. gamma 1, rewards 1 1, V = 2 2, bootstrap 4.
    # delta_1 = 1*(1 + 4 - 2) = 3, v_1 = 5; delta_0 = 0.5*(1 + 2 - 2) = 0.5, v_0 = 2 + 0.5 + 0.5*3 = 4.
    # advantages: 0.5*(1 + 5 - 2) = 2 and 1*(1 + 4 - 2) = 3.
    targets, advantages = vtrace(
        behaviour_log_probs=torch.log(torch.tensor([[0.8], [0.4]])),
        target_log_probs=torch.log(torch.tensor([[0.4], [0.8]])),
        discounts=torch.ones(2, 1),
        rewards=torch.ones(2, 1),
        values=torch.full((2, 1), 2.0),
        bootstrap_value=torch.tensor([4.0]),
    )
    torch.testing.assert_close(targets.flatten(), torch.tensor([4.0, 5.0]))
    torch.testing.assert_close(advantages.flatten(), torch.tensor([2.0, 3.0]))


def test_termination_cuts_the_trace() -> None:
    # gamma_0 = 0: whatever comes after the terminal step does not reach v_0.
    for later in (0.0, 100.0):
        targets, advantages = vtrace(
            behaviour_log_probs=torch.zeros(2, 1),
            target_log_probs=torch.zeros(2, 1),
            discounts=torch.tensor([[0.0], [0.9]]),
            rewards=torch.tensor([[2.0], [later]]),
            values=torch.tensor([[0.3], [0.7]]),
            bootstrap_value=torch.tensor([5.0]),
        )
        assert targets[0, 0].item() == pytest.approx(2.0)
        assert advantages[0, 0].item() == pytest.approx(1.7)


def test_no_gradient_flows_through_the_results() -> None:
    leaf = torch.rand(4, 2, requires_grad=True)
    targets, advantages = vtrace(
        behaviour_log_probs=leaf,
        target_log_probs=leaf,
        discounts=leaf,
        rewards=leaf,
        values=leaf,
        bootstrap_value=leaf[0],
    )
    assert not targets.requires_grad and not advantages.requires_grad


def test_shapes_are_checked() -> None:
    ok = torch.zeros(3, 2)
    with pytest.raises(AssertionError, match=r"expected \(3, 2\)"):
        vtrace(
            behaviour_log_probs=ok,
            target_log_probs=ok,
            discounts=ok.T,
            rewards=ok,
            values=ok,
            bootstrap_value=ok[0],
        )
