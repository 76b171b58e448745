"""The messages between the processes of a run: one dataclass each, its fields checked on arrival."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from clearl.errors import EnvironmentFaultError


class ChannelClosed(Exception):
    """The other side has closed the connection or exited."""


class BadMessage(ValueError):
    """Bytes that no process of ours would have sent."""


# Parent to child.


@dataclass(frozen=True)
class Setup:
    """The first message: the child's program, and all that it needs to make its parts."""

    name: str
    """The process's name in `ps`."""
    program: str
    """`module:class` of `clearl.runtimes.programs`."""
    entry: str
    """`module:function` that makes the parts; see `clearl.runtimes.runtime.RunSpec.factory_entry`."""
    config: str
    run_dir: str
    incarnation: int
    slots: tuple[int, ...] = ()
    sequences: tuple[int, ...] = ()
    """Unrolls that each slot has been acknowledged for."""
    keep_unrolls_after_checkpoint: bool = False
    """True if unrolls beyond `sequences` stay in the shards: after a resume, not when one worker is restarted."""
    tasks: tuple[str, ...] = ()
    """The tasks of an evaluator."""
    played: tuple[str, ...] = ()
    """The task of each slot in the round that was reported last: the labels of its unrolls."""
    played_frames: int = -1
    """Frames that had been granted before that round."""


@dataclass(frozen=True)
class Produce:
    """Permission to act for one unroll; everything reported so far has been read."""

    tasks: tuple[str, ...]
    """One for each of the worker's slots."""
    frames: int = -1
    """Frames that had been granted before this round."""
    by_task: bool = False
    """True if the report says what the shards hold of each task."""


@dataclass(frozen=True)
class Sync:
    """Write the shards to disk so that they survive a loss of power."""


@dataclass(frozen=True)
class Evaluate:
    """Evaluate the weights in the evaluator's weight store."""

    switch: bool = False
    """True if they are the weights of a switch, which are evaluated with more episodes."""
    training: tuple[str, ...] = ()
    """The tasks that were trained on last with these weights."""


@dataclass(frozen=True)
class Close:
    """Close everything and end."""


# Child to parent.


@dataclass(frozen=True)
class Ready:
    """The child has made its parts and waits for work."""

    sequences: tuple[int, ...]
    lost: int
    """Unrolls that its shards ought to hold and do not."""


@dataclass(frozen=True)
class Alive:
    """The heartbeat while working; `building` environments may take longer than a step ever should."""

    building: bool


@dataclass(frozen=True)
class Produced:
    """One unroll for each slot is ready to be read."""

    version: int
    episodes: dict[str, tuple[float, ...]]
    """The episodes that ended; see `clearl.acting.actor.EpisodeSums`."""
    sequences: tuple[int, ...]
    replay: dict[str, int]
    seconds: dict[str, float]
    """Seconds since the last report, by activity."""
    faults: tuple[tuple[str, ...], ...] = ()
    """Faults that environments made good by themselves: the problem in one line, the traceback."""
    by_task: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """See `clearl.replay.labels.ByTask`; empty unless it was asked for."""


@dataclass(frozen=True)
class Synced:
    """Answer to `Sync`."""


@dataclass(frozen=True)
class Evaluated:
    """One task's scores. The first of an evaluation carries the time that all of it took."""

    task: str
    scores: tuple[float, ...]
    steps: int
    column: str
    others: dict[str, tuple[float, ...]]
    """Scores of further columns."""
    success_rates: dict[str, float]
    """Success rates by column, where the environment reports success."""
    version: int
    frames: int
    seconds: dict[str, float]
    faults: tuple[tuple[str, ...], ...] = ()
    """See `Produced`."""


@dataclass(frozen=True)
class Failed:
    """The child ends because of an error."""

    kind: str
    """Name of the exception's class."""
    problem: str
    """One line."""
    fingerprint: str
    """The same for the same fault in another slot or at another step."""
    traceback: str


Message = Setup | Produce | Sync | Evaluate | Close | Ready | Alive | Produced | Synced | Evaluated | Failed
AnyMessage = TypeVar("AnyMessage", bound=Message)

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Message)}
_HINTS = {kind: get_type_hints(kind) for kind in _KINDS.values()}


def pack(message: Message) -> tuple[Any, ...]:
    """Return the message as plain values: its name, then its fields in order."""
    return (type(message).__name__, *(getattr(message, field.name) for field in fields(message)))


def unpack(values: tuple[Any, ...]) -> Message:
    """Return the message that `pack` was given; `BadMessage` unless each field is of its declared type."""
    kind = _KINDS.get(values[0]) if values and isinstance(values[0], str) else None
    if kind is None:
        raise BadMessage(f"no message is called {values[:1]}")
    hints = _HINTS[kind]
    if len(values) - 1 != len(hints):
        raise BadMessage(f"{kind.__name__} has {len(hints)} fields, got {len(values) - 1}")
    for (name, hint), value in zip(hints.items(), values[1:], strict=True):
        if not _test_of(hint)(value):
            raise BadMessage(f"{kind.__name__}.{name} must be {hint}, got {type(value).__name__}")
    return kind(*values[1:])


@functools.cache  # made for each field anew, it takes six times as long as the rest of unpacking
def _test_of(hint: Any) -> Callable[[Any], bool]:
    """Return the test whether a value is of a type that fields have."""
    origin, tests = get_origin(hint), [_test_of(part) for part in get_args(hint) if part is not Ellipsis]
    if origin is tuple:
        return lambda value: isinstance(value, tuple) and all(map(tests[0], value))
    if origin is dict:
        key, item = tests
        return lambda value: isinstance(value, dict) and all(map(key, value)) and all(map(item, value.values()))
    return lambda value: type(value) is hint


def describe(error: Exception) -> Failed:
    """Describe an exception for the parent; for a fault of an environment, with the environment's own traceback."""
    problem = (str(error) or type(error).__name__).splitlines()[0]
    fingerprint, shown = problem, error
    if isinstance(error, EnvironmentFaultError):
        fingerprint = f"{error.task}: {error.problem.splitlines()[0]}"
    while isinstance(shown, EnvironmentFaultError) and shown.__cause__ is not None:
        shown = shown.__cause__
    return Failed(type(error).__name__, problem, fingerprint, "".join(traceback.format_exception(shown)))


def describe_faults(faults: Sequence[EnvironmentFaultError]) -> tuple[tuple[str, ...], ...]:
    """Describe faults for `Produced` and `Evaluated`."""
    return tuple((failed.problem, failed.traceback) for failed in map(describe, faults))
