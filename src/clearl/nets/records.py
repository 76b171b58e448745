"""Observations of several parts: read from the bytes of records, encoded one by one, then joined."""

from __future__ import annotations

from math import prod
from typing import cast

import torch
from torch import Tensor, nn

from clearl.nets.normalise import Normalise
from clearl.nets.stages import Dense, Shape
from clearl.nets.torsos import TORSOS, PlainTorso, Torso, as_floats, build_torso
from clearl.spaces import ObservationSpec, field_name

VECTOR_FEATURES = 128
JOINED_FEATURES = 256
_DTYPES = {"uint8": torch.uint8, "bool": torch.bool, "float32": torch.float32}


class RecordInput(nn.Module):
    """From the bytes [N, nbytes] of records to images as they are, and all vectors as one of float32."""

    def __init__(self, spec: ObservationSpec, *, normalise: bool) -> None:
        super().__init__()
        record, shapes = spec.record_dtype, spec.shapes
        self._places: dict[str, tuple[int, int, torch.dtype, Shape]] = {}
        for name, part in spec.parts.items():
            base, start = record.fields[field_name(name)][:2]  # type: ignore[index]  # a record has fields
            self._places[name] = (start, start + base.itemsize, _DTYPES[part.dtype], shapes[name])
        self.images = [name for name, shape in shapes.items() if len(shape) == 3]
        # Real numbers first: only they are normalised.
        self._reals = [name for name in shapes if name not in self.images and spec.parts[name].dtype == "float32"]
        self._flags = [name for name in shapes if name not in (*self.images, *self._reals)]
        self._real_runs = self._joined_places(self._reals)
        self.vector_size = sum(prod(shapes[name]) for name in (*self._reals, *self._flags))
        reals = sum(prod(shapes[name]) for name in self._reals)
        self.normalise = Normalise(reals) if normalise and reals else None

    def forward(self, records: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the vector, or (images, vector) where there are images; without a vector it has no numbers."""
        flags = [as_floats(self._part(records, name).flatten(1)) for name in self._flags]
        reals = self._scaled_reals(records)
        vector = torch.cat([reals, *flags], 1) if flags else reals
        return (*(self._part(records, name) for name in self.images), vector) if self.images else vector

    def observe(self, records: Tensor) -> None:
        """Take in the statistics of more records."""
        if self.normalise is not None:
            self.normalise.observe(self._joined_reals(records))

    def named(self, records: Tensor) -> dict[str, Tensor]:
        """Return every part as float32, bytes scaled to [0, 1]."""
        parts = {name: as_floats(self._part(records, name)) for name in self._places if name not in self._reals}
        reals = self._scaled_reals(records).split([prod(self._places[name][3]) for name in self._reals], 1)
        parts |= {name: real.reshape(-1, *self._places[name][3]) for name, real in zip(self._reals, reals, strict=True)}
        return {name: parts[name] for name in self._places}

    def take_values(self) -> None:
        """From now on take all values of all parts [N, values] as float32, bytes scaled to [0, 1].

        For graphs in formats that cannot take numbers out of bytes.
        """
        start = 0
        for name, (*_, shape) in self._places.items():
            self._places[name] = (start, start + prod(shape), torch.float32, shape)
            start += prod(shape)
        self._real_runs = self._joined_places(self._reals)

    def _joined_places(self, names: list[str]) -> list[tuple[int, int]]:
        """Return the places of parts, those side by side as one."""
        runs: list[tuple[int, int]] = []
        for start, end, *_ in (self._places[name] for name in names):
            if runs and runs[-1][1] == start:
                start = runs.pop()[0]
            runs.append((start, end))
        return runs

    def _part(self, records: Tensor, name: str) -> Tensor:
        start, end, dtype, shape = self._places[name]
        return _as_dtype(records[:, start:end], dtype).reshape(-1, *shape)

    def _scaled_reals(self, records: Tensor) -> Tensor:
        reals = self._joined_reals(records)
        return reals if self.normalise is None else self.normalise(reals)

    def _joined_reals(self, records: Tensor) -> Tensor:
        """Return all real numbers [N, reals]: without a copy where they lie side by side in a record."""
        reals = [_as_dtype(records[:, start:end], torch.float32) for start, end in self._real_runs]
        if len(reals) == 1:
            return reals[0]
        return torch.cat(reals, 1) if reals else records.new_zeros(len(records), 0, dtype=torch.float32)


def _as_dtype(part: Tensor, dtype: torch.dtype) -> Tensor:
    return part if part.dtype == dtype else part.view(dtype)


class NamedInput(nn.Module):
    """Passes the parts of records by name to a user's own torso; a single part without a name is passed alone."""

    def __init__(self, records: RecordInput) -> None:
        super().__init__()
        self.records = records

    def forward(self, records: Tensor) -> Tensor | dict[str, Tensor]:
        parts = self.records.named(records)
        return parts[""] if [*parts] == [""] else parts

    def observe(self, records: Tensor) -> None:
        """Take in the statistics of more records."""
        self.records.observe(records)


class Encoders(nn.Module):
    """The first stage of a torso over records with images: an encoder for each, and one for the vector; joined."""

    def __init__(self, images: list[Torso | PlainTorso], vector_size: int) -> None:
        super().__init__()
        self.images = nn.ModuleList(images)
        self.vector = Dense((vector_size,), VECTOR_FEATURES) if vector_size else None
        self.out_shape = (sum(torso.out_size for torso in images) + VECTOR_FEATURES * bool(vector_size),)

    def forward(self, prepared: tuple[Tensor, ...], lateral: Tensor | None = None) -> Tensor:
        assert lateral is None, "nothing comes before the parts"
        *images, vector = prepared
        features = [torso(image) for torso, image in zip(self.images, images, strict=True)]
        return torch.cat(features if self.vector is None else [*features, self.vector(vector)], 1)

    def lateral(self, width: int) -> nn.Module:
        raise AssertionError("nothing comes before the parts")


def build_record_torso(name: str, spec: ObservationSpec, *, normalise: bool) -> Torso | PlainTorso:
    """Return the torso for records: that of a vector where there are no images, else encoders and a dense layer.

    A class of a user's own is given the shapes of the parts by name, and in `forward` the parts.
    """
    inputs = RecordInput(spec, normalise=normalise)
    own = TORSOS.get(name) if name in TORSOS else None
    if isinstance(own, type):
        shapes = spec.shapes[""] if [*spec.parts] == [""] else spec.shapes
        return PlainTorso(name, cast(nn.Module, own(shapes)), inputs=NamedInput(inputs))
    if not inputs.images:
        return build_torso(name, (inputs.vector_size,), inputs=inputs)
    encoders = Encoders([build_torso(name, spec.shapes[part]) for part in inputs.images], inputs.vector_size)
    return Torso((inputs.vector_size,), [encoders, Dense(encoders.out_shape, JOINED_FEATURES)], inputs=inputs)
