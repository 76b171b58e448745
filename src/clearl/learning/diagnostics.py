"""Diagnostics of an update: policies, ratios, values and gradients, for new and replayed unrolls apart.

All of it is computed from the graph of the update itself: the method is not asked twice, no random number is drawn and
no result changes. The gradients take most of the time: one backward pass for each term and one for each half.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from clearl.nets.network import PolicyNetwork, StepInput, StepOutput
from clearl.types import Batch

Diagnostics = dict[str, dict[str, float]]
"""`new` and `replay`, where there are such unrolls, each with means over its steps: `entropy` of pi, `mean_rho` (pi/mu
cut at rho_bar), `clipped_share` of ratios above it, `kl` KL[mu||pi], `value_error` |V - v|; and `grad_norm` of its part
of the weighted loss, before clipping. `terms`: the same norm for each term. `between`: the `cosine` of the gradients of
the two halves. `method`: what the method says of itself."""


@contextmanager
def recorded_unrolls(network: PolicyNetwork) -> Iterator[list[StepOutput]]:
    """Record the outputs of `network.unroll` while the block runs."""
    outputs, unroll = list[StepOutput](), network.unroll

    def record(inputs: StepInput, state: Tensor) -> StepOutput:
        outputs.append(unroll(inputs, state))
        return outputs[-1]

    vars(network)["unroll"] = record  # shadows the method of the class
    try:
        yield outputs
    finally:
        del vars(network)["unroll"]


def diagnose(
    network: PolicyNetwork, batch: Batch, outputs: Sequence[StepOutput], losses: Mapping[str, Tensor],
    weights: Mapping[str, float], parameters: Sequence[Tensor], *, rho_bar: float,
) -> Diagnostics:  # fmt: skip
    """Diagnose an update before its backward pass: its `losses`, and the `outputs` that they come from.

    Only terms are looked at where the method has not unrolled the network over the batch, as when P&C compresses.
    """
    terms = {name: weights[name] * loss for name, loss in losses.items()}
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    found = {"terms": {name: _norm(_gradient(term, trained)) for name, term in terms.items()}}
    output = next((output for output in outputs if output.value.shape == batch.first.shape), None)
    if output is None:
        return found
    halves = {"new": ~batch.is_replay, "replay": batch.is_replay}
    halves = {name: columns for name, columns in halves.items() if (batch.valid & columns).any()}
    total = torch.stack(list(terms.values())).sum()
    gradients = {name: _half_gradient(total, output, columns, trained) for name, columns in halves.items()}
    statistics = _statistics(network, batch, output, rho_bar) | _value_error(output, losses)
    for name, columns in halves.items():
        chosen = batch.valid & columns
        means = {key: float(values[chosen].mean()) for key, values in statistics.items()}
        found[name] = means | {"grad_norm": _norm(gradients[name])}
    if len(gradients) == 2:
        found["between"] = {"cosine": _cosine(gradients["new"], gradients["replay"])}
    return found


@torch.no_grad()
def _statistics(network: PolicyNetwork, batch: Batch, output: StepOutput, rho_bar: float) -> dict[str, Tensor]:
    """Compute one number for each step, [T, B]."""
    policy = network.head.distribution(output.policy[:-1], batch.mask)
    behaviour = network.head.distribution(batch.behaviour_policy, batch.mask)
    ratios = torch.exp(policy.log_prob(batch.action) - behaviour.log_prob(batch.action))
    return {
        "entropy": policy.entropy(),
        "mean_rho": ratios.clamp(max=rho_bar),
        "clipped_share": (ratios > rho_bar).float(),
        "kl": behaviour.kl(policy),
    }


def _value_error(output: StepOutput, losses: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """|V - v|, [T, B], whatever the method's targets v are: half the slope of its term "value", a sum of (V - v)^2."""
    if "value" not in losses or not losses["value"].requires_grad:
        return {}
    (slope,) = torch.autograd.grad(losses["value"], output.value, retain_graph=True, materialize_grads=True)
    return {"value_error": slope[:-1].abs() / 2}


def _gradient(loss: Tensor, parameters: Sequence[Tensor]) -> list[Tensor | None]:
    if not loss.requires_grad:  # such as EWC's before there is an anchor
        return [None] * len(parameters)
    return list(torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True))


def _half_gradient(
    total: Tensor, output: StepOutput, columns: Tensor, parameters: Sequence[Tensor]
) -> list[Tensor | None]:
    """Return the gradient of what the loss owes to some columns [B] of the batch.

    Penalties on parameters owe to none.
    """
    ends = (output.policy, output.value)
    slopes = torch.autograd.grad(total, ends, retain_graph=True, materialize_grads=True)
    # Not `grad(ends, parameters, slopes)`: checking the shapes of `slopes`, torch would import SymPy, for 0.3 s.
    owed = (output.policy * slopes[0] * columns[:, None]).sum() + (output.value * slopes[1] * columns).sum()
    return _gradient(owed, parameters)


def _norm(gradient: Sequence[Tensor | None]) -> float:
    return float(torch.nn.utils.get_total_norm([part for part in gradient if part is not None]))


def _cosine(one: Sequence[Tensor | None], other: Sequence[Tensor | None]) -> float:
    """Return the cosine of two gradients; 0 where one of them is 0."""
    both = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    product, norms = float(sum((a * b).sum() for a, b in both)), _norm(one) * _norm(other)
    return product / norms if norms else 0.0
