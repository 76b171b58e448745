"""Torsos: from observations to features. Each is a chain of stages, so that another column can join in at each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from clearl.errors import ConfigError
from clearl.nets.normalise import Normalise
from clearl.nets.stages import Conv, Dense, Section, Shape, Stage
from clearl.registry import Registry

_CONVERTED_AT_ONCE = 32


class ObservationInput(Protocol):
    """Converts an observation for the first stage of a torso; an `nn.Module` if it keeps statistics."""

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

    def act(self, observation: Tensor) -> Tensor:
        """Return what `forward` returns, as `Dense.act` does."""
        return self.normalise.act(observation.float())

    def observe(self, observation: Tensor) -> None:
        self.normalise.observe(observation)


class Torso(nn.Module):
    """A chain of stages over observations [N, *observation_shape], with features [N, out_size] at its end."""

    def __init__(
        self, observation_shape: Shape, stages: Iterable[nn.Module], *, inputs: ObservationInput | None = None
    ) -> None:
        """`inputs` converts observations for the first stage; None for floats and scaled bytes."""
        super().__init__()
        self.stages, self.inputs = nn.ModuleList(stages), inputs
        self.observation_shape = observation_shape
        self._acting: list[Callable[[Any], Any]] = []

    def prepare_acting(self) -> None:
        """Find the quickest way of each part to act."""
        parts = [self.prepare if self.inputs is None else self.inputs, *self.stages]
        self._acting = [part.act if isinstance(part, Dense | VectorInput) else part for part in parts]

    @property
    def chain(self) -> list[Stage]:
        return [cast(Stage, stage) for stage in self.stages]

    @property
    def out_size(self) -> int:
        return self.chain[-1].out_shape[0]

    @property
    def is_staged(self) -> bool:
        """True if no part of it is a module of a user's own."""
        return not any(isinstance(part, PlainTorso) for part in self.modules())

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

    def numbers(self, observation: Tensor) -> Tensor:
        """Return what the first stage sees of observations [N, ...] as one row of float32 each."""
        return as_rows(observation if self.inputs is None else self.inputs(observation))

    def activations(self, prepared: Tensor, laterals: Sequence[Tensor | None] | None = None) -> list[Tensor]:
        """Return the output of every stage; `laterals` are added in each before its ReLU."""
        hidden, outputs = prepared, []
        for stage, lateral in zip(self.chain, laterals or [None] * len(self.stages), strict=True):
            hidden = stage(hidden, lateral)
            outputs.append(hidden)
        return outputs

    def forward(self, observation: Tensor) -> Tensor:
        if not self._acting or torch.is_grad_enabled():
            return self.activations(self.prepare(observation))[-1]
        hidden: Any = observation
        for part in self._acting:
            hidden = part(hidden)
        return hidden


class PlainTorso(nn.Module):
    """A module of a user's own, from observations as float32, bytes scaled to [0, 1], to features [N, out_size]."""

    def __init__(self, name: str, body: nn.Module, *, inputs: ObservationInput | None = None) -> None:
        """`inputs` converts observations for the body; None for floats and scaled bytes."""
        super().__init__()
        self.inputs = inputs
        if type(getattr(body, "out_size", None)) is not int:
            raise ConfigError(
                f"torso {name!r} is a {type(body).__name__} without out_size; set self.out_size in its constructor to "
                "the number of features that it gives"
            )
        self.body, self.out_size = body, cast(int, body.out_size)

    def observe(self, observation: Tensor) -> None:
        """Take in the statistics of more observations, where they are kept."""
        if self.inputs is not None:
            self.inputs.observe(observation)

    def numbers(self, observation: Tensor) -> Tensor:
        """Return what the body sees of observations [N, ...] as one row of float32 each."""
        return as_rows(observation if self.inputs is None else self.inputs(observation))

    def forward(self, observation: Tensor) -> Tensor:
        return self.body(as_floats(observation) if self.inputs is None else self.inputs(observation))


def as_floats(values: Tensor) -> Tensor:
    """Return values as float32, bytes scaled to [0, 1]."""
    return values.float() * (1 / 255) if values.dtype == torch.uint8 else values.float()


def as_rows(seen: Any) -> Tensor:
    """Return an input of a torso, one tensor or several, as one row [N, numbers] for each observation."""
    if isinstance(seen, Tensor):
        return as_floats(seen).flatten(1)
    parts = seen.values() if isinstance(seen, Mapping) else seen
    return torch.cat([as_rows(part) for part in parts], 1)


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


_BY_IMAGE_SIZE = ("mlp", "minatar", "impala_shallow")


def torso_doubt(name: str, shape: Shape) -> str | None:
    """Return why a torso that was named is slow or strange for observations of that shape; None if it is neither."""
    fitting = _fitting_torso(shape)
    if name not in _BY_IMAGE_SIZE or _BY_IMAGE_SIZE.index(name) >= _BY_IMAGE_SIZE.index(fitting):
        return None
    size = "x".join(map(str, shape))
    why = "reads them as flat vectors" if name == "mlp" else "has a layer of millions of weights for them"
    return f"observations are images of {size}, and torso {name!r} {why}; --torso auto takes {fitting!r}"


def build_torso(name: str, shape: Shape, *, inputs: ObservationInput | None = None) -> Torso | PlainTorso:
    """Return the torso called `name` for what `inputs` makes of observations, not yet initialised from a seed.

    `shape` is that of one input. A registered function makes a list of stages, or a module of its own that has
    `out_size`.
    """
    built = TORSOS.get(_fitting_torso(shape) if name == AUTO else name)(shape)
    if isinstance(built, nn.Module):
        return PlainTorso(name, built, inputs=inputs)
    return Torso(shape, built, inputs=inputs)
