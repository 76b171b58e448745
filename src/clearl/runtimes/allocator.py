"""glibc's allocator, told to keep what is freed: page faults are nearly half of a learner's time otherwise."""

from __future__ import annotations

import ctypes
import platform

_TRIM_THRESHOLD_BYTES = 1 << 35
_TOP_PAD_BYTES = 1 << 26

ENVIRONMENT = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(_TRIM_THRESHOLD_BYTES),
    "MALLOC_TOP_PAD_": str(_TOP_PAD_BYTES),
}
"""For processes that are started; other C libraries ignore it."""

# Names and numbers of malloc.h. mallopt takes an int, so the threshold is as high as one goes.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> None:
    """The same for this process; does nothing where the C library is not glibc."""
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_MAX, 0)
    libc.mallopt(_M_TRIM_THRESHOLD, min(_TRIM_THRESHOLD_BYTES, (1 << 31) - 1))
    libc.mallopt(_M_TOP_PAD, _TOP_PAD_BYTES)
