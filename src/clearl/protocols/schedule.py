"""A plan that the user writes: a YAML file with a list of segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearl.config import RunConfig, load_yaml
from clearl.errors import ConfigError, UnknownNameError
from clearl.protocols.visits import is_forever, planned_cycles
from clearl.tasks.plan import Plan, Segment

_TOP = ("segments", "evaluate", "repeat")
_KEYS = ("tasks", "weights", "end_weights", "frames", "episodes", "repeat")
_MOST_SEGMENTS = 100_000


def schedule(tasks: Sequence[str], config: RunConfig) -> list[Plan]:
    """Return the segments of the file `config.schedule`, `cycles` times over."""
    assert config.schedule is not None, "RunConfig asks for it where the protocol is schedule"
    path = Path(config.schedule)
    return [_plan(load_yaml(path), str(path), tasks, config)]


def schedule_tasks(path: Path) -> tuple[str, ...]:
    """Return every task that a schedule names, in the order of their first segments."""
    found = [task for entry in _entries(load_yaml(path), str(path)) for task in _tasks(entry, str(path))]
    return tuple(dict.fromkeys(found))


def _plan(content: Mapping[str, Any], source: str, tasks: Sequence[str], config: RunConfig) -> Plan:
    segments: list[Segment] = []
    for number, entry in enumerate(_entries(content, source), 1):
        where = f"{source}, segment {number}"
        repeat = _count(entry.get("repeat", 1), "repeat", where)
        segments += [_segment(entry, where, tasks)] * repeat
    cycles = _count(content.get("repeat", 1), "repeat", source) * planned_cycles(config)
    if len(segments) * cycles > _MOST_SEGMENTS:
        raise ConfigError(f"{source} has {len(segments) * cycles} segments; the most is {_MOST_SEGMENTS}")
    evaluate = content.get("evaluate", list(tasks))
    for task in evaluate if isinstance(evaluate, list) else [evaluate]:
        _check_task(task, tasks, f"{source}, evaluate")
    return Plan("schedule", tuple(segments * cycles), evaluate=tuple(evaluate), forever=is_forever(config))


def _entries(content: Mapping[str, Any], source: str) -> list[Mapping[str, Any]]:
    for key in content:
        if key not in _TOP:
            raise UnknownNameError(f"key of {source}", str(key), _TOP)
    entries = content.get("segments")
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(f"{source} needs segments: a list such as [{{tasks: [a], frames: 15000}}]")
    return entries


def _tasks(entry: Mapping[str, Any], where: str) -> tuple[str, ...]:
    named = entry.get("tasks")
    listed = [named] if isinstance(named, str) else named
    if not isinstance(listed, list) or not listed or not all(isinstance(task, str) for task in listed):
        raise ConfigError(f"{where} needs tasks: a list of names, got {named!r:.80}")
    return tuple(listed)


def _segment(entry: Mapping[str, Any], where: str, known: Sequence[str]) -> Segment:
    for key in entry:
        if key not in _KEYS:
            raise UnknownNameError(f"key of {where}", str(key), _KEYS)
    tasks = _tasks(entry, where)
    for task in tasks:
        _check_task(task, known, where)
    weights = _weights(entry.get("weights"), "weights", tasks, where) or (1 / len(tasks),) * len(tasks)
    lengths = {key: _count(entry[key], key, where) for key in ("frames", "episodes") if entry.get(key) is not None}
    end_weights = _weights(entry.get("end_weights"), "end_weights", tasks, where)
    try:
        return Segment(tasks, weights, end_weights=end_weights, **lengths)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _weights(value: Any, name: str, tasks: Sequence[str], where: str) -> tuple[float, ...] | None:
    if value is None:
        return None
    numbers = isinstance(value, list) and all(type(weight) in (int, float) for weight in value)
    if not numbers or len(value) != len(tasks):
        raise ConfigError(f"{where}: {name} must be {len(tasks)} numbers, one for each task, got {value!r:.80}")
    return tuple(float(weight) for weight in value)


def _count(value: Any, name: str, where: str) -> int:
    if type(value) is not int or not 1 <= value <= 10**13:
        raise ConfigError(f"{where}: {name} must be a whole number above 0, got {value!r:.80}")
    return value


def _check_task(task: Any, known: Sequence[str], where: str) -> None:
    if task not in known:
        raise UnknownNameError(f"task of {where}", str(task), known)
