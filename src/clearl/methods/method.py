"""The seam between algorithms and everything else: `Method`, and `Wrapper` for those that add to another method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from torch import Tensor

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.nets.growth import NetworkGrowth
from clearl.nets.network import PolicyNetwork
from clearl.types import Batch, Visit

BASE = "base/"
"""Prefix of the base's tensors among those of a wrapper."""


class OptimizerState(Protocol):
    """The optimiser, as far as a method may touch it."""

    def reset(self, param: Tensor, index: Any = None) -> None:
        """Reset moments and step counts of a parameter, or of `param[index]` only."""
        ...


class Method(ABC):
    """An algorithm: which network it trains, by which losses, on which share of replay.

    Only `losses` and `weights` have no default. One instance builds the network and trains it.
    """

    label: ClassVar[str] = ""
    """The method's name in reports."""
    colour: ClassVar[str] = ""
    """Its colour in figures, as "#rrggbb"; empty for one that the report picks."""
    settings: ClassVar[type | None] = None
    """The dataclass of the settings that it declares; they are flags, keys of a file and attributes of the config."""
    needs_boundaries: bool = False
    """True if it must be told of tasks and switches. A method that does not is never given a `Visit`."""
    replay_fraction: float = 0.0
    """The share of each batch that is replay."""
    extra_frames_share: float = 0.0
    """Frames that it needs at the end of each visit on top of the visit's own, as a share of those (`Visit`)."""

    @classmethod
    def from_config(cls, config: RunConfig) -> Method:
        """Return the method with the settings of a run."""
        return cls()

    def build_network(self, build: Callable[[], PolicyNetwork]) -> PolicyNetwork:
        """Build the network to train, out of one or more plain ones."""
        return build()

    @abstractmethod
    def weights(self) -> Mapping[str, float]:
        """Return the weight of each term of the loss."""

    @abstractmethod
    def losses(self, network: PolicyNetwork, batch: Batch) -> dict[str, Tensor]:
        """Return the terms of the loss under the names of `weights`, each summed over time and batch."""

    def visit(self, network: PolicyNetwork, visit: Visit) -> None:
        """Called before every update with the position of training in the plan; only if `needs_boundaries`."""
        raise AssertionError(f"{type(self).__name__} is never told where training stands")

    def before_step(self, gradients: Mapping[str, Tensor]) -> None:  # noqa: B027 - does nothing by default
        """Called after the backward pass with the gradients by parameter name, to be changed in place.

        Norm and clipping come after it. Parameters without a gradient are missing.
        """

    def after_step(self, network: PolicyNetwork, optimizer: OptimizerState) -> None:  # noqa: B027 - the same
        """Called after every applied optimiser step."""

    def diagnostics(self) -> dict[str, float]:
        """Return numbers about the method itself for the rows of training metrics."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """Return the state for the checkpoint that is not in the network."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return the state for the checkpoint that is not a tensor, as JSON types."""
        return {}

    def restore(self, network: PolicyNetwork, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Continue from `tensors` and `state`."""
        assert not tensors and not state, f"{type(self).__name__} keeps no state of its own"

    def grown(self, tensors: Mapping[str, Tensor], growth: NetworkGrowth) -> dict[str, Tensor]:
        """Fit the result of `tensors` to a network that has grown since; refused by methods that do not say how."""
        if tensors:
            raise cannot_grow(self)
        return {}


def cannot_grow(method: Method) -> ConfigError:
    """Return the error for a method that keeps tensors and does not override `grown` or `grown_own`."""
    return ConfigError(
        f"the agent cannot grow to the next tasks: {method.label or type(method).__name__} keeps state of the old "
        "network and does not say how it grows; go on with another method"
    )


class Wrapper(Method):
    """A method around another: everything is the base's unless overridden. `Ewc(L2Init(Clear()))`.

    A subclass calls `super()` in each hook that it overrides. It keeps state by `own_tensors`, `own_state` and
    `restore_own`, whose names must not begin with "base".
    """

    terms: ClassVar[tuple[str, ...]] = ()
    """The terms of the loss that it adds; two wrappers that add the same one cannot be combined."""

    def __init__(self, base: Method) -> None:
        self.base = base
        self.needs_boundaries = self.needs_boundaries or base.needs_boundaries
        self.replay_fraction = base.replay_fraction
        self.extra_frames_share = base.extra_frames_share
        for inner in layers(base):
            if shared := {*self.terms} & {*(inner.terms if isinstance(inner, Wrapper) else inner.weights())}:
                both = f"{self.label or type(self).__name__} and {inner.label or type(inner).__name__}"
                raise ConfigError(f"{both} both add the loss term {min(shared)!r} and cannot be combined in one method")

    @classmethod
    def around(cls, base: Method, config: RunConfig) -> Method:
        """Return the method around `base` with the settings of a run."""
        return cls(base)

    def build_network(self, build: Callable[[], PolicyNetwork]) -> PolicyNetwork:
        return self.base.build_network(build)

    def weights(self) -> Mapping[str, float]:
        return self.base.weights()

    def losses(self, network: PolicyNetwork, batch: Batch) -> dict[str, Tensor]:
        return self.base.losses(network, batch)

    def visit(self, network: PolicyNetwork, visit: Visit) -> None:
        if self.base.needs_boundaries:
            self.base.visit(network, visit)

    def before_step(self, gradients: Mapping[str, Tensor]) -> None:
        self.base.before_step(gradients)

    def after_step(self, network: PolicyNetwork, optimizer: OptimizerState) -> None:
        self.base.after_step(network, optimizer)

    def diagnostics(self) -> dict[str, float]:
        return self.base.diagnostics()

    def tensors(self) -> dict[str, Tensor]:
        return {BASE + name: tensor for name, tensor in self.base.tensors().items()} | self.own_tensors()

    def state(self) -> dict[str, Any]:
        return {"base": self.base.state(), **self.own_state()}

    def restore(self, network: PolicyNetwork, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        inner = {name.removeprefix(BASE): t.clone() for name, t in tensors.items() if name.startswith(BASE)}
        self.base.restore(network, inner, state["base"])
        own = {name: tensor.clone() for name, tensor in tensors.items() if not name.startswith(BASE)}
        self.restore_own(network, own, {name: value for name, value in state.items() if name != "base"})

    def grown(self, tensors: Mapping[str, Tensor], growth: NetworkGrowth) -> dict[str, Tensor]:
        inner = {name.removeprefix(BASE): tensor for name, tensor in tensors.items() if name.startswith(BASE)}
        own = {name: tensor for name, tensor in tensors.items() if not name.startswith(BASE)}
        base = self.base.grown(inner, growth)
        return {BASE + name: tensor for name, tensor in base.items()} | self.grown_own(own, growth)

    def grown_own(self, tensors: Mapping[str, Tensor], growth: NetworkGrowth) -> dict[str, Tensor]:
        """Fit the result of `own_tensors` to a network that has grown since."""
        if tensors:
            raise cannot_grow(self)
        return {}

    def own_tensors(self) -> dict[str, Tensor]:
        """Return the wrapper's own part of `tensors`."""
        return {}

    def own_state(self) -> dict[str, Any]:
        """Return the wrapper's own part of `state`."""
        return {}

    def restore_own(self, network: PolicyNetwork, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Continue from the results of `own_tensors` and `own_state`."""
        assert not tensors and not state, f"{type(self).__name__} keeps no state of its own"


def layers(method: Method) -> list[Method]:
    """Return the method and those that it wraps, outermost first."""
    return [method, *layers(method.base)] if isinstance(method, Wrapper) else [method]


def full_label(method: Method) -> str:
    """Return the label of a method and of those that it wraps, for reports.

    A base without replay goes without saying.
    """
    *wrappers, base = layers(method)
    return " + ".join(part.label for part in [*wrappers, *([base] if base.replay_fraction or not wrappers else [])])


def method_meta(method: Method) -> dict[str, Any]:
    """Return what the meta data of a run say about its method, for readers that cannot import it."""
    return {"label": full_label(method), "colour": method.colour, "needs_boundaries": method.needs_boundaries}
