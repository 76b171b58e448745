"""Labels of stored unrolls, for people: task, frame and return. They stay in the store and reach no batch.

A label lies in the record beside the payload, so that it survives whatever the record survives. `ReplayShard.draw`
gives the payload alone. Records of version 0.1 have none; they are shown as `UNKNOWN_TASK`.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

UNKNOWN_TASK = "unknown"
_HEAD = struct.Struct("<Bqf")  # bytes of the name, frames, return
_MAX_NAME_NBYTES = 96
MAX_LABEL_NBYTES = _HEAD.size + _MAX_NAME_NBYTES
_MAX_TASKS = 1 << 16  # of an index; the last number stands for all tasks beyond

ByTask = dict[str, tuple[float, ...]]
"""The contents of shards by task: number of unrolls, and the median frame that they were played at (nan: unknown)."""


class Label(NamedTuple):
    """The description of an unroll for people."""

    task: str = UNKNOWN_TASK
    frames: int = -1
    """Frames that had been granted when it was played; -1 where it is not known."""
    reward_sum: float = math.nan
    """Its return: the sum of its rewards, as the environment gave them."""


UNKNOWN = Label()

LABEL = np.dtype([("task", np.uint16), ("frames", np.int64), ("reward_sum", np.float32)])
"""A label in a table; the task as its number in this process (`task_number`)."""


def stored_name(task: str) -> str:
    """Return the name that a label holds: the task's own, or the start of a long one with a hash of all of it."""
    name = task.encode()
    if len(name) <= _MAX_NAME_NBYTES:
        return task
    start = name[: _MAX_NAME_NBYTES - 9].decode(errors="ignore")
    return f"{start}~{hashlib.sha256(name).hexdigest()[:8]}"


@lru_cache(maxsize=1024)
def _encoded(task: str) -> bytes:
    return stored_name(task).encode()


def pack_label(label: Label) -> bytes:
    """Pack a label into at most `MAX_LABEL_NBYTES`."""
    name = _encoded(label.task)
    return _HEAD.pack(len(name), label.frames, label.reward_sum) + name


def label_nbytes(data: Any, offset: int) -> int:
    """Return the bytes of the label at `offset`."""
    return _HEAD.size + data[offset]


def read_label(data: Any, offset: int) -> Label:
    """Return the label at `offset`, where one was packed."""
    length, frames, reward_sum = _HEAD.unpack_from(data, offset)
    start = offset + _HEAD.size
    return Label(bytes(data[start : start + length]).decode(errors="replace"), frames, reward_sum)


_numbers: dict[str, int] = {}
_names: list[str] = []


def task_number(task: str) -> int:
    """Return the number of a task in the tables of this process."""
    number = _numbers.get(task)
    if number is None:
        number = len(_names)
        if number == _MAX_TASKS - 1:
            _names.append("other tasks")
        if number >= _MAX_TASKS - 1:
            return _MAX_TASKS - 1
        _numbers[task] = number
        _names.append(task)
    return number


def task_name(number: int) -> str:
    """Return the task of that number."""
    return _names[number]


def as_row(label: Label) -> tuple[int, int, float]:
    """Return the label as an entry of a table of `LABEL`."""
    return task_number(label.task), label.frames, label.reward_sum


def count_by_task(tables: Sequence[np.ndarray]) -> ByTask:
    """Sum up tables [n] of task numbers and frames."""
    tasks = np.concatenate([np.empty(0, np.uint16), *(table["task"] for table in tables)])
    frames = np.concatenate([np.empty(0, np.int64), *(table["frames"] for table in tables)])
    found: ByTask = {}
    for number in np.unique(tasks).tolist():
        mine = frames[tasks == number]
        known = mine[mine >= 0]
        found[task_name(number)] = (float(len(mine)), float(np.median(known)) if len(known) else math.nan)
    return found


def merged_by_task(parts: Iterable[ByTask], now_frames: int) -> dict[str, dict[str, int | None]]:
    """Merge for a row: unrolls by task and their median age; over several workers the mean of their medians."""
    sums: dict[str, list[tuple[float, ...]]] = {}
    for part in parts:
        for task, counted in part.items():
            sums.setdefault(task, []).append(counted)
    return {task: _merged(sums[task], now_frames) for task in sorted(sums)}


def _merged(counted: Sequence[tuple[float, ...]], now_frames: int) -> dict[str, int | None]:
    unrolls = sum(count for count, _ in counted)
    known = [(count, median) for count, median in counted if not math.isnan(median)]
    weight = sum(count for count, _ in known)
    age = round(now_frames - sum(count * median for count, median in known) / weight) if weight else None
    return {"unrolls": int(unrolls), "median_age_frames": None if age is None else max(0, age)}


def table_of(labels: Mapping[int, Label], count: int) -> np.ndarray:
    """[count] of `LABEL`: `labels` by position, the rest unknown."""
    table = np.full(count, np.array(as_row(UNKNOWN), LABEL))
    for position, label in labels.items():
        table[position] = as_row(label)
    return table
