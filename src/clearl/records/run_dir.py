"""The run directory: config.yaml (resolved), meta.json, metrics.jsonl, checkpoints/, replay/."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, get_args

from clearl.errors import CorruptFileError, RunDirectoryError, StorageError
from clearl.records.schema import METRICS_FILE, VERSION, plain, seal, unseal

Status = Literal["running", "finished", "interrupted", "failed"]

CONFIG_FILE = "config.yaml"
META_FILE = "meta.json"
_TEMPORARY = ".tmp"


@dataclass(frozen=True)
class RunDir:
    """A directory that holds one run, or the parts of a `separate` run."""

    path: Path

    @classmethod
    def create(cls, path: Path, *, config_text: str, meta: Mapping[str, Any]) -> RunDir:
        """Make the directory with its config and meta data; refused if it holds anything else."""
        path = Path(path)
        refuse_foreign(path)
        if holds_run(path):
            raise RunDirectoryError(f"{path} holds a run already; give another --out, or the same settings to go on")
        path.mkdir(parents=True, exist_ok=True)
        _write_atomically(path / CONFIG_FILE, config_text.encode())
        run = cls(path)
        run._write_meta({"status": "running", **meta, "v": VERSION, "config_sha256": _sha256(config_text.encode())})
        return run

    @classmethod
    def open(cls, path: Path) -> RunDir:
        """The run that `path` holds, with its config and meta data checked."""
        path = Path(path)
        if not holds_run(path):
            raise RunDirectoryError(f"{path} holds no run: there is no {META_FILE} in it")
        run = cls(path)
        _ = run.config_text
        return run

    @property
    def meta(self) -> dict[str, Any]:
        """What `meta.json` says now."""
        return read_meta(self.path)

    @property
    def status(self) -> Status:
        return self.meta.get("status", "running")

    @property
    def config_text(self) -> str:
        """The resolved config, as it was written when the run was made."""
        path = self.path / CONFIG_FILE
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise CorruptFileError(f"{path} is missing; a run cannot go on without its settings") from None
        expected = self.meta.get("config_sha256")
        if expected is not None and _sha256(data) != expected:
            raise CorruptFileError(
                f"{path} was changed after the run was made; put it back, or start a new run with the new settings"
            )
        return data.decode()

    @property
    def metrics_path(self) -> Path:
        return self.path / METRICS_FILE

    @property
    def checkpoints_path(self) -> Path:
        return self.path / "checkpoints"

    @property
    def replay_path(self) -> Path:
        return self.path / "replay"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training into this directory; ends with the process, however it dies."""
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunDirectoryError(
                    f"{self.path} is being trained by another process; wait for it to end, or give another --out"
                ) from None
            yield
        finally:
            os.close(directory)

    def set_status(self, status: Status, **fields: Any) -> None:
        """Say how the run stands, and add `fields` to its meta data."""
        if status not in get_args(Status):
            raise ValueError(f"a run is {', '.join(get_args(Status))}, not {status!r}")
        self.update_meta(status=status, **fields)

    def update_meta(self, **fields: Any) -> None:
        """Change single entries of `meta.json`, atomically."""
        self._write_meta({**self.meta, **fields})

    def _write_meta(self, meta: Mapping[str, Any]) -> None:
        _write_atomically(self.path / META_FILE, seal(json.dumps(plain(meta), indent=2, allow_nan=False)) + b"\n")


def holds_run(path: Path) -> bool:
    """Whether there is a run in the directory."""
    return (Path(path) / META_FILE).is_file()


def refuse_foreign(path: Path) -> None:
    """Raise `RunDirectoryError` unless `path` is absent, empty, a run, or what a crash left of one just begun."""
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise RunDirectoryError(f"{path} is a file; --out needs a directory")
    if not path.is_dir() or holds_run(path):
        return
    ours = {CONFIG_FILE, CONFIG_FILE + _TEMPORARY, META_FILE + _TEMPORARY}
    foreign = sorted(entry.name for entry in path.iterdir() if entry.name not in ours)
    if foreign:
        shown = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
        raise RunDirectoryError(f"{path} is not empty and holds no run ({shown}); give another --out")


def read_meta(path: Path) -> dict[str, Any]:
    """The meta data of the run in `path`; `CorruptFileError` if it is damaged."""
    file = Path(path) / META_FILE
    try:
        meta = unseal(file.read_bytes())
    except CorruptFileError as error:
        raise CorruptFileError(f'{file}: {error} (if you edited it by hand, delete its key "crc")') from None
    if meta.get("v", VERSION) != VERSION:
        raise CorruptFileError(f"{file} is of version {meta['v']!r}; this clearl reads version {VERSION}")
    return meta


def describe_machine() -> dict[str, Any]:
    """What the run's speed depends on; no host or user names."""
    return {"system": platform.system(), "machine": platform.machine(), "cores": os.cpu_count()}


def describe_versions(*packages: str) -> dict[str, str]:
    """Versions of Python and of those `packages` that are installed."""
    versions = {"python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _write_atomically(path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + _TEMPORARY)
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_directory(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        free = shutil.disk_usage(path.parent).free
        raise StorageError(f"{path}: {error.strerror or error}; {len(data)} bytes needed, {free} free") from error


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
