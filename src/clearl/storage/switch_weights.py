"""The weights that the last segments of a run ended with, one small file each: checkpoints keep the newest only."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from clearl.errors import CorruptFileError
from clearl.storage.files import read_plain, write_atomically

SWITCHES_DIR = "switches"
_NAME = re.compile(r"segment-(\d{5,9})\.safetensors")
_CAP_NBYTES = 1 << 36


class SwitchWeights:
    """Files `segment-NNNNN.safetensors` below `RUN/switches`, at most `most` of them."""

    def __init__(self, run_dir: Path, most: int = 0) -> None:
        self.path, self._most = Path(run_dir) / SWITCHES_DIR, most

    def save(self, segment: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Keep the weights that `segment` ended with, and drop the oldest where there are too many."""
        if not self._most:
            return
        self.path.mkdir(exist_ok=True)
        write_atomically(
            self._file(segment), save({name: t.detach().cpu().contiguous() for name, t in tensors.items()})
        )
        for old in self.segments()[: -self._most]:
            with contextlib.suppress(OSError):
                self._file(old).unlink()

    def segments(self) -> list[int]:
        """Return the segments whose weights are stored."""
        if not self.path.is_dir():
            return []
        return sorted(int(found[1]) for file in self.path.iterdir() if (found := _NAME.fullmatch(file.name)))

    def load(self, segment: int) -> dict[str, torch.Tensor]:
        """Return the weights at the end of a segment.

        `CorruptFileError` if the file holds no weights, or some that are not finite.
        """
        file = self._file(segment)
        return finite_tensors(read_plain(file, cap_nbytes=_CAP_NBYTES), file)

    def _file(self, segment: int) -> Path:
        return self.path / f"segment-{segment:05d}.safetensors"


def finite_tensors(data: bytes, file: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in the bytes of a safetensors file; `CorruptFileError` if damaged or not finite."""
    try:
        tensors = load(data)
    except SafetensorError as error:
        raise CorruptFileError(f"{file} holds no weights: {error}") from None
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CorruptFileError(f"{file}: {name} holds NaN or infinity")
    return tensors
