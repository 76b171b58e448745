"""Files of a run: replaced atomically, read only if they are regular files, with errors that name the remedy."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from clearl.errors import CorruptFileError, StorageError, os_problem

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the content of `path`, so that a crash leaves the old or the new; `StorageError` if it fails."""
    # Named after the process: two that write at once must not mix their halves.
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise storage_error(path, error, needed=len(data)) from error


def copy_file(source: Path, target: Path) -> int:
    """Copy the content of a file; return its size in bytes. `StorageError` if it fails."""
    try:
        shutil.copyfile(source, target)
        return target.stat().st_size
    except OSError as error:
        raise storage_error(target, error, needed=source.stat().st_size) from error


def link_or_copy(source: Path, target: Path) -> int:
    """Link a file that is never written to again, or copy it; return the bytes that were copied."""
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        return copy_file(source, target)
    return 0


def sync_directory(path: Path | str) -> None:
    """Make the names in a directory survive a power cut."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def is_at(descriptor: int, path: Path) -> bool:
    """Return whether an open directory is still the one at `path`: another process may have removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def storage_error(path: Path | str, error: OSError, *, needed: int = 0, then: str = "") -> StorageError:
    """Return the error for a write that failed; `then` says what becomes of the run."""
    text = os_problem(error, path)
    free = free_nbytes(Path(path))
    if error.errno in _FULL and free is not None:
        text += f" ({needed} bytes needed, {free} free)"
    return StorageError(f"{text}. {then}" if then else text)


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` of this block into a `StorageError` with the path and the remedy."""
    try:
        yield
    except OSError as error:
        raise storage_error(path if error.filename is None else error.filename, error) from error


def free_nbytes(path: Path) -> int | None:
    """Return the bytes free on the file system of `path`, which need not exist yet; None if unknown."""
    with contextlib.suppress(OSError, StopIteration):
        place = next(place for place in (path, *path.absolute().parents) if place.exists())
        return shutil.disk_usage(place).free
    return None


def read_plain(path: Path, *, cap_nbytes: int) -> bytes:
    """Return the bytes of a regular file of at most `cap_nbytes`; refuse pipes and devices, which may never end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise CorruptFileError(f"{path} cannot be read: {error.strerror}") from None
    try:
        with open(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise CorruptFileError(f"{path} is no plain file")
            if about.st_size > cap_nbytes:
                raise CorruptFileError(f"{path} has {about.st_size:,} bytes; no more than {cap_nbytes:,} can be right")
            return file.read(about.st_size)
    except OSError as error:
        raise CorruptFileError(f"{path} cannot be read: {error.strerror}") from None
