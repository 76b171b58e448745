"""Every exception that a user can meet. Each message says what is wrong and what to do about it."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable
from typing import Any


class ClearlError(Exception):
    """Base of all errors of clearl; the command line prints it as one line and exits with `exit_code`."""

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle any constructor's arguments: an error of the learner is raised again in the command's process."""
        return _made_again, (type(self), *self.args), vars(self)


def _made_again(kind: type[ClearlError], *args: Any) -> ClearlError:
    return kind.__new__(kind, *args)


class ConfigError(ClearlError):
    """A setting is unknown, out of range or at odds with another."""

    exit_code = 2


class UnknownNameError(ConfigError):
    """A name that is not registered, with the nearest ones that are."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        options = sorted(known)
        near = difflib.get_close_matches(name, options, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(options)}"
        super().__init__(f"unknown {kind} {name!r}; {hint}")
        self.name, self.known = name, options

    @classmethod
    def check(cls, kind: str, names: Iterable[str], known: Iterable[str]) -> None:
        """Raise it for the first of `names` that is not in `known`."""
        for name in names:
            if name not in known:
                raise cls(kind, name, known)


class UnfitError(ConfigError):
    """A part of an environment that cannot be trained on, with the remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem, self.remedy = problem, remedy


class UnfitSpaceError(UnfitError):
    """A space of an environment that no network of ours can read or act in."""


class UnfitMaskError(UnfitError):
    """A mask of a state that does not fit the actions, or allows none."""


class MissingExtraError(ClearlError):
    """A suite or runtime needs a package that is not installed."""

    exit_code = 2

    def __init__(self, what: str, package: str, remedy: str) -> None:
        super().__init__(f"{what} needs the package {package!r}, which is not installed; {remedy}")


class NoPictureError(ClearlError):
    """An environment that cannot draw itself here; what the agent sees can be drawn instead."""


class RunDirectoryError(ClearlError):
    """The output directory holds something that this run must not touch."""

    exit_code = 2


class CorruptFileError(ClearlError):
    """A file of a run directory is damaged, hostile or of another version."""


class StorageError(ClearlError):
    """A write failed: the path, the bytes needed and the bytes free."""


class EnvironmentFaultError(ClearlError):
    """An environment raised, or returned something that training must not see."""

    def __init__(self, task: str, slot: int, step: int, problem: str) -> None:
        super().__init__(f"environment of task {task!r}, slot {slot}, step {step}: {problem}")
        self.task, self.slot, self.step, self.problem = task, slot, step, problem

    def in_slot(self, slot: int) -> EnvironmentFaultError:
        """Return the same fault under another number of the slot: a batch counts its own, a run counts all."""
        moved = EnvironmentFaultError(self.task, slot, self.step, self.problem)
        moved.__cause__ = self
        return moved


class WorkerError(ClearlError):
    """A worker failed and cannot be restarted; the message ends with the worker's own traceback."""


class DivergedError(ClearlError):
    """Losses or gradients were not finite several times in a row."""


class ReportError(ClearlError):
    """The runs given cannot be reported, or not together."""

    exit_code = 2


_OS_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room, or write to another disk"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "give a place that you may write to, or its rights"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "raise the limit of open files, e.g. ulimit -n 65536"),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST, errno.EISDIR), "something else is in the way; give another path"),
    **dict.fromkeys((errno.ENOENT, errno.ELOOP), "a part of the path is missing, or a link that leads nowhere"),
    errno.ENAMETOOLONG: "give a shorter path",
    errno.EIO: "the disk reports an error; check it",
}


def os_problem(error: OSError, path: object = None) -> str:
    """Return the path, what the system says of it, and the remedy, in one line."""
    where = path if path is not None else error.filename if error.filename is not None else "the output"
    said = error.strerror or str(error) or type(error).__name__
    remedy = _OS_REMEDIES.get(error.errno or 0)
    return f"{where}: {said}" + (f"; {remedy}" if remedy else "")
