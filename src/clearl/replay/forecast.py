"""Forecast the bytes of a replay buffer before the start, and choose the store that they fit into."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal

import numpy as np

from clearl.errors import ConfigError
from clearl.replay.codec import Codec
from clearl.replay.framing import HEADER_NBYTES
from clearl.spaces import PartSpec
from clearl.storage.cgroups import MemoryGroups
from clearl.storage.file_systems import remote_file_system
from clearl.storage.files import free_nbytes
from clearl.unroll import Unroll, UnrollLayout

StoreKind = Literal["ram", "disk"]

_USABLE_SHARE = 0.9  # of what is free: other processes need some, too
_RAM_OVERHEAD_NBYTES = 90  # an unroll's place in the index, its bytes object, the allocator's rounding
_FRAMING_NBYTES = 24  # the headers of our codec and of zstd around incompressible bytes
_LABEL_NBYTES = 32  # of most tasks; a name can be longer, and adds no more than 77 bytes then
_INDEX_NBYTES = 42  # an unroll's place in the index of the disk store


@dataclass(frozen=True)
class Forecast:
    """The bytes of a full buffer."""

    unrolls: int
    unroll_nbytes: float
    measured: bool
    """From encoded unrolls of the task, or else from a cautious ratio."""
    ram_nbytes: int
    disk_nbytes: int
    disk_index_nbytes: int


def cautious_unroll_nbytes(layout: UnrollLayout) -> float:
    """Return the bytes of an encoded unroll that few tasks exceed; used where none could be measured."""
    observation, frames = layout.spec.observation, layout.fields["frames"]
    saved = sum(_saved_nbytes(part) for part in observation.parts.values())
    return layout.nbytes - saved * frames.shape[0] + _FRAMING_NBYTES


def _saved_nbytes(part: PartSpec) -> float:
    """Return the bytes of one frame that compression saves at least."""
    nbytes = prod(part.shape) * np.dtype(part.dtype).itemsize
    if part.dtype == "float32" or not part.is_image:
        return 0.0
    if part.dtype == "bool":
        return nbytes - nbytes / 8 / 2
    # Grey Atari at 84x84: 33 on average, 7.4 in the worst of the paper's six games. Rendered colour is far noisier.
    return nbytes - nbytes / (6 if part.shape[0] == 1 else 2)


def measured_unroll_nbytes(layout: UnrollLayout, sample: Unroll) -> float:
    """Return the mean bytes of the encoded unrolls in `sample`, slot axis first."""
    codec, count = Codec(layout), len(sample.action)
    return float(np.mean([len(codec.encode(sample[index])) for index in range(count)]))


def forecast_bytes(
    layout: UnrollLayout, capacity_frames: int, *, waste_share: float = 0.5, sample: Unroll | None = None
) -> Forecast:
    """Forecast the bytes of `capacity_frames` environment frames; from `sample` unrolls where given."""
    unrolls = max(1, -(-capacity_frames // layout.frames))
    each = cautious_unroll_nbytes(layout) if sample is None else measured_unroll_nbytes(layout, sample)
    record = each + HEADER_NBYTES + _LABEL_NBYTES
    return Forecast(
        unrolls=unrolls,
        unroll_nbytes=each,
        measured=sample is not None,
        ram_nbytes=int(unrolls * (record + _RAM_OVERHEAD_NBYTES)),
        disk_nbytes=int(unrolls * record / (1 - waste_share)),
        disk_index_nbytes=unrolls * _INDEX_NBYTES,
    )


def unrolls_within(
    budget_nbytes: int, layout: UnrollLayout, kind: Literal["auto", "ram", "disk"], *, slots: int, waste_share: float
) -> int:
    """Return the unrolls of a slot that keep the full buffer within `budget_nbytes`; for auto, in either store."""
    one = forecast_bytes(layout, layout.frames, waste_share=waste_share)
    each = {"disk": one.disk_nbytes, "ram": one.ram_nbytes, "auto": max(one.disk_nbytes, one.ram_nbytes)}[kind]
    if (unrolls := budget_nbytes // (each * slots)) >= 1:
        return unrolls
    raise ConfigError(
        f"replay_budget must be at least {human_nbytes(each * slots)}, one unroll of at most {human_nbytes(each)} for "
        f"each of {slots} slots, got {human_nbytes(budget_nbytes)}"
    )


def choose_store(
    kind: Literal["auto", "ram", "disk"],
    *,
    layout: UnrollLayout,
    capacity_frames: int,
    directory: Path,
    waste_share: float = 0.5,
    sample: Unroll | None = None,
    free_ram: int | None = None,
    free_disk: int | None = None,
    remote: str | None = None,
) -> tuple[StoreKind, str]:
    """Return the store to use, and the sentence that tells the user why; `ConfigError` with the numbers if none fits.

    `auto` takes the disk where the buffer fits and the file system is local, since only there it outlives the process.
    Else it takes RAM, and a remote file system where that is too small.
    """
    forecast = forecast_bytes(layout, capacity_frames, waste_share=waste_share, sample=sample)
    free_ram = free_ram_nbytes() if free_ram is None else free_ram
    free_disk = free_disk_nbytes(directory) if free_disk is None else free_disk
    fits = {
        "disk": forecast.disk_nbytes <= _USABLE_SHARE * free_disk
        and forecast.disk_index_nbytes <= _USABLE_SHARE * free_ram,
        "ram": forecast.ram_nbytes <= _USABLE_SHARE * free_ram,
    }
    need = (
        f"{forecast.unrolls:,} unrolls of {'' if forecast.measured else 'at most about '}"
        f"{human_nbytes(forecast.unroll_nbytes)} need {human_nbytes(forecast.disk_nbytes)} of disk "
        f"({human_nbytes(free_disk)} free) or {human_nbytes(forecast.ram_nbytes)} of RAM "
        f"({human_nbytes(free_ram)} free)"
    )
    remote = remote_file_system(directory) if remote is None else remote
    in_order: tuple[StoreKind, ...] = ("ram", "disk") if remote else ("disk", "ram")
    for store in in_order if kind == "auto" else (kind,):
        if fits[store]:
            return store, f"replay: {need}; kept {_where(store, remote if kind == 'auto' else None)}"
    raise ConfigError(
        f"replay does not fit: {need}, and replay_store is {kind!r}; give a smaller buffer_frames, buffer_share "
        "or replay_budget, another replay_store, or an output directory on a larger disk"
    )


def _where(store: StoreKind, remote: str | None) -> str:
    if store == "disk":
        return "on disk"
    why = f", since {remote} is no file system of this machine" if remote else ""
    return f"in RAM{why}: a worker that is killed loses its share of it (--replay-store disk keeps it)"


def free_disk_nbytes(directory: Path) -> int:
    """Return the bytes free where `directory` is or will be."""
    free = free_nbytes(directory)
    if free is None:
        raise ConfigError(f"the free space at {directory} cannot be found out; give another --out")
    return free


def free_ram_nbytes() -> int:
    """Return the bytes of RAM available without swapping, within this container's limit where there is one."""
    free, headroom = _available_ram_nbytes(), MemoryGroups().headroom_nbytes()
    return free if headroom is None else min(free, headroom)


def _available_ram_nbytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return what Linux says is available; elsewhere (macOS) half of the installed RAM, as nothing tells more."""
    if meminfo.exists():
        lines = meminfo.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def human_nbytes(nbytes: float) -> str:
    """Return a number of bytes as people write it."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "bytes" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"
