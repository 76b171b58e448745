"""Checkpoints: written atomically, verified before an older one is removed, two generations kept."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from clearl.errors import CorruptFileError, StorageError
from clearl.storage.files import is_at, storage_error, storage_errors, sync_directory
from clearl.storage.tree_codec import decode_arrays, decode_json, encode_tree

GENERATIONS = 2
VERSION = 1
STATE_FILE, ARRAYS_FILE, MANIFEST_FILE = "state.json", "arrays.safetensors", "manifest.json"

_FORMAT = "clearl-checkpoint"
_TEMPORARY = ".tmp-"
_NAME = re.compile(r"checkpoint-(\d{8})")
# The most bytes of each file; a manifest with a larger size is not one of ours.
_CAPS = {STATE_FILE: 1 << 30, ARRAYS_FILE: 1 << 40}
_MANIFEST_CAP = 1 << 12
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Saved:
    """A checkpoint on disk whose hashes matched when it was found."""

    path: Path
    notes: tuple[str, ...] = ()
    """The damaged checkpoints that were skipped to find this one."""

    @cached_property
    def json(self) -> dict[str, Any]:
        """The saved tree with None in place of every array; reads no arrays."""
        return self._decoded()[0]

    @cached_property
    def tree(self) -> dict[str, Any]:
        """Everything that was saved; reads the files again and verifies them again."""
        tree, places = self._decoded()
        arrays = _read_checked(self.path, ARRAYS_FILE, _read_manifest(self.path))
        return self._named(ARRAYS_FILE, decode_arrays, tree, places, arrays)

    def _decoded(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        data = _read_checked(self.path, STATE_FILE, _read_manifest(self.path))
        return self._named(STATE_FILE, decode_json, data)

    def _named(self, name: str, decode: Any, *arguments: Any) -> Any:
        try:
            return decode(*arguments)
        except CorruptFileError as error:
            raise CorruptFileError(f"{self.path / name}: {error}") from None


class CheckpointStore:
    """The checkpoints of one run, as `checkpoint-NNNNNNNN` directories below `path`."""

    def __init__(
        self,
        path: Path,
        *,
        check: Callable[[dict[str, Any]], None] | None = None,
        on_first: Callable[[], None] = lambda: None,
    ) -> None:
        """Take `check`, which gets a checkpoint's JSON part and raises `CorruptFileError` if no run can resume from it.

        `on_first` is called once the first checkpoint is written.
        """
        self.path = Path(path)
        self._check, self._on_first = check, on_first

    def save(self, tree: Mapping[str, Any]) -> Path:
        """Write `tree` and verify it; only then remove all but this and the newest good one before it."""
        state, arrays = encode_tree(tree)
        files = {STATE_FILE: state, ARRAYS_FILE: arrays}
        files[MANIFEST_FILE] = _manifest(files)
        kept, is_first = self._newest_verified(), not self.paths()
        name = f"checkpoint-{max(self._numbers(), default=0) + 1:08d}"
        temporary, target = self.path / f"{_TEMPORARY}{name}", self.path / name
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with _locked_directory(temporary):
                for file, data in files.items():
                    _write(temporary / file, data)
                sync_directory(temporary)
                _verify(temporary)
                os.rename(temporary, target)
                sync_directory(self.path)
        except (OSError, CorruptFileError) as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise _not_written(target, sum(map(len, files.values())), error, kept) from error
        self._drop_all_but(target, kept)
        if is_first:
            self._on_first()
        return target

    def newest(self) -> Saved | None:
        """Return the newest good checkpoint; damaged ones are skipped and named in its notes."""
        damaged: list[str] = []
        for path in self.paths()[::-1]:
            try:
                _verify(path)
                found = Saved(path, tuple(f"{text}; went on from {path.name}" for text in damaged))
                state = found.json
                if self._check is not None:
                    self._check(state)
                return found
            except CorruptFileError as error:
                damaged.append(f"{path.name} cannot be used ({error})")
        if damaged:
            raise CorruptFileError(
                f"no good checkpoint is left: {'; '.join(damaged)}. Put one back from a copy, or start a new run"
            )
        return None

    def oldest(self) -> Saved | None:
        """Return the oldest generation that a resume could still use; its arrays are not read."""
        for path in self.paths():
            found = Saved(path)
            try:
                _ = found.json
            except CorruptFileError:
                continue
            return found
        return None

    def drop_after(self, kept: Path) -> None:
        """Remove checkpoints newer than `kept`, which belong to an extension that was begun and never completed."""
        self._drop_all_but(*self.paths()[: self.paths().index(kept) + 1])

    def clean(self) -> None:
        """Remove half-written files that a crash left, as far as the disk allows.

        Only for the process that trains: readers must not change a run.
        """
        with contextlib.suppress(OSError):
            for path in list(self.path.glob(f"{_TEMPORARY}*")):
                with contextlib.suppress(OSError), _locked_directory(path, wait=False):
                    shutil.rmtree(path, ignore_errors=True)

    def paths(self) -> list[Path]:
        """Return the directories of all checkpoints, good or not, from the oldest to the newest."""
        return [self.path / f"checkpoint-{n:08d}" for n in sorted(self._numbers())]

    def _numbers(self) -> list[int]:
        with storage_errors(self.path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            matches = [_NAME.fullmatch(name) for name in os.listdir(self.path)]
            return [int(match[1]) for match in matches if match]
        return []

    def _newest_verified(self) -> Path | None:
        for path in self.paths()[::-1]:
            with contextlib.suppress(CorruptFileError):
                _verify(path)
                return path
        return None

    def _drop_all_but(self, *kept: Path | None) -> None:
        for path in self.paths():
            if path not in kept:
                # Renamed first: an interrupted removal must not look like a damaged checkpoint.
                doomed = self.path / f"{_TEMPORARY}{path.name}"
                with contextlib.suppress(OSError):
                    os.rename(path, doomed)
                    shutil.rmtree(doomed)


def _not_written(target: Path, needed: int, error: OSError | CorruptFileError, kept: Path | None) -> StorageError:
    """Return the error for a checkpoint that could not be written; it names the one that the run can resume from."""
    then = "Start the same command again when that is mended: it goes on from "
    then += f"{kept.name}, which is untouched" if kept else "the beginning, as there is no earlier checkpoint"
    if isinstance(error, OSError):
        return storage_error(target, error, needed=needed, then=then)
    return StorageError(f"{target}: what was written cannot be read again ({error}). {then}")


def _manifest(files: Mapping[str, bytes]) -> bytes:
    entries = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    return json.dumps({"format": _FORMAT, "version": VERSION, "files": entries}, indent=1).encode() + b"\n"


def _read_manifest(directory: Path) -> dict[str, Any]:
    """Return the manifest's entry of each file that we know; it must list exactly those."""
    path = directory / MANIFEST_FILE
    with _open(path) as fd:
        data = os.read(fd, _MANIFEST_CAP + 1)
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError):
        raise CorruptFileError(f"{path} is not JSON") from None
    if not isinstance(manifest, dict) or manifest.keys() != {"format", "version", "files"}:
        raise CorruptFileError(f"{path} has other keys than format, version and files")
    if manifest["format"] != _FORMAT or manifest["version"] != VERSION:
        raise CorruptFileError(f"{path} is of another format or version; this clearl reads version {VERSION}")
    files = manifest["files"]
    if not isinstance(files, dict) or files.keys() != _CAPS.keys():
        raise CorruptFileError(f"{path} names other files than {', '.join(_CAPS)}")
    for name, entry in files.items():
        if not isinstance(entry, dict) or entry.keys() != {"bytes", "sha256"}:
            raise CorruptFileError(f"{path}: the entry of {name} has other keys than bytes and sha256")
        if type(entry["bytes"]) is not int or not 0 <= entry["bytes"] <= _CAPS[name]:
            raise CorruptFileError(f"{path}: the size of {name} is out of range")
        if not isinstance(entry["sha256"], str):
            raise CorruptFileError(f"{path}: the sha256 of {name} is no text")
    return files


def _verify(directory: Path) -> None:
    """Raise `CorruptFileError` unless every file matches the manifest."""
    manifest = _read_manifest(directory)
    for name in _CAPS:
        for _ in _chunks(directory, name, manifest):
            pass


def _read_checked(directory: Path, name: str, manifest: Mapping[str, Any]) -> bytes:
    return b"".join(_chunks(directory, name, manifest))


def _chunks(directory: Path, name: str, manifest: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the bytes of a file; raise unless its size and, at the end, its sha256 match."""
    path, entry, digest = directory / name, manifest[name], hashlib.sha256()
    with _open(path) as fd:
        if os.fstat(fd).st_size != entry["bytes"]:
            raise CorruptFileError(f"{path} is not {entry['bytes']} bytes long, as the manifest says")
        while chunk := os.read(fd, _CHUNK_BYTES):
            digest.update(chunk)
            yield chunk
    if digest.hexdigest() != entry["sha256"]:
        raise CorruptFileError(f"{path} does not match its sha256")


@contextlib.contextmanager
def _open(path: Path) -> Iterator[int]:
    """Open a regular file for reading; refuse a symbolic link, and a pipe, which might never end."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise CorruptFileError(f"{path} cannot be opened: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise CorruptFileError(f"{path} is no plain file")
        yield fd
    except OSError as error:
        raise CorruptFileError(f"{path} cannot be read: {error.strerror}") from None
    finally:
        os.close(fd)


@contextlib.contextmanager
def _locked_directory(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Make and lock a directory, so that no other process removes it as a leftover. The lock ends with the process."""
    while True:
        path.mkdir(exist_ok=True)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_at(fd, path):  # an older clearl may have removed it before it was locked
                yield
                return
        finally:
            os.close(fd)


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Turn errors of a restore into the refusal of a checkpoint: its hashes match, but its contents do not fit."""
    try:
        yield
    except (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise CorruptFileError(f"{path} does not fit this run: {type(error).__name__}: {error}") from error
