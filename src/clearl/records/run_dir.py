"""The run directory: config.yaml (resolved), meta.json, metrics.jsonl, checkpoints/, replay/."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, get_args

from clearl.errors import CorruptFileError, RunDirectoryError, os_problem
from clearl.records.parts import remove_parts
from clearl.records.schema import METRICS_FILE, VERSION, plain, seal, unseal
from clearl.storage.files import is_at, read_plain, write_atomically

Status = Literal["running", "finished", "interrupted", "failed"]

CONFIG_FILE = "config.yaml"
META_FILE = "meta.json"
_BEGUN = re.compile(rf"({re.escape(CONFIG_FILE)}|{re.escape(META_FILE)}(?=.))(\.\d+)?(\.tmp)?")
"""Names of files that a crash may leave of a run that has just begun."""
IDENTITIES_DIR = "mirrors"
"""The identities of the run at services such as Weights & Biases, a file each."""
_OWN_DIRECTORIES = ("checkpoints", "replay", "tensorboard", "wandb", IDENTITIES_DIR, "videos", "switches")
_CONFIG_CAP_NBYTES, _META_CAP_NBYTES = 1 << 20, 1 << 27


@dataclass(frozen=True)
class RunDir:
    """A directory that holds one run, or the parts of a `separate` run."""

    path: Path

    @classmethod
    def create(cls, path: Path, *, config_text: str, meta: Mapping[str, Any]) -> RunDir:
        """Make the directory with its config and meta data; refuse one that holds anything else."""
        path = Path(path)
        refuse_foreign(path)
        if holds_run(path):
            raise RunDirectoryError(f"{path} holds a run already; give another --out, or the same settings to go on")
        return cls.begin(path, config_text=config_text, meta=meta)

    @classmethod
    def begin(cls, path: Path, *, config_text: str, meta: Mapping[str, Any]) -> RunDir:
        """Write config and meta data of a new run, whatever else the directory holds."""
        make_directory(path)
        if not os.access(path, os.W_OK | os.X_OK):
            raise RunDirectoryError(os_problem(PermissionError(errno.EACCES, os.strerror(errno.EACCES)), path))
        write_atomically(path / CONFIG_FILE, config_text.encode())
        run = cls(path)
        run._write_meta({"status": "running", **meta, "v": VERSION, "config_sha256": _sha256(config_text.encode())})
        return run

    @classmethod
    def open(cls, path: Path) -> RunDir:
        """Return the run that `path` holds, with its config and meta data checked."""
        path = Path(path)
        if not holds_run(path):
            raise RunDirectoryError(f"{path} holds no run: {_why_not(path)}")
        run = cls(path)
        _ = run.config_text
        return run

    @property
    def meta(self) -> dict[str, Any]:
        """The present contents of `meta.json`."""
        return read_meta(self.path)

    @property
    def status(self) -> Status:
        return self.meta.get("status", "running")

    @property
    def config_text(self) -> str:
        """The resolved config, as it was written when the run was made."""
        path = self.path / CONFIG_FILE
        with _named_errors():
            if not path.exists():
                raise CorruptFileError(f"{path} is missing; a run cannot go on without its settings")
        data, meta = read_plain(path, cap_nbytes=_CONFIG_CAP_NBYTES), self.meta
        expected = meta.get("config_sha256")
        pending = str(meta.get("pending_config") or "").encode()
        if expected is not None and _sha256(data) != expected == _sha256(pending):
            data = pending  # a crash came before the config file was written
        if expected is not None and _sha256(data) not in (expected, meta.get("next_config_sha256")):
            raise CorruptFileError(
                f"{path} was changed after the run was made; put it back, or start a new run with the new settings"
            )
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise CorruptFileError(f"{path} is not text in UTF-8") from None

    def change_config(self, text: str, **fields: Any) -> None:
        """Replace the config of the run and `fields` of its meta data, atomically.

        One write of `meta.json` changes both; the config file is written afterwards.
        """
        self.update_meta(
            config_sha256=_sha256(text.encode()), next_config_sha256=None, pending_config=text, **fields
        )  # fmt: skip
        write_atomically(self.path / CONFIG_FILE, text.encode())
        self.update_meta(pending_config=None)

    def remove_run(self) -> None:
        """Delete the run, and nothing else. `meta.json` goes first: without it a directory holds no run."""
        parts = self.meta.get("parts") or ()
        with _named_errors():
            (self.path / META_FILE).unlink()
            for part in (self.path / str(part) for part in parts):
                if part.parent == self.path and holds_run(part):
                    shutil.rmtree(part)
            for name in _OWN_DIRECTORIES:
                if (self.path / name).is_dir():
                    shutil.rmtree(self.path / name)
            remove_parts(self.metrics_path)
            for name in (CONFIG_FILE, METRICS_FILE):
                (self.path / name).unlink(missing_ok=True)

    @property
    def metrics_path(self) -> Path:
        return self.path / METRICS_FILE

    @property
    def checkpoints_path(self) -> Path:
        return self.path / "checkpoints"

    @property
    def replay_path(self) -> Path:
        return self.path / "replay"

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Keep other processes from training into this directory; the lock ends with the process, however it exits."""
        return locked_directory(self.path)

    def set_status(self, status: Status, **fields: Any) -> None:
        """Record the status of the run, and add `fields` to its meta data."""
        if status not in get_args(Status):
            raise ValueError(f"a run is {', '.join(get_args(Status))}, not {status!r}")
        self.update_meta(status=status, **fields)

    def update_meta(self, **fields: Any) -> None:
        """Change single entries of `meta.json`, atomically."""
        self._write_meta({**self.meta, **fields})

    def _write_meta(self, meta: Mapping[str, Any]) -> None:
        write_atomically(self.path / META_FILE, seal(json.dumps(plain(meta), indent=2, allow_nan=False)) + b"\n")


def make_directory(path: Path) -> None:
    """Make the directory of a run; if that fails, raise `RunDirectoryError` with the remedy."""
    with _named_errors():
        path.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def claimed_directory(path: Path) -> Iterator[None]:
    """Make and lock the directory of a run, so that two starts cannot mix; look for a run only under the lock.

    If the block fails before a run is made, the directories that were made for it are removed again.
    """
    with _named_errors():
        missing = [place for place in (path, *path.parents) if not place.exists()]
    with _removed_if_it_fails(missing):
        make_directory(path)
    with locked_directory(path), _removed_if_it_fails(missing):  # never without the lock: another may hold it
        yield


@contextlib.contextmanager
def _removed_if_it_fails(places: Sequence[Path]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for place in places:
            with contextlib.suppress(OSError):  # not empty: it is in use
                place.rmdir()
        raise


@contextlib.contextmanager
def locked_directory(path: Path) -> Iterator[None]:
    """Hold a lock on a directory; it ends with the process, however that exits."""
    with _named_errors():
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunDirectoryError(
                f"{path} is being trained by another process; wait for it to end, or give another --out"
            ) from None
        except OSError as error:
            raise RunDirectoryError(os_problem(error, path)) from error
        with _named_errors():
            in_place = is_at(directory, path)
        if not in_place:
            raise RunDirectoryError(f"{path} has just been removed by another command; give this one again")
        yield
    finally:
        os.close(directory)


def _why_not(path: Path) -> str:
    """Say why a path holds no run."""
    if not path.exists():
        return "there is nothing of this name"
    odd = (path / META_FILE).exists()
    return f"its {META_FILE} is no regular file" if odd else f"there is no {META_FILE} in it"


def holds_run(path: Path) -> bool:
    """Return whether there is a run in the directory."""
    with _named_errors():
        return (Path(path) / META_FILE).is_file()


@contextlib.contextmanager
def _named_errors() -> Iterator[None]:
    """Turn an `OSError` of this block into a `RunDirectoryError` with the path and the remedy."""
    try:
        yield
    except OSError as error:
        raise RunDirectoryError(os_problem(error)) from error


def file_name(name: str) -> str:
    """Return a name without characters that have a meaning in paths: tasks may be called `ALE/Pong-v5`."""
    return re.sub(r"[^\w@.+-]+", "-", name)


def refuse_foreign(path: Path) -> None:
    """Raise `RunDirectoryError` unless `path` is absent, empty, a run, or what a crash left of a new run."""
    path = Path(path)
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise RunDirectoryError(f"{str(path)!r} is no text in UTF-8; give another --out") from None
    with _named_errors():  # a name that is too long, a directory that may not be searched
        if path.exists() and not path.is_dir():
            raise RunDirectoryError(f"{path} is a file; --out needs a directory")
        if not path.is_dir() or holds_run(path):
            return
        foreign = sorted(entry.name for entry in path.iterdir() if not _BEGUN.fullmatch(entry.name))
    if foreign:
        shown = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
        raise RunDirectoryError(f"{path} is not empty and holds no run ({shown}); give another --out")


def read_meta(path: Path) -> dict[str, Any]:
    """Return the meta data of the run in `path`; `CorruptFileError` if it is damaged."""
    file = Path(path) / META_FILE
    stored = read_plain(file, cap_nbytes=_META_CAP_NBYTES)
    try:
        meta = unseal(stored)
    except CorruptFileError as error:
        raise CorruptFileError(f'{file}: {error} (if you edited it by hand, delete its key "crc")') from None
    if meta.get("v", VERSION) != VERSION:
        raise CorruptFileError(f"{file} is of version {meta['v']!r}; this clearl reads version {VERSION}")
    return meta


def describe_machine() -> dict[str, Any]:
    """Describe the machine, on which the run's speed depends; no host or user names."""
    return {"system": platform.system(), "machine": platform.machine(), "cores": os.cpu_count()}


def describe_versions(*packages: str) -> dict[str, str]:
    """Collect the versions of Python and of those `packages` that are installed."""
    versions = {"python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
