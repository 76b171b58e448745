"""Continual backprop (Dohare et al. 2024), around any base method: units of little use are replaced by fresh ones.

A unit's utility is the running mean of |its output| times the sum of |its outgoing weights|. Of the units that are old
enough, a small share is replaced at every update, those of the least utility: incoming weights are drawn anew, outgoing
ones set to 0 so that nothing changes yet, and the optimiser forgets both. It needs no task boundaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.methods.method import Method, OptimizerState, Wrapper, cannot_grow
from clearl.methods.settings import ContinualBackpropSettings
from clearl.nets.growth import NetworkGrowth
from clearl.nets.network import ActorCritic, PolicyNetwork
from clearl.nets.records import Encoders
from clearl.nets.stages import Conv, Dense
from clearl.nets.torsos import Torso
from clearl.seeding import derive
from clearl.types import Batch


@dataclass
class Layer:
    """The units of one stage of a torso: where their weights are, and how useful they have been."""

    stage: Conv | Dense
    outgoing: Sequence[Tensor]
    """Weights [out, in, ...] of the layers that read the units."""
    inputs_per_unit: int
    """Columns of `outgoing` for each unit: one, or the number of places where an image is flattened."""
    start: int
    """The first of these columns: not 0 where the features of several parts are joined."""
    utility: Tensor
    age: Tensor
    """Updates since each unit was made."""
    owed: float = 0.0
    """Replacements that have fallen due, a fraction of a unit at each update."""
    activity: Tensor | None = None
    """Mean |output| of each unit in the last batch."""

    @property
    def units(self) -> int:
        return self.stage.out_shape[0]

    def columns(self, unit: int) -> tuple[slice, slice]:
        """Return the index of a unit's outgoing weights."""
        first = self.start + unit * self.inputs_per_unit
        return slice(None), slice(first, first + self.inputs_per_unit)

    def reach(self) -> Tensor:
        """Return the sum of |outgoing weights| of each unit."""
        # The reader has other inputs besides: other parts, or the last action and reward of a recurrent core.
        own = slice(self.start, self.start + self.units * self.inputs_per_unit)
        sums = [w.detach().abs().transpose(0, 1)[own].flatten(1).sum(1) for w in self.outgoing]
        return torch.stack(sums).sum(0).view(self.units, -1).sum(1)


class ContinualBackprop(Wrapper):
    """The base method, with a share of the torso's units replaced during training."""

    label = "Continual backprop"
    settings = ContinualBackpropSettings

    def __init__(
        self, base: Method, *, rate: float = ContinualBackpropSettings.cbp_replacement_rate,
        maturity_updates: int = ContinualBackpropSettings.cbp_maturity_updates,
        decay: float = ContinualBackpropSettings.cbp_decay, seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(base)
        self.rate, self.maturity_updates, self.decay, self.seed = rate, maturity_updates, decay, seed
        self.layers: list[Layer] = []
        self.replaced = 0

    @classmethod
    def around(cls, base: Method, config: RunConfig) -> ContinualBackprop:
        return cls(
            base, rate=config.cbp_replacement_rate, maturity_updates=config.cbp_maturity_updates,
            decay=config.cbp_decay, seed=derive(config.seed, "continual-backprop"),
        )  # fmt: skip

    def build_network(self, build: Callable[[], PolicyNetwork]) -> PolicyNetwork:
        network = super().build_network(build)
        self.layers = _layers(network)
        return network

    def losses(self, network: PolicyNetwork, batch: Batch) -> dict[str, Tensor]:
        with self._recorded():
            return super().losses(network, batch)

    def after_step(self, network: PolicyNetwork, optimizer: OptimizerState) -> None:
        super().after_step(network, optimizer)
        for layer in self.layers:
            self._measure(layer)
            for unit in self._due(layer):
                self._replace(layer, unit, optimizer)

    def diagnostics(self) -> dict[str, float]:
        return {**super().diagnostics(), "replaced_units": float(self.replaced)}

    def own_tensors(self) -> dict[str, Tensor]:
        named = enumerate(self.layers)
        return {f"{name}/{i}": getattr(layer, name) for i, layer in named for name in ("utility", "age")}

    def own_state(self) -> dict[str, Any]:
        return {"owed": [layer.owed for layer in self.layers], "replaced": self.replaced}

    def grown_own(self, tensors: Mapping[str, Tensor], growth: NetworkGrowth) -> dict[str, Tensor]:
        """Return the tensors unchanged: a torso grows in its inputs and keeps its units.

        Refused if it gets further encoders: the positions of their units among the others are not known.
        """
        own = self.own_tensors()
        if tensors.keys() != own.keys() or any(tensors[name].shape != tensor.shape for name, tensor in own.items()):
            raise cannot_grow(self)
        return dict(tensors)

    def restore_own(self, network: PolicyNetwork, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        self.replaced = int(state["replaced"])
        for i, (layer, owed) in enumerate(zip(self.layers, state["owed"], strict=True)):
            layer.utility, layer.age, layer.owed = tensors[f"utility/{i}"], tensors[f"age/{i}"], float(owed)

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        """Note the activity of every layer while the block runs."""

        def note(layer: Layer) -> Callable[..., None]:
            def hook(stage: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
                layer.activity = output.detach().abs().transpose(0, 1).flatten(1).mean(1)

            return hook

        handles = [layer.stage.register_forward_hook(note(layer)) for layer in self.layers]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @torch.no_grad()
    def _measure(self, layer: Layer) -> None:
        assert layer.activity is not None, "a method's losses unroll its network"
        layer.utility, layer.age = layer.utility.to(layer.activity.device), layer.age.to(layer.activity.device)
        layer.utility.lerp_((layer.activity * layer.reach()).float(), 1 - self.decay)
        layer.age.add_(1)

    def _due(self, layer: Layer) -> list[int]:
        """Return the units to replace now: of those that are old enough the least useful, as many as are owed."""
        mature = (layer.age > self.maturity_updates).nonzero().squeeze(1)
        layer.owed += self.rate * len(mature)
        count = min(int(layer.owed), len(mature))
        layer.owed -= count
        # A young unit's running mean is still near its start, 0.
        useful = layer.utility[mature] / (1 - self.decay ** layer.age[mature])
        return mature[useful.argsort(stable=True)[:count]].tolist()

    @torch.no_grad()
    def _replace(self, layer: Layer, unit: int, optimizer: OptimizerState) -> None:
        incoming, bias = layer.stage.linear.weight, cast(nn.Parameter, layer.stage.linear.bias)
        generator = torch.Generator().manual_seed(derive(self.seed, "unit", self.replaced))
        fresh = torch.empty(incoming[unit].shape).uniform_(-1, 1, generator=generator)
        incoming[unit] = (fresh * (3 / fresh.numel()) ** 0.5).to(incoming.device)  # as `nets.network.initialise` draws
        bias[unit] = 0.0
        norm = getattr(layer.stage, "norm", None)
        if norm is not None:
            norm.weight[unit], norm.bias[unit] = 1.0, 0.0
        for parameter in (incoming, bias, *(norm.parameters() if norm is not None else ())):
            optimizer.reset(parameter, unit)
        for parameter in layer.outgoing:
            parameter[layer.columns(unit)] = 0.0
            optimizer.reset(parameter, layer.columns(unit))
        layer.utility[unit] = layer.age[unit] = 0
        self.replaced += 1


def _layers(network: PolicyNetwork) -> list[Layer]:
    """Return the stages of a torso whose units can be replaced, each with the layers that read it."""
    if not isinstance(network, ActorCritic) or not isinstance(network.torso, Torso) or not network.torso.is_staged:
        raise ConfigError("continual-backprop replaces units of our own torsos, in a network of one column")
    first, *rest = network.torso.stages
    heads = [network.policy.weight, network.value.weight]
    readers = heads if network.core is None else [network.core.weight_input]
    if isinstance(first, Encoders):
        return [*_encoder_layers(first, cast(Dense, rest[0])), *_chain(rest, readers)]
    return list(_chain([first, *rest], readers))


def _encoder_layers(encoders: Encoders, joined: Dense) -> Iterator[Layer]:
    """Yield the layers of each part's encoder, whose features stand side by side in the input of `joined`."""
    start = 0
    for torso in (cast(Torso, image) for image in encoders.images):
        yield from _chain([*torso.stages], [joined.linear.weight], start)
        start += torso.out_size
    if encoders.vector is not None:
        yield from _chain([encoders.vector], [joined.linear.weight], start)


def _chain(stages: Sequence[nn.Module], readers: Sequence[Tensor], start: int = 0) -> Iterator[Layer]:
    """Yield the layers of stages, the last of which is read by `readers` from column `start` on."""
    for stage, reader in zip(stages, [*stages[1:], None], strict=True):
        if not isinstance(stage, Conv | Dense) or not isinstance(reader, Conv | Dense | None):
            continue  # a unit of a residual section is read in too many places
        if reader is None:
            outgoing, per_unit, first = readers, 1, start
        else:
            outgoing, per_unit, first = [reader.linear.weight], 1 if isinstance(reader, Conv) else reader.positions, 0
        units = stage.out_shape[0]
        yield Layer(stage, outgoing, per_unit, first, torch.zeros(units), torch.zeros(units))
