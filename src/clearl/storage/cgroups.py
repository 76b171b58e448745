"""Limits of the control groups (containers, batch jobs) that this process is in, versions 1 and 2."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT, _MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


@dataclass(frozen=True)
class CpuGroups:
    """Reads the CPU controller; the paths are arguments so that tests can use their own."""

    root: Path = _ROOT
    membership: Path = _MEMBERSHIP

    def cores(self) -> int | None:
        """Return the cores' worth of time that the tightest quota leaves, rounded up; None where there is no quota."""
        shares = []
        for folder in _folders(self.root, self.membership, "cpu"):
            quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
            if quota is None:
                quota, period = _pair(folder / "cpu.max")
            if quota and period:
                shares.append(math.ceil(quota / period))
        return min(shares, default=None)


@dataclass(frozen=True)
class MemoryGroups:
    """Reads the memory controller; the paths are arguments so that tests can use their own."""

    root: Path = _ROOT
    membership: Path = _MEMBERSHIP
    vmstat: Path = Path("/proc/vmstat")

    def headroom_nbytes(self) -> int | None:
        """Return the bytes left under the tightest limit of this process's groups; None where there is no limit."""
        left = []
        for folder in _folders(self.root, self.membership, "memory"):
            for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
                most, now = _number(folder / limit), _number(folder / used)
                if most is not None and now is not None:
                    left.append(max(0, most - now))
        return min(left, default=None)

    def oom_kills(self) -> int:
        """Count out-of-memory kills in this process's group; on the whole machine if that is unknown."""
        for folder in _folders(self.root, self.membership, "memory"):
            for name in ("memory.events", "memory.oom_control"):
                count = _counter(folder / name)
                if count is not None:
                    return count
        return _counter(self.vmstat) or 0


def _folders(root: Path, membership: Path, controller: str) -> Iterator[Path]:
    """Yield the group of this process and all above it, the nearest first."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = root / controller if controllers else root
        inner = base / path.lstrip("/")
        # Inside a container the path may be the host's: then only the container's own root exists.
        folder = inner if inner.exists() else base
        while True:
            yield folder
            if folder == base:
                break
            folder = folder.parent


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # "max" means no limit


def _pair(path: Path) -> tuple[int | None, int | None]:
    """Return both numbers of `cpu.max`: quota and period, in microseconds."""
    try:
        quota, period = path.read_text().split()
    except (OSError, ValueError):
        return None, None
    return (int(quota), int(period)) if quota.isdigit() and period.isdigit() else (None, None)


def _counter(path: Path) -> int | None:
    """Return the value of `oom_kill` in a file of names and numbers."""
    try:
        rows = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return None
    return next((int(row[1]) for row in rows if len(row) == 2 and row[0] == "oom_kill" and row[1].isdigit()), None)
