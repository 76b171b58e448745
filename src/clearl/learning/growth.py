"""The tensors of a learner, fitted to a network that has grown: weights, moments, the method's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from clearl.learning.learner import Learner
from clearl.nets.growth import NetworkGrowth
from clearl.nets.network import as_module

Tensors = Mapping[str, Tensor]


def grown_tensors(
    tensors: Tensors, parameters: Sequence[str], learner: Learner, growth: NetworkGrowth, *, optimizer: bool,
    method: bool,
) -> dict[str, Tensor]:  # fmt: skip
    """Fit `tensors` of a learner whose network has not grown yet to `learner`, whose network has.

    `parameters` are the names of the old network's, in their order. Optimiser and method are left out unless asked for.
    """
    grown = {f"network/{name}": tensor for name, tensor in growth.state(_below(tensors, "network/")).items()}
    if optimizer:
        states = _optimizer_state(_below(tensors, "optimizer/"), tensors, parameters, learner, growth)
        grown |= {f"optimizer/{name}": tensor for name, tensor in states.items()}
    if method:
        states = learner.method.grown(_below(tensors, "method/"), growth)
        grown |= {f"method/{name}": tensor for name, tensor in states.items()}
    return grown


def _optimizer_state(
    states: Tensors, tensors: Tensors, parameters: Sequence[str], learner: Learner, growth: NetworkGrowth
) -> dict[str, Tensor]:
    """Return the moments at the places of their parameters; new entries start as before a first step."""
    places = {name: index for index, (name, _) in enumerate(as_module(learner.network).named_parameters())}
    grown = {}
    for key, tensor in states.items():
        index, _, kind = key.partition("/")
        name = parameters[int(index)]
        fill = learner.optimizer.initial(places[name])[kind].cpu()
        if growth.has_grown(name):
            # There may be one count of steps for the whole parameter; the new part has made no step.
            tensor = tensor.expand(tensors[f"network/{name}"].shape)
            fill = fill.expand(growth.fresh[name].shape)
        grown[f"{places[name]}/{kind}"] = growth.padded(name, tensor, fill)
    return grown


def _below(tensors: Tensors, prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
