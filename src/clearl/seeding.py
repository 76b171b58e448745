"""Every random number of a run comes from its seed through these functions, never from the operating system."""

from __future__ import annotations

import hashlib

import numpy as np

_MASK = (1 << 64) - 1


def derive(seed: int, *names: str | int) -> int:
    """Return a 63-bit seed for the part of the run that `names` describe; different names give independent streams."""
    text = "/".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return a NumPy generator for the part of the run that `names` describe."""
    return np.random.Generator(np.random.PCG64(derive(seed, *names)))


def unroll_number(stream: int, sequence: int) -> int:
    """Return the unroll's random number as a 64-bit integer (splitmix64).

    Uniform, and the same after every recovery.
    """
    z = (stream + (sequence + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def unroll_numbers(stream: int, sequences: np.ndarray) -> np.ndarray:
    """Return `unroll_number` for many sequence numbers at once."""
    z = (sequences.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(stream & _MASK)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
