"""Explain and shorten the names of tasks."""

from __future__ import annotations

from collections.abc import Sequence


def names_note(tasks: Sequence[str], suite: str | None) -> str:
    """Return a sentence for names such as MinAtar's `breakout@2`; empty where every name speaks for itself."""
    if suite != "minatar":
        return ""
    schemes = sorted({int(scheme) for task in tasks if (scheme := task.rpartition("@")[2]).isdigit() and "@" in task})
    if not schemes:
        return ""
    listed = ", ".join(f"@{scheme}" for scheme in schemes[:4]) + (", ..." if len(schemes) > 4 else "")
    return f"{listed}: the same game under another control scheme, that is with its actions permuted."


def short_names(tasks: Sequence[str], letters: int) -> list[str]:
    """Shorten names to `letters` letters; what all of them begin and end with goes first."""
    if max(map(len, tasks), default=0) <= letters:
        return list(tasks)
    head, tail = _common_start(tasks), _common_start([task[::-1] for task in tasks])
    if len(tasks) > 1 and head + tail < min(map(len, tasks)):
        tasks = [f"{'…' if head else ''}{task[head : len(task) - tail]}{'…' if tail else ''}" for task in tasks]
    return [cut(task, letters) for task in tasks]


def _common_start(texts: Sequence[str]) -> int:
    """Return how many letters all texts begin with."""
    first, last = min(texts), max(texts)
    return next((place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))


def cut(text: str, letters: int) -> str:
    """Return the text without its middle, where it is longer than `letters`."""
    if len(text) <= letters:
        return text
    head = (letters - 1) // 2
    return f"{text[:head]}…{text[len(text) - (letters - 1 - head) :]}"
