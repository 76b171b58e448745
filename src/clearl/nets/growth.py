"""Grow a network with its spaces, so that its outputs on old observations stay the same.

    growth = NetworkGrowth(old_network, fresh_network, spaces)
    weights = growth.state(old_weights)

A parameter of the old network lies in that of the larger one at `places`, an index for each axis. New inputs get
weights of 0; new actions get the fresh network's rows, and masks keep old tasks from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from clearl.errors import ConfigError
from clearl.growth import Growth
from clearl.nets.network import ActorCritic, PolicyNetwork, as_module
from clearl.nets.records import VECTOR_FEATURES, Encoders, RecordInput
from clearl.nets.stages import Conv, Dense, Section, Shape
from clearl.nets.torsos import Torso
from clearl.spaces import ObservationSpec

Places = tuple[np.ndarray | None, ...]
"""For each axis of a tensor where its entries lie in the larger one; None where the axis has not grown."""
Named = Iterator[tuple[str, Places]]


class NetworkGrowth:
    """The step from one network to a larger one of the same layers."""

    def __init__(self, old: PolicyNetwork, new: PolicyNetwork, spaces: Growth) -> None:
        """`new` has fresh weights, which it keeps where it has grown."""
        self.spaces = spaces
        self.parameters = tuple(name for name, _ in as_module(new).named_parameters())
        before, after = as_module(old).state_dict(), as_module(new).state_dict()
        if type(old) is not type(new) or not before.keys() <= after.keys():
            raise _refusal("its network would have other layers")
        self._places = {
            name: places
            for name, places in _network_places(old, new, spaces)
            if name in before and before[name].shape != after[name].shape
        }
        self.fresh = {name: self._start(name, tensor.cpu()) for name, tensor in after.items()}
        for name, tensor in before.items():
            if self._grown_shape(name, tensor) != after[name].shape:
                raise _refusal(f"its network would have other layers ({name})")

    def has_grown(self, name: str) -> bool:
        """Return whether a tensor of the old network has another shape now."""
        return name in self._places

    def padded(self, name: str, tensor: Tensor, fill: Tensor) -> Tensor:
        """Return a tensor of the shape of the old network's `name`, within `fill`, which is of the new shape."""
        if name not in self._places:
            return tensor
        index = np.ix_(*(np.arange(size) if place is None else place for size, place in self._axes(name, tensor)))
        padded = fill.clone().to(tensor.dtype)
        padded[tuple(map(torch.from_numpy, index))] = tensor.cpu()
        return padded

    def like_parameters(
        self, tensors: Mapping[str, Tensor], *, prefix: str = "", fresh: bool = False
    ) -> dict[str, Tensor]:
        """Return a tensor for each parameter below `prefix`, padded with 0, or with the fresh network's values."""
        padded = {}
        for name in self.parameters:
            if name.startswith(prefix):
                fill = self.fresh[name] if fresh else torch.zeros_like(self.fresh[name])
                own = name.removeprefix(prefix)
                padded[own] = self.padded(name, tensors[own], fill) if own in tensors else fill.clone()
        return padded

    def state(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the state dict of the new network, out of that of the old one."""
        return self.fresh | {name: self.padded(name, tensor, self.fresh[name]) for name, tensor in tensors.items()}

    def _start(self, name: str, tensor: Tensor) -> Tensor:
        """Return the fresh values, with weights of 0 for new inputs: the axes after the first."""
        start = tensor.detach().clone()
        for axis, place in enumerate(self._places.get(name, ())):
            if axis > 0 and place is not None:
                new = np.setdiff1d(np.arange(start.shape[axis]), place)
                start.index_fill_(axis, torch.from_numpy(new), 0.0)
        return start

    def _grown_shape(self, name: str, tensor: Tensor) -> tuple[int, ...]:
        new = self.fresh[name].shape
        sizes = self._axes(name, tensor) if name in self._places else [(size, None) for size in tensor.shape]
        if len(sizes) != len(new) or any(place is not None and len(place) != size for size, place in sizes):
            return ()
        return tuple(size if place is None else new[axis] for axis, (size, place) in enumerate(sizes))

    def _axes(self, name: str, tensor: Tensor) -> list[tuple[int, np.ndarray | None]]:
        places = (*self._places[name], *[None] * tensor.dim())[: tensor.dim()]
        return list(zip(tensor.shape, places, strict=True))


def _refusal(problem: str) -> ConfigError:
    return ConfigError(f"the agent cannot grow to the next tasks: {problem}")


@runtime_checkable
class Grows(Protocol):
    """A network of more than one column, which says where its parameters lie in a larger one of its kind."""

    def grown_places(self, larger: Any, spaces: Growth) -> Named:
        """Return the places by the name of the parameter, for all that may have grown; see `column_places`."""
        ...


def _network_places(old: PolicyNetwork, new: PolicyNetwork, spaces: Growth) -> Named:
    if isinstance(old, ActorCritic) and isinstance(new, ActorCritic):
        return column_places(old, new, spaces)
    if isinstance(old, Grows):
        return old.grown_places(new, spaces)
    raise _refusal(f"{type(old).__name__} is no network that is known to grow")


def below(prefix: str, named: Named) -> Named:
    """Return the growth of the part of a network that is called `prefix`."""
    return ((f"{prefix}.{name}", places) for name, places in named)


def column_places(old: ActorCritic, new: ActorCritic, spaces: Growth) -> Named:
    """Return the places of a plain network's parameters in a larger one."""
    if spaces.old.observation != spaces.new.observation:
        yield from below("torso", _torso(old.torso, new.torso, spaces))
    if spaces.old.action == spaces.new.action:
        return
    head = old.head.places_in(spaces)
    yield from (("policy.weight", (head.raw,)), ("policy.bias", (head.raw,)))
    yield from below("head", ((name, (places,)) for name, places in head.parameters.items()))
    if old.core is not None and new.core is not None:
        features, whole = old.torso.out_size, new.core.weight_input.shape[1]
        yield "core.weight_input", (None, np.concatenate([np.arange(features), features + head.embedding, [whole - 1]]))


def _torso(old: nn.Module, new: nn.Module, spaces: Growth) -> Named:
    if not (isinstance(old, Torso) and isinstance(new, Torso)) or not old.is_staged:
        raise _refusal("its torso is a module of your own, whose inputs are not known; only its actions can grow")
    before, after = spaces.old.observation, spaces.new.observation
    stages = list(zip(old.stages, new.stages, strict=True)) if len(old.stages) == len(new.stages) else []
    if not stages or any(type(one) is not type(other) for one, other in stages):
        raise _refusal("its network would have other layers, of another torso or for images that it had none of")
    vector = _vector_places(before, after)
    if getattr(old.inputs, "normalise", None) is not None:
        reals = vector[: len(cast(nn.Module, old.inputs).normalise.mean)]  # type: ignore[union-attr, arg-type]  # a module of ours
        yield from ((f"inputs.normalise.{name}", (reals,)) for name in ("mean", "variance", "count"))
    first, fresh = stages[0]
    if isinstance(first, Encoders) and isinstance(fresh, Encoders):
        yield from below("stages.0", _encoders(first, fresh, before, after, vector))
        yield "stages.1.linear.weight", (None, _joined_places(first, fresh))
    elif isinstance(new.inputs, RecordInput):
        yield "stages.0.linear.weight", (None, vector)
    else:
        yield from below("stages", _chain(stages, before.stack, before.parts[""].shape, after.parts[""].shape))


def _chain(stages: list[tuple[nn.Module, nn.Module]], stack: int, shape: Shape, grown: Shape) -> Named:
    """Yield places of stages: the first sees more channels or numbers, the first dense one more places of an image."""
    inputs: np.ndarray = corner_places((stack, *shape), (stack, *grown))
    for index, (stage, fresh) in enumerate(stages):
        if isinstance(stage, Section) and shape[1:] != grown[1:]:
            raise _refusal(f"images of {grown[1:]} instead of {shape[1:]}, which a residual torso pads at the border")
        if isinstance(stage, Conv | Section) and index == 0:
            name = "linear" if isinstance(stage, Conv) else "enter.0"
            yield f"{index}.{name}.weight", (None, corner_places((stack, shape[0]), (stack, grown[0])))
        elif isinstance(stage, Dense) and isinstance(fresh, Dense):
            yield f"{index}.linear.weight", (None, inputs)
            return
        inputs = corner_places(stage.out_shape, fresh.out_shape)  # type: ignore[arg-type]  # stages have it


def corner_places(shape: Shape, grown: Shape) -> np.ndarray:
    """Return the places of an array's entries in a larger one whose first corner it is, both flattened."""
    return np.arange(prod(grown)).reshape(grown)[tuple(slice(0, size) for size in shape)].ravel()


def _vector_parts(spec: ObservationSpec) -> list[str]:
    """Return the parts that are no images, in the order in which `RecordInput` joins them."""
    vectors = [name for name, shape in spec.shapes.items() if len(shape) != 3]
    return sorted(vectors, key=lambda name: spec.parts[name].dtype != "float32")


def _vector_places(old: ObservationSpec, new: ObservationSpec) -> np.ndarray:
    """Return the places of the old joined vector's numbers in the new one."""
    starts, total = {}, 0
    for name in _vector_parts(new):
        starts[name], total = total, total + prod(new.shapes[name])
    places = [
        starts[name]
        + corner_places((old.stack_of(name), *old.parts[name].shape), (new.stack_of(name), *new.parts[name].shape))
        for name in _vector_parts(old)
    ]
    return np.concatenate([np.zeros(0, np.int64), *places])


def _images(spec: ObservationSpec) -> list[str]:
    return [name for name, shape in spec.shapes.items() if len(shape) == 3]


def _encoders(
    old: Encoders, new: Encoders, before: ObservationSpec, after: ObservationSpec, vector: np.ndarray
) -> Named:
    if _images(after)[: len(old.images)] != _images(before):
        raise _refusal("a new image would stand before those that it knows")
    for index, name in enumerate(_images(before)):
        torsos = cast(Torso, old.images[index]), cast(Torso, new.images[index])
        stages = list(zip(torsos[0].stages, torsos[1].stages, strict=False))
        chain = _chain(stages, before.stack_of(name), before.parts[name].shape, after.parts[name].shape)
        yield from below(f"images.{index}.stages", chain)
    if old.vector is not None:
        yield "vector.linear.weight", (None, vector)


def _joined_places(old: Encoders, new: Encoders) -> np.ndarray:
    """Return the columns of the dense layer behind the encoders: features of the images, then of the vector."""
    images = sum(cast(Torso, torso).out_size for torso in old.images)
    vector = new.out_shape[0] - VECTOR_FEATURES + np.arange(VECTOR_FEATURES if old.vector is not None else 0)
    return np.concatenate([np.arange(images), vector]).astype(np.int64)
