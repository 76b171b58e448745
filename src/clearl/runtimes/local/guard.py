"""Ends what the processes of a run started, also after a SIGKILL of the run itself.

The kernel ends workers with their parent, but not the games and servers that environments started. A guard is a small
process that outlives the run by a moment: it is told the process groups of all workers, and kills those that are left
when its connection closes. It runs as a plain script and imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_SHARED_MEMORY = "/dev/shm/"
_GONE_S = 2.0


class Guard:
    """The run's end of the connection to its guard."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def watch(self, group: int) -> None:
        """Kill this process group when the run is gone."""
        self._tell(f"+{group}\n")

    def release(self, group: int) -> None:
        """The group has ended: its number may soon be another's."""
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """End the guard, and what it still watches."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # somebody killed it: the run goes on without
            os.write(self._process.stdin.fileno(), line.encode())


def end_group(group: int) -> None:
    """Kill a process group, and remove the named shared memory that only its processes had mapped."""
    members = list(_members(group))
    names = {name for pid in members for name in _mapped(pid)}
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    if names:
        deadline = time.monotonic() + _GONE_S
        while time.monotonic() < deadline and any(_mapped(pid) for pid in members):
            time.sleep(0.01)
        in_use = {name for pid in _pids() for name in _mapped(pid)}
        for name in names - in_use:
            with contextlib.suppress(OSError):
                os.unlink(name)


def _pids() -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from (int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def _members(group: int) -> Iterator[int]:
    for pid in _pids():
        with contextlib.suppress(OSError, IndexError, ValueError):
            # After the command in parentheses: state, parent, process group.
            if int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[2]) == group:
                yield pid


def _mapped(pid: int) -> set[str]:
    """Files of named shared memory that a process has mapped."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
        names = {line[line.index(_SHARED_MEMORY) :] for line in lines if _SHARED_MEMORY in line}
        return {name for name in names if not name.endswith(" (deleted)")}
    return set()


def main() -> None:
    """Read `+GROUP` and `-GROUP` lines until the connection closes; kill what is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watched: set[int] = set()
    for line in sys.stdin:
        (watched.add if line[0] == "+" else watched.discard)(int(line[1:]))
    for group in watched:
        end_group(group)


if __name__ == "__main__":
    main()
