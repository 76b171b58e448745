"""Leaky V-trace and LASER's trust region against their definitions, written out literally in float64."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from double_sum import double_sum

from clearl.methods.corrections import LeakyVtrace, Trace, TrustRegion, Vtrace, state_divergence
from clearl.nets.heads.categorical import MaskedCategorical
from clearl.nets.heads.gaussian import StdSettings
from clearl.nets.heads.joint import JointHead
from clearl.spaces import ActionSpec

ACTIONS = 4


def literal_divergence(pi, mu, rho_bar):
    """KL[pi || pi~] of one state, by sums over its actions."""
    implied = [min(rho_bar * mu[a], pi[a]) for a in range(len(pi))]
    implied = [part / sum(implied) for part in implied]
    return sum(pi[a] * np.log(pi[a] / implied[a]) for a in range(len(pi)) if pi[a] > 0)


def a_trace(steps: int, seed: int, apart: float = 1.5) -> tuple[Trace, dict[str, np.ndarray]]:
    """Random experience in three columns; `apart` says how far pi is from mu."""
    rng = np.random.default_rng(seed)
    mu_logits = rng.normal(size=(steps, 3, ACTIONS))
    pi_logits = mu_logits + apart * rng.normal(size=(steps, 3, ACTIONS))
    pi, mu = (np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in (pi_logits, mu_logits))
    action = rng.integers(ACTIONS, size=(steps, 3))
    taken = np.ix_(range(steps), range(3))
    numbers = {
        "pi": pi, "mu": mu, "ratio": pi[(*taken, action)] / mu[(*taken, action)],
        "gamma": np.where(rng.random((steps, 3)) < 0.2, 0.0, 0.97),
        "r": rng.normal(size=(steps, 3)), "v": rng.normal(size=(steps, 3)), "last": rng.normal(size=3),
    }  # fmt: skip
    ratios, discounts, rewards, values, last = (
        torch.from_numpy(numbers[name]) for name in ("ratio", "gamma", "r", "v", "last")
    )
    policy, behaviour = (MaskedCategorical(torch.from_numpy(logits)) for logits in (pi_logits, mu_logits))
    return Trace(ratios, discounts, rewards, values, last, policy, behaviour), numbers


@pytest.mark.parametrize("rho_bar", [0.5, 1.0, 3.0])
def test_the_divergence_of_a_state_is_that_from_the_implied_policy(rho_bar: float) -> None:
    trace, numbers = a_trace(20, seed=1)
    found = state_divergence(trace.policy, trace.behaviour, rho_bar).numpy()
    for s, b in itertools.product(range(20), range(3)):
        expected = literal_divergence(numbers["pi"][s, b], numbers["mu"][s, b], rho_bar)
        assert found[s, b] == pytest.approx(expected, rel=1e-12, abs=1e-14)


def test_the_divergence_by_hand() -> None:
    # pi = (1/2, 1/2), mu = (9/10, 1/10), rho_bar 1: min = (1/2, 1/10), pi~ = (5/6, 1/6),
    # KL[pi || pi~] = 1/2 log(3/5) + 1/2 log 3 = 1/2 log(9/5).
    pi, mu = (MaskedCategorical(torch.tensor(p, dtype=torch.float64).log()) for p in ([0.5, 0.5], [0.9, 0.1]))
    assert state_divergence(pi, mu, 1.0).item() == pytest.approx(0.5 * np.log(9 / 5), rel=1e-12)
    assert state_divergence(mu, mu, 1.0).item() == pytest.approx(0.0, abs=1e-15)


def test_masked_actions_do_not_matter_to_the_divergence() -> None:
    mask = torch.tensor([True, True, False])
    pi, mu = (MaskedCategorical(torch.tensor([*p, 5.0]).log(), mask) for p in ([0.5, 0.5], [0.9, 0.1]))
    assert state_divergence(pi, mu, 1.0).item() == pytest.approx(0.5 * np.log(9 / 5), rel=1e-6)


@pytest.mark.parametrize(("steps", "rho_bar", "c_bar"), list(itertools.product([1, 2, 7, 20], [1.0, 3.0], [0.7, 1.0])))
def test_the_trust_region_equals_its_double_sum(steps: int, rho_bar: float, c_bar: float) -> None:
    trace, numbers = a_trace(steps, seed=steps)
    everywhere = [[literal_divergence(*pair, rho_bar) for pair in zip(*row, strict=True)]
                  for row in zip(numbers["pi"], numbers["mu"], strict=True)]  # fmt: skip
    threshold = float(np.median(everywhere)) + 1e-9
    targets, advantages = TrustRegion(rho_bar, c_bar, threshold)(trace)
    rejected = 0
    for b in range(3):
        pi, mu, ratio, gamma, r, v = (numbers[name][:, b] for name in ("pi", "mu", "ratio", "gamma", "r", "v"))
        accepted = np.array([literal_divergence(pi[s], mu[s], rho_bar) < threshold for s in range(steps)], float)
        rejected += int((1 - accepted).sum())
        rho, c = np.minimum(rho_bar, ratio), np.minimum(c_bar, ratio)
        expected = double_sum(accepted * rho, accepted * c, gamma, r, v, numbers["last"][b])
        np.testing.assert_allclose(targets[:, b], expected[0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(advantages[:, b], expected[1], rtol=1e-12, atol=1e-12)
        assert np.all(targets.numpy()[accepted == 0, b] == v[accepted == 0]), "its target is its value, to the bit"
    assert 0 < rejected < 3 * steps, "the threshold divides the steps"


def test_without_a_closed_form_the_trust_region_goes_by_the_divergence_from_mu() -> None:
    """Two choices and a real number: KL[pi || mu] is the sum of theirs, each written out."""
    rng, steps = np.random.default_rng(5), 30
    logits = rng.normal(size=(2, steps, 3, 5))  # of pi and mu, for a choice of three and one of two
    mean, log_std = rng.normal(size=(2, steps, 3, 1)), rng.uniform(-1, 0.5, (2, steps, 3, 1))
    head = JointHead(ActionSpec((3, 2), (True,)), StdSettings())
    stored = np.concatenate([logits, mean, log_std], -1)
    pi, mu = (head.distribution(torch.from_numpy(each)) for each in stored)
    expected = np.zeros((steps, 3))
    for options in (slice(0, 3), slice(3, 5)):
        p, q = (np.exp(x[..., options]) / np.exp(x[..., options]).sum(-1, keepdims=True) for x in logits)
        expected += (p * np.log(p / q)).sum(-1)
    (m, n), (s, t) = mean[..., 0], np.exp(log_std[..., 0])
    expected += np.log(t / s) + (s**2 + (m - n) ** 2) / (2 * t**2) - 0.5
    np.testing.assert_allclose(state_divergence(pi, mu, 1.0), expected, rtol=1e-12)
    trace, numbers = a_trace(steps, seed=6)
    threshold = float(np.median(expected)) + 1e-9
    targets, _ = TrustRegion(1.0, 1.0, threshold)(replace(trace, policy=pi, behaviour=mu))
    for b in range(3):
        ratio, gamma, r, v = (numbers[name][:, b] for name in ("ratio", "gamma", "r", "v"))
        weights = (expected[:, b] < threshold) * np.minimum(1.0, ratio)
        literal, _ = double_sum(weights, weights, gamma, r, v, numbers["last"][b])
        np.testing.assert_allclose(targets[:, b], literal, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("leak", [0.0, 0.3, 1.0])
def test_leaky_vtrace_equals_its_double_sum(leak: float) -> None:
    trace, numbers = a_trace(7, seed=4)
    targets, advantages = LeakyVtrace(1.0, 0.8, leak)(trace)
    for b in range(3):
        ratio, gamma, r, v = (numbers[name][:, b] for name in ("ratio", "gamma", "r", "v"))
        rho, c = ((1 - leak) * np.minimum(bar, ratio) + leak * ratio for bar in (1.0, 0.8))
        expected = double_sum(rho, c, gamma, r, v, numbers["last"][b])
        np.testing.assert_allclose(targets[:, b], expected[0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(advantages[:, b], expected[1], rtol=1e-12, atol=1e-12)


def test_both_are_vtrace_where_nothing_is_rejected_and_nothing_leaks() -> None:
    trace, _ = a_trace(9, seed=2)
    for other in (LeakyVtrace(1.0, 1.0, 0.0), TrustRegion(1.0, 1.0, 1e6)):
        for found, expected in zip(other(trace), Vtrace()(trace), strict=True):
            assert torch.equal(found, expected)
