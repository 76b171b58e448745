"""The contents of a row of `metrics.jsonl`, and its encoding as one line of JSON whose checksum detects damage."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from clearl.errors import CorruptFileError

VERSION = 1
METRICS_FILE = "metrics.jsonl"

Row = dict[str, Any]

_NUMBER = (int, float)
_CRC_KEY = b'"crc"'
# A seal whose key was damaged must not pass for an object without one.
_BROKEN_SEAL = re.compile(rb',"[^"]{1,4}":"[^"]{8}"\}\s*$')
_REQUIRED: dict[str, dict[str, tuple[type, ...]]] = {
    "eval": {
        "task": (str,),
        "frames": _NUMBER,
        "return": (*_NUMBER, type(None)),
        "episodes": (int,),
        "updates": (int,),
        "wall_s": _NUMBER,
    },
    "train": {
        "tasks": (list,),
        "frames": _NUMBER,
        "updates": (int,),
        "fps": (*_NUMBER, type(None)),
        "loss": (dict,),
        "lag_updates": (*_NUMBER, type(None)),
        "replay": (dict,),
        "wall_s": _NUMBER,
    },
    "segment": {
        "tasks": (list,),
        "start_frames": (int, type(None)),
        "end_frames": (int, type(None)),
    },
    "fault": {"frames": _NUMBER, "worker": (str,), "problem": (str,), "wall_s": _NUMBER},
    "restart": {"frames": _NUMBER, "worker": (str,), "after_s": _NUMBER, "wall_s": _NUMBER},
    "resume": {"frames": _NUMBER, "updates": (int,), "wall_s": _NUMBER},
    "continued": {"start_bytes": (int,)},
}


def eval_row(
    *,
    task: str,
    frames: int,
    mean_return: float,
    episodes: int,
    updates: int,
    wall_s: float,
    std: float | None = None,
    column: str = "",
    segment: int | None = None,
    skipped: int = 0,
    secondary: bool = False,
    success_rate: float | None = None,
) -> Row:
    """Build the row of one evaluation of one task, by weights published after `frames` frames of training.

    `segment`: the segment that ended with exactly these weights, if that is why they were evaluated.
    `skipped`: the number of evaluations that were due before this one and left out.
    `success_rate`: the share of successful episodes, if the environment reports success.
    `column`: which network was evaluated, if the method has several; `secondary`: another network's row is plotted.
    """
    row: Row = {"v": VERSION, "kind": "eval", "task": task, "frames": frames, "return": mean_return}
    row |= {"episodes": episodes, "updates": updates, "wall_s": wall_s}
    if std is not None:
        row["std"] = std
    if success_rate is not None:
        row["success_rate"] = success_rate
    if column:
        row["column"] = column
    if segment is not None:
        row |= {"switch": True, "segment": segment}
    if skipped:
        row["skipped"] = skipped
    if secondary:
        row["secondary"] = True
    return row


def train_row(
    *,
    tasks: Sequence[str],
    frames: int,
    updates: int,
    fps: float,
    loss: Mapping[str, float],
    lag_updates: float,
    replay: Mapping[str, Any],
    wall_s: float,
    extra: Mapping[str, Any] | None = None,
) -> Row:
    """Build the row of the learner's progress; `extra` holds further values to plot."""
    row: Row = {"v": VERSION, "kind": "train", "tasks": list(tasks), "frames": frames, "updates": updates, "fps": fps}
    row |= {"loss": dict(loss), "lag_updates": lag_updates, "replay": dict(replay), "wall_s": wall_s}
    return {**(extra or {}), **row}


def segment_row(
    *,
    tasks: Sequence[str],
    start_frames: int | None,
    end_frames: int | None,
    index: int,
    weights: Sequence[float] | None = None,
    end_weights: Sequence[float] | None = None,
    extra_frames: int = 0,
) -> Row:
    """Build the row of one segment. Its last `extra_frames` are additional, and not on a report's x-axis.

    Rows at the start of a run hold the planned bounds (None if episodes decide). When a segment begins and when it
    ends, another row with the same `index` replaces the earlier one, with the actual bounds in frames trained on.
    """
    row: Row = {"v": VERSION, "kind": "segment", "index": index, "tasks": list(tasks)}
    row["weights"] = [1 / len(tasks)] * len(tasks) if weights is None else list(weights)
    row["end_weights"] = None if end_weights is None else list(end_weights)
    if extra_frames:
        row["extra_frames"] = extra_frames
    return row | {"start_frames": start_frames, "end_frames": end_frames}


def fault_row(*, frames: int, worker: str, problem: str, wall_s: float) -> Row:
    """Build the row of a failure that the run survived."""
    return {"v": VERSION, "kind": "fault", "frames": frames, "worker": worker, "problem": problem, "wall_s": wall_s}


def restart_row(*, frames: int, worker: str, after_s: float, wall_s: float) -> Row:
    """Build the row of a recovery, `after_s` seconds after the failure."""
    return {"v": VERSION, "kind": "restart", "frames": frames, "worker": worker, "after_s": after_s, "wall_s": wall_s}


def resume_row(*, frames: int, updates: int, wall_s: float) -> Row:
    """Build the row of a run that resumed from a checkpoint."""
    return {"v": VERSION, "kind": "resume", "frames": frames, "updates": updates, "wall_s": wall_s}


def summary_row(values: Mapping[str, Any]) -> Row:
    """Build the row at the end of a run."""
    return {**values, "v": VERSION, "kind": "summary"}


def continued_row(*, start_bytes: int) -> Row:
    """Build the first row of a file whose earlier rows lie in closed parts; they take `start_bytes` bytes."""
    return {"v": VERSION, "kind": "continued", "start_bytes": start_bytes}


def check_row(row: Mapping[str, Any]) -> None:
    """Raise `CorruptFileError` unless the row is of this version and has the fields of its kind."""
    if row.get("v") != VERSION:
        raise CorruptFileError(f"row of schema version {row.get('v')!r}; this clearl reads version {VERSION}")
    kind = row.get("kind")
    if not isinstance(kind, str):
        raise CorruptFileError(f"a row needs a kind, got {kind!r}")
    for name, types in _REQUIRED.get(kind, {}).items():
        if name not in row:
            raise CorruptFileError(f"a row of kind {kind!r} needs the key {name!r}")
        if not isinstance(row[name], types) or isinstance(row[name], bool):
            raise CorruptFileError(f"key {name!r} of a row of kind {kind!r} holds {row[name]!r}")


def encode(row: Mapping[str, Any]) -> bytes:
    """Return the row as one line of strict JSON that ends in its checksum; numbers that are not finite become null."""
    return seal(json.dumps(plain(row), ensure_ascii=False, separators=(",", ":"), allow_nan=False)) + b"\n"


def decode(line: bytes) -> Row:
    """Return the row on a line, without its checksum; `CorruptFileError` if the line is damaged."""
    row = unseal(line)
    check_row(row)
    return row


def seal(text: str) -> bytes:
    """Return a JSON object with one more entry at its end, "crc": the crc32 of every byte before that entry."""
    head = text.removesuffix("}").rstrip().encode() + b","
    return b'%s"crc":"%08x"}' % (head, zlib.crc32(head))


def unseal(data: bytes) -> dict[str, Any]:
    """Return the object that `seal` was given; `CorruptFileError` if it is damaged.

    An object without a checksum is taken as it is, so that people and other programs can write one too.
    """
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CorruptFileError("not a JSON object")
    crc = value.pop("crc", None)
    if crc is None and _BROKEN_SEAL.search(data[-32:]):
        raise CorruptFileError("the name of its checksum is damaged")
    if crc is not None and crc != f"{zlib.crc32(data[: data.rfind(_CRC_KEY)]):08x}":
        raise CorruptFileError("it does not match its checksum")
    return value


def plain(value: Any) -> Any:
    """Convert to JSON types: NumPy scalars and arrays unpacked, numbers that are not finite as None."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    raise TypeError(f"{type(value).__name__} has no place in a row of metrics: {value!r}")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
