"""Torsos: from observations to features. Each is a chain of stages, so that another column can join in at each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from clearl.errors import ConfigError
from clearl.nets.byte_conv import relu_conv
from clearl.nets.normalise import Normalise
from clearl.registry import Registry

Shape = tuple[int, ...]

_CONVERTED_AT_ONCE = 32


class Stage(Protocol):
    """One layer of a torso: a linear part, to which a lateral input may be added, then perhaps a ReLU."""

    out_shape: Shape

    def __call__(self, hidden: Tensor, lateral: Tensor | None = None) -> Tensor: ...

    def lateral(self, width: int) -> nn.Module:
        """Build a module from an input `width` channels or units wide to a lateral input of this stage."""
        ...


class ObservationInput(Protocol):
    """Between an observation and the first stage of a torso; an `nn.Module`, where it keeps statistics."""

    def __call__(self, observation: Tensor, /) -> Any: ...

    def observe(self, observation: Tensor, /) -> None:
        """Take in the statistics of more observations [N, ...]."""
        ...


class VectorInput(nn.Module):
    """Vectors of real numbers, normalised."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.normalise = Normalise(size)

    def forward(self, observation: Tensor) -> Tensor:
        return self.normalise(observation.float())

    def observe(self, observation: Tensor) -> None:
        self.normalise.observe(observation)


class Conv(nn.Module):
    """A convolution without padding."""

    def __init__(self, shape: Shape, channels: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.linear, self.stride = nn.Conv2d(shape[0], channels, kernel, stride), (stride, stride)
        self.out_shape = (channels, *((side - kernel) // stride + 1 for side in shape[1:]))

    @property
    def takes_pixels(self) -> bool:
        """True if bytes may be passed directly: no forward hook is registered, which the fused path would bypass."""
        return not self.linear._forward_hooks

    def forward(self, hidden: Tensor, lateral: Tensor | None = None) -> Tensor:
        if hidden.dtype == torch.uint8:
            assert lateral is None, "nothing comes before the pixels"
            return relu_conv(hidden, self.linear.weight, cast(Tensor, self.linear.bias), self.stride)
        total = self.linear(hidden)
        return _relu(total if lateral is None else total + lateral)

    def lateral(self, width: int) -> nn.Module:
        conv = self.linear
        return nn.Conv2d(width, conv.out_channels, cast(int, conv.kernel_size), cast(int, conv.stride), bias=False)


class Residual(nn.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.second(self.first(hidden.relu()).relu())


class Section(nn.Module):
    """A section of IMPALA's ResNet: convolution, max-pool of stride 2 (a lateral joins here), two residual blocks."""

    def __init__(self, shape: Shape, channels: int) -> None:
        super().__init__()
        self.enter = _pooled(nn.Conv2d(shape[0], channels, 3, padding=1))
        self.blocks = nn.Sequential(Residual(channels), Residual(channels))
        self.out_shape = (channels, *((side + 1) // 2 for side in shape[1:]))

    def forward(self, hidden: Tensor, lateral: Tensor | None = None) -> Tensor:
        total = self.enter(hidden)
        return self.blocks(total if lateral is None else total + lateral)

    def lateral(self, width: int) -> nn.Module:
        return _pooled(nn.Conv2d(width, self.out_shape[0], 3, padding=1, bias=False))


class Dense(nn.Module):
    """A fully connected layer over the flattened input."""

    def __init__(self, shape: Shape, size: int, *, relu_first: bool = False) -> None:
        """`relu_first` squashes the input too: the sections of the ResNet end without a ReLU."""
        super().__init__()
        self.relu_first, self.positions = relu_first, prod(shape[1:])
        self.linear = nn.Linear(prod(shape), size)
        self.out_shape = (size,)
        self.in_shape = shape
        self.norm: nn.LayerNorm | None = None
        self._columns: Tensor | None = None

    def add_layer_norm(self) -> None:
        """Normalise the sum of each step before its ReLU."""
        self.norm = nn.LayerNorm(list(self.out_shape))

    def forward(self, hidden: Tensor, lateral: Tensor | None = None) -> Tensor:
        total = self._linear(hidden.relu() if self.relu_first else hidden)
        total = total if lateral is None else total + lateral
        return _relu(total if self.norm is None else self.norm(total))

    def prepare_acting(self) -> None:
        """Take the weights as they are now for acting; to be called after every change of a network that only acts.

        For a few rows the product takes a quarter of the time if the weights lie [in, out].
        """
        with torch.no_grad():
            columns = self.linear.weight.t().contiguous()  # before turning: whole rows are turned then, not numbers
            images = len(self.in_shape) == 3
            self._columns = columns.unflatten(0, self.in_shape).permute(1, 2, 0, 3).flatten(0, 2) if images else columns

    def _linear(self, hidden: Tensor) -> Tensor:
        """Apply `linear` to the flattened input.

        Images lie channels last in memory, so that flattening would copy them.
        """
        acting = self._columns is not None and not torch.is_grad_enabled()
        # Forward hooks see calls of `linear` only: with one registered, the plain path is taken.
        # So does an exported graph, whose batch has no size yet.
        small = not acting and (torch.compiler.is_exporting() or hidden.numel() <= self.linear.weight.numel())
        if small or self.linear._forward_hooks:
            return self.linear(hidden.flatten(1))
        flat = (hidden.permute(0, 2, 3, 1) if hidden.dim() == 4 else hidden).flatten(1)
        if acting:
            return torch.addmm(self.linear.bias, flat, cast(Tensor, self._columns))
        # In a learner's batch the weights are less to turn around, and the gradient comes back in the order that the
        # layer before likes: 43 ms become 22 (MinAtar, B = 128).
        return functional.linear(flat, self._turned(), self.linear.bias)

    def _turned(self) -> Tensor:
        """Return the weights [out, in], in the order in which the input lies in memory."""
        weight = self.linear.weight
        return weight.unflatten(1, self.in_shape).permute(0, 2, 3, 1).flatten(1) if len(self.in_shape) == 3 else weight

    def lateral(self, width: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(width * self.positions, self.linear.out_features, bias=False))


def _relu(total: Tensor) -> Tensor:
    """Apply a ReLU, in place while acting, where no backward pass needs the input."""
    return total.relu() if torch.is_grad_enabled() else total.relu_()


def _pooled(conv: nn.Conv2d) -> nn.Sequential:
    return nn.Sequential(conv, nn.MaxPool2d(3, stride=2, padding=1))


class Torso(nn.Module):
    """A chain of stages over observations [N, *observation_shape], with features [N, out_size] at its end."""

    def __init__(
        self, observation_shape: Shape, stages: Iterable[nn.Module], *, inputs: ObservationInput | None = None
    ) -> None:
        """`inputs` converts observations for the first stage; None for floats and scaled bytes."""
        super().__init__()
        self.stages, self.inputs = nn.ModuleList(stages), inputs
        self.observation_shape = observation_shape

    @property
    def chain(self) -> list[Stage]:
        return [cast(Stage, stage) for stage in self.stages]

    @property
    def out_size(self) -> int:
        return self.chain[-1].out_shape[0]

    def prepare(self, observation: Tensor) -> Tensor:
        """Convert to float32, bytes scaled to [0, 1]; images channels last in memory, on which convolutions are faster.

        Where a convolution on the CPU comes first, bytes stay bytes: see `clearl.nets.byte_conv`.
        """
        if self.inputs is not None:
            return self.inputs(observation)
        layout = torch.channels_last if observation.dim() == 4 else torch.preserve_format
        if observation.dtype != torch.uint8:
            return observation.to(torch.float32, memory_format=layout)
        if observation.dim() == 4:
            observation = observation.contiguous(memory_format=torch.channels_last)
            first, coarse = self.stages[0], torch.is_autocast_enabled(observation.device.type)
            if observation.is_cpu and not coarse and isinstance(first, Conv) and first.takes_pixels:
                return observation
        prepared = torch.empty_like(observation, dtype=torch.float32)
        # A few at a time: what was converted is scaled while it is still in the cache.
        at_once = _CONVERTED_AT_ONCE if observation.is_cpu else max(1, len(observation))
        for part, pixels in zip(prepared.split(at_once), observation.split(at_once), strict=True):
            part.copy_(pixels).mul_(1 / 255)
        return prepared

    def observe(self, observation: Tensor) -> None:
        """Take in the statistics of more observations, where they are kept."""
        if self.inputs is not None:
            self.inputs.observe(observation)

    def activations(self, prepared: Tensor, laterals: Sequence[Tensor | None] | None = None) -> list[Tensor]:
        """Return the output of every stage; `laterals` are added in each before its ReLU."""
        hidden, outputs = prepared, []
        for stage, lateral in zip(self.chain, laterals or [None] * len(self.stages), strict=True):
            hidden = stage(hidden, lateral)
            outputs.append(hidden)
        return outputs

    def forward(self, observation: Tensor) -> Tensor:
        return self.activations(self.prepare(observation))[-1]


class PlainTorso(nn.Module):
    """A module of a user's own, from observations as float32, bytes scaled to [0, 1], to features [N, out_size]."""

    def __init__(self, name: str, body: nn.Module, unpack: Callable[[Tensor], Any] | None = None) -> None:
        """`unpack` converts records for the body; see `clearl.nets.records`."""
        super().__init__()
        self.unpack = unpack
        if type(getattr(body, "out_size", None)) is not int:
            raise ConfigError(
                f"torso {name!r} is a {type(body).__name__} without out_size; set self.out_size in its constructor to "
                "the number of features that it gives"
            )
        self.body, self.out_size = body, cast(int, body.out_size)

    def forward(self, observation: Tensor) -> Tensor:
        if self.unpack is not None:
            return self.body(self.unpack(observation))
        as_float = observation.float()
        return self.body(as_float.mul_(1 / 255) if observation.dtype == torch.uint8 else as_float)


def mlp(shape: Shape) -> list[nn.Module]:
    """Build two layers of 128, over any observation."""
    return [Dense(shape, 128), Dense((128,), 128)]


def minatar(shape: Shape) -> list[nn.Module]:
    """Build a net for 10x10 images: conv 16 3x3, FC 128."""
    return _convs("minatar", shape, [(16, 3, 1)], 128)


def nature(shape: Shape) -> list[nn.Module]:
    """Build the DQN net of Nature 2015: conv 32 8x8/4, 64 4x4/2, 64 3x3/1, FC 512."""
    return _convs("nature", shape, [(32, 8, 4), (64, 4, 2), (64, 3, 1)], 512)


def impala_shallow(shape: Shape) -> list[nn.Module]:
    """Build IMPALA's small net: conv 16 8x8/4, conv 32 4x4/2, FC 256."""
    return _convs("impala_shallow", shape, [(16, 8, 4), (32, 4, 2)], 256)


def impala_deep(shape: Shape) -> list[nn.Module]:
    """Build IMPALA's ResNet: sections of 16, 32 and 32 channels, FC 256."""
    _check_image("impala_deep", shape, 8)
    stages: list[nn.Module] = []
    for channels in (16, 32, 32):
        stages.append(Section(shape, channels))
        shape = cast(Stage, stages[-1]).out_shape
    return [*stages, Dense(shape, 256, relu_first=True)]


def _convs(name: str, shape: Shape, layers: Sequence[tuple[int, int, int]], features: int) -> list[nn.Module]:
    least = 1
    for _, kernel, stride in reversed(layers):
        least = (least - 1) * stride + kernel
    _check_image(name, shape, least)
    stages: list[nn.Module] = []
    for channels, kernel, stride in layers:
        stages.append(Conv(shape, channels, kernel, stride))
        shape = cast(Stage, stages[-1]).out_shape
    return [*stages, Dense(shape, features)]


def _check_image(name: str, shape: Shape, least: int) -> None:
    if len(shape) != 3:
        raise ConfigError(f"torso {name!r} needs images, but observations have the shape {shape}; use torso 'mlp'")
    if min(shape[1:]) < least:
        remedy = "use torso 'minatar' or 'mlp'" if min(shape[1:]) >= 3 else "use torso 'mlp'"
        raise ConfigError(
            f"torso {name!r} needs images of {least}x{least} or more, but observations are {shape}; {remedy}"
        )


TORSOS: Registry[Callable[[Any], Sequence[nn.Module] | nn.Module]] = Registry(
    "torso",
    {name: f"clearl.nets.torsos:{name}" for name in ("mlp", "minatar", "nature", "impala_shallow", "impala_deep")},
    group="clearl.torsos",
)


AUTO = "auto"


def _fitting_torso(shape: Shape) -> str:
    """Return the torso for observations of that shape, where the user names none."""
    smallest = min(shape[1:], default=0)
    return "impala_shallow" if smallest >= 36 else "minatar" if smallest >= 3 else "mlp"


def build_torso(name: str, observation_shape: Shape, *, normalise: bool = False) -> Torso | PlainTorso:
    """Return the torso called `name` for observations of that shape, not yet initialised from a seed.

    `normalise` keeps running statistics of observations, which must be vectors of real numbers.

    A registered function makes a list of stages, or a module of its own that has `out_size`.
    """
    built = TORSOS.get(_fitting_torso(observation_shape) if name == AUTO else name)(observation_shape)
    if isinstance(built, nn.Module):
        return PlainTorso(name, built)
    return Torso(observation_shape, built, inputs=VectorInput(observation_shape[0]) if normalise else None)
