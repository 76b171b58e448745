"""Ends programs that the processes of a run started, even after a SIGKILL of the run itself.

The kernel ends workers with their parent, but not the games and servers that environments started. A guard is a small
process that outlives the run by a moment: it receives the process groups of all workers, and kills those that are left
when its connection closes. It also records which named shared memory they had mapped, because a game that exits by
itself when its environment has ended leaves that behind. It runs as a plain script and imports little: it competes
for the cores with the workers that start beside it.

A program that leaves the process group (`setsid`, a daemon) is found by the variable `MARK` of its environment, which
it inherits from its worker and keeps when its parent has exited. This works on Linux only, where /proc shows it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterable, Iterator

MARK = "CLEARL_MARK"
"""The variable of the environment that names what a process of a run has started."""

_SHARED_MEMORY = "/dev/shm/"
_GONE_S = 2.0
_CLOSE_S = 30.0
_ROUNDS = 3  # a killed process may have started another one just before
_LOOK_EVERY_S, _LOOK_WHILE_BUILDING_S = 10.0, 0.05


class Guard:
    """The run's end of the connection to its guard."""

    def __init__(self) -> None:
        import subprocess

        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)  # a guard that does not read must not hold up the run

    @property
    def pid(self) -> int:
        return self._process.pid

    def watch(self, mark: str, group: int) -> None:
        """Have all processes with this mark, and the process group, killed when the run has ended; 0 is no group."""
        self._tell(f"+{mark} {group}\n")

    def look(self, mark: str, *, building: bool) -> None:
        """Remember the shared memory that the group has mapped: it builds environments, or has built them."""
        self._tell(f"{'~' if building else '='}{mark} 0\n")

    def release(self, mark: str) -> None:
        """Drop a group that has ended, as its number may be reused; remove its remaining shared memory."""
        self._tell(f"-{mark} 0\n")

    def close(self) -> None:
        """End the guard, and what it still watches."""
        from subprocess import TimeoutExpired

        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.send_signal(signal.SIGCONT)  # somebody may have stopped it
        try:
            self._process.wait(_CLOSE_S)
        except TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # somebody killed it: the run continues without
            os.write(self._process.stdin.fileno(), line.encode())


def new_mark() -> str:
    """Return a mark that no other process bears."""
    return os.urandom(8).hex()


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """End what this process starts in the block when the block ends, or when the process does."""
    guard, mark, before = Guard(), new_mark(), os.environ.get(MARK)
    guard.watch(mark, 0)
    os.environ[MARK] = mark
    try:
        yield
    finally:
        del os.environ[MARK]
        if before is not None:
            os.environ[MARK] = before
        guard.close()


def end_group(mark: str, group: int, known: Iterable[str] = ()) -> None:
    """Kill a process group and all processes with the mark; remove the named shared memory that only they had mapped.

    It consists of the names that they have mapped now, and those in `known`.
    """
    members, names = set[int](), set(known)
    for _ in range(_ROUNDS):
        found = set(_members(mark, group)) - members
        names |= {name for pid in found for name in _mapped(pid)}
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if group:
                os.killpg(group, signal.SIGKILL)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            break
        members |= found
    if names:
        deadline = time.monotonic() + _GONE_S
        while time.monotonic() < deadline and any(_mapped(pid) for pid in members):
            time.sleep(0.01)
        _remove(names)


def _remove(names: set[str]) -> None:
    """Remove the files of shared memory that nobody uses."""
    names = {name for name in names if os.path.exists(name)}
    in_use = {name for pid in _pids() for name in _mapped(pid)} if names else set()
    for name in names - in_use:
        with contextlib.suppress(OSError):
            os.unlink(name)


def _pids() -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from (int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def _members(mark: str, group: int) -> Iterator[int]:
    """Yield the processes of a group, and those that bear the mark; each is left out if empty."""
    for pid in _pids():
        with contextlib.suppress(OSError, IndexError, ValueError):
            if (group and _group(pid) == group) or (mark and _bears(pid, mark)):
                yield pid


def _bears(pid: int, mark: str) -> bool:
    return f"{MARK}={mark}" in _read(f"/proc/{pid}/environ").split("\0")


def _group(pid: int) -> int:
    # After the command in parentheses: state, parent, process group.
    return int(_read(f"/proc/{pid}/stat").rpartition(")")[2].split()[2])


def _mapped(pid: int) -> set[str]:
    """Return the files of named shared memory that a process has mapped."""
    with contextlib.suppress(OSError):
        lines = _read(f"/proc/{pid}/maps").splitlines()
        names = {line[line.index(_SHARED_MEMORY) :] for line in lines if _SHARED_MEMORY in line}
        return {name for name in names if not name.endswith(" (deleted)")}
    return set()


def _read(path: str) -> str:
    with open(path, errors="replace") as file:
        return file.read()


class _Watch:
    """The process group of each mark of a run, and the shared memory that it was seen to have mapped."""

    def __init__(self) -> None:
        self.groups: dict[str, tuple[int, set[str]]] = {}
        self._building: set[str] = set()

    def obey(self, order: str, mark: str, group: int) -> None:
        """`+` a group begins, `~` it builds environments, `=` it has built them, `-` it has ended."""
        self._building.discard(mark)
        if order == "+":
            self.groups[mark] = group, set()
        elif order == "-":
            _remove(self.groups.pop(mark, (0, set[str]()))[1])
        elif order == "~":
            self._building.add(mark)
        else:
            self._look(mark)

    @property
    def wait_s(self) -> float:
        return _LOOK_WHILE_BUILDING_S if self._building else _LOOK_EVERY_S

    def look(self) -> None:
        """Look at the groups that are building environments, or at all groups if none is."""
        for mark in self._building or list(self.groups):
            self._look(mark)

    def _look(self, mark: str) -> None:
        group, names = self.groups.get(mark, (0, set[str]()))
        if group:  # marks are searched for at the end only: too slow for twenty times a second
            names.update(name for pid in _members("", group) for name in _mapped(pid))


def main() -> None:
    """Obey lines such as `+GROUP` until the connection closes; kill what is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watch, unread = _Watch(), b""
    while True:
        if not select.select([0], [], [], watch.wait_s)[0]:
            watch.look()
            continue
        data = os.read(0, 4096)
        if not data:
            break
        *lines, unread = (unread + data).split(b"\n")
        for line in lines:
            mark, group = line[1:].decode().split()
            watch.obey(chr(line[0]), mark, int(group))
    for mark, (group, known) in watch.groups.items():
        end_group(mark, group, known)


if __name__ == "__main__":
    main()
