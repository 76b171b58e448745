"""This machine: its cores and threads, its allocator, its processor, and the signals that this process gets."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from os import _exit  # the real one, also where environments get another
from types import FrameType
from typing import TYPE_CHECKING

from clearl.errors import ConfigError
from clearl.storage.cgroups import CpuGroups

if TYPE_CHECKING:  # a child process imports this file first, and must be quick
    from clearl.config import RunConfig


def cores() -> int:
    """Count the cores that this process may use: by its affinity, and by the CPU quota of a container or batch job."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(allowed, CpuGroups().cores() or allowed)


@contextmanager
def learner_threads(count: int | None) -> Iterator[None]:
    """Set the torch threads of this process while the block runs; by the number of cores if None."""
    import torch  # not above: a child process must be quick

    before = torch.get_num_threads()
    torch.set_num_threads(count or max(1, cores() // 4))  # the workers need the rest
    try:
        yield
    finally:
        torch.set_num_threads(before)


BACKGROUND_NICENESS = 5
"""Added to the priority value of a process that training does not wait for."""

_TRIM_THRESHOLD_BYTES = 1 << 35
_TOP_PAD_BYTES = 1 << 26

ALLOCATOR_ENVIRONMENT = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(_TRIM_THRESHOLD_BYTES),
    "MALLOC_TOP_PAD_": str(_TOP_PAD_BYTES),
}
"""Keeps freed memory in a child process: with glibc's defaults, page faults are nearly half of an Atari learner step.

Other C libraries ignore it."""

# Names and numbers of malloc.h. mallopt takes an int, so the threshold is as high as one goes.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> None:
    """Set in this process what `ALLOCATOR_ENVIRONMENT` sets in children; do nothing unless the C library is glibc."""
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_MAX, 0)
    libc.mallopt(_M_TRIM_THRESHOLD, min(_TRIM_THRESHOLD_BYTES, (1 << 31) - 1))
    libc.mallopt(_M_TOP_PAD, _TOP_PAD_BYTES)


_PROGRAM = """
import torch
torch.set_num_threads(1)
network = torch.nn.Sequential(torch.nn.Conv2d(4, 16, 3), torch.nn.Flatten(), torch.nn.Linear(1024, 64))
with torch.autocast("cpu", torch.bfloat16):
    network(torch.zeros(32, 4, 10, 10)).float().sum().backward()
"""


def check_autocast(config: RunConfig) -> None:
    """Raise `ConfigError` where bfloat16 kills the process: some VMs advertise instructions that raise SIGILL."""
    if config.autocast and config.device == "cpu" and (end := _try_out()):
        raise ConfigError(
            f"autocast must be false on this machine: a process that computes in bfloat16 {end}. "
            "ONEDNN_MAX_CPU_ISA=AVX2 in the environment may help"
        )


@functools.cache
def _try_out() -> str:
    """Compute in bfloat16 in another process; return how that ended, empty if all is well."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, check=False)
    return exit_in_words(done.returncode) if done.returncode else ""


_ONE_REQUEST_S = 1.0
"""Signals this soon after the first are the same request: a terminal that closes sends two, batch systems may signal
a process, its group, and the parent that passes it on."""


class StopFlag:
    """True once the run was asked to stop; holds the signal."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextmanager
def stop_on_signals() -> Iterator[StopFlag]:
    """Turn SIGINT, SIGTERM and SIGHUP into a flag while the block runs; only in the main thread.

    A later SIGINT or SIGTERM ends the process at once. SIGHUP comes when a terminal or a connection is lost, and never
    does that; where it is ignored (`nohup`), it stays so.
    """
    flag, asked_at = StopFlag(), 0.0
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked_at
        now = time.monotonic()
        if flag.signal is None:
            flag.signal, asked_at = number, now
        elif number != signal.SIGHUP and now - asked_at > _ONE_REQUEST_S:
            _exit(128 + number)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def quick_imports() -> Iterator[None]:
    """Disable garbage collection while importing, and freeze the result: saves a sixth of torch's import time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def exit_in_words(code: int) -> str:
    """Describe how a process ended."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def anonymous_file(name: str) -> int:
    """Open a file in memory that is freed with its last descriptor; `name` only shows in /proc."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:  # already without a name; other systems than Linux
        return os.dup(file.fileno())


def open_standard_descriptors() -> None:
    """Open the descriptors 0 to 2 that are closed (`<&- >&-`), so that no socket of ours takes their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
