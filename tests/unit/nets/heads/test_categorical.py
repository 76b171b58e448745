from __future__ import annotations

import math
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from clearl.nets.heads.categorical import CategoricalHead, MaskedCategorical
from clearl.spaces import ActionSpec

LOGITS = torch.tensor([[2.0, -1.0, 0.5, 3.0], [0.0, 100.0, -100.0, 7.0]], dtype=torch.float64)
HEAD = CategoricalHead(ActionSpec.discrete(5))
MASK = torch.tensor([[True, False, True, True], [True, True, True, False]])


def test_masked_equals_the_categorical_over_the_possible_actions() -> None:
    ours = MaskedCategorical(LOGITS, MASK)
    for row in range(2):
        theirs = torch.distributions.Categorical(logits=LOGITS[row][MASK[row]])
        torch.testing.assert_close(ours.probs[row][MASK[row]], theirs.probs)
        torch.testing.assert_close(ours.entropy()[row], theirs.entropy())
    assert (ours.probs[~MASK] == 0).all()


def test_kl_is_of_the_first_from_the_second() -> None:
    p, q = torch.tensor([0.5, 0.5]), torch.tensor([0.9, 0.1])
    kl = MaskedCategorical(p.log()).kl(MaskedCategorical(q.log()))
    assert kl.item() == pytest.approx(0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1))
    assert kl.item() != pytest.approx(MaskedCategorical(q.log()).kl(MaskedCategorical(p.log())).item(), rel=0.1)


def test_log_prob_picks_the_action_and_broadcasts_the_mask_over_time() -> None:
    distribution = MaskedCategorical(LOGITS.expand(3, 2, 4), MASK)
    action = torch.tensor([[0, 1], [2, 2], [3, 0]])
    expected = torch.stack([distribution.log_probs[t, b, action[t, b]] for t in range(3) for b in range(2)]).view(3, 2)
    torch.testing.assert_close(distribution.log_prob(action), expected)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_values_and_gradients_are_finite_and_right(scale: float) -> None:
    logits = (LOGITS * scale).requires_grad_()
    ours, other = MaskedCategorical(logits, MASK), MaskedCategorical(LOGITS.flip(-1), MASK)
    log_prob = ours.log_prob(torch.zeros(2).long())
    total = (ours.entropy() + ours.kl(other) + other.kl(ours) + log_prob).sum()
    (grad,) = torch.autograd.grad(total, logits)
    assert total.isfinite() and grad.isfinite().all()
    assert (grad[~MASK] == 0).all()


def test_gradients_by_finite_differences() -> None:
    other = MaskedCategorical(LOGITS.flip(-1), MASK)
    for function in (
        lambda x: MaskedCategorical(x, MASK).entropy(),
        lambda x: MaskedCategorical(x, MASK).kl(other),
        lambda x: other.kl(MaskedCategorical(x, MASK)),
        lambda x: MaskedCategorical(x, MASK).log_prob(torch.tensor([2, 0])),
    ):
        assert torch.autograd.gradcheck(function, (LOGITS.clamp(-3, 3).requires_grad_(),))


def test_samples_have_the_right_frequencies() -> None:
    distribution = MaskedCategorical(torch.tensor([1.0, 0.0, 2.0, -1.0]), torch.tensor([True, False, True, True]))
    uniform = (torch.arange(10_000) + 0.5) / 10_000
    spread = MaskedCategorical(distribution.log_probs.expand(10_000, 4)).sample(uniform)
    counts = torch.bincount(spread, minlength=4) / 10_000
    torch.testing.assert_close(counts, distribution.probs, atol=2e-4, rtol=0)


@given(
    logits=st.lists(st.floats(-60, 60, width=32), min_size=6, max_size=6),
    mask=st.lists(st.booleans(), min_size=6, max_size=6).filter(any),
    uniform=st.one_of(st.floats(0, 1, exclude_max=True), st.sampled_from([0.0, 1 - 2**-24, 1 - 2**-53])),
)
def test_a_masked_action_is_never_sampled(logits: list[float], mask: list[bool], uniform: float) -> None:
    distribution = MaskedCategorical(torch.tensor(logits), torch.tensor(mask))
    action = distribution.sample(torch.tensor(uniform, dtype=torch.float64))
    assert mask[int(action)]
    assert distribution.probs[action] > 0


def test_chosen_actions_have_the_right_frequencies() -> None:
    logits, mask = np.array([1.0, 0.0, 2.0, -1.0, 0.5], np.float32), np.array([True, False, True, True, True])
    draws = 200_000
    noise = HEAD.noise(np.random.default_rng(0), np.repeat(mask[None], draws // 20, 0), 20)
    counts = np.bincount(HEAD.choose(logits, noise).ravel(), minlength=5)
    expected = MaskedCategorical(torch.from_numpy(logits).double(), torch.from_numpy(mask)).probs.numpy() * draws
    assert counts[1] == 0 and stats.chisquare(counts[mask], expected[mask]).pvalue > 1e-3


@given(
    logits=st.lists(st.floats(-1e4, 1e4, width=32), min_size=6, max_size=6),
    mask=st.lists(st.booleans(), min_size=6, max_size=6).filter(any),
    times=st.lists(st.sampled_from([0.0, 2**-149, 1.0, 90.0]), min_size=6, max_size=6),
)
def test_a_masked_action_is_never_chosen(logits: list[float], mask: list[bool], times: list[float]) -> None:
    """Whatever the noise, at its ends too."""
    rng = cast(np.random.Generator, SimpleNamespace(standard_exponential=lambda *_: np.array([[times]], np.float32)))
    noise = HEAD.noise(rng, np.array([mask]), 1)
    assert mask[HEAD.choose(np.array([logits], np.float32), noise[0])[0]]
