"""The page on files against a real run: it has every key of a row, and a row has every key that is certain there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from clearl.config import RunConfig
from clearl.experiment import run
from clearl.records.table import MetricsTable

PAGE = (Path(__file__).parents[2] / "docs" / "files.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^\*\*`(\w+)`\*\*(.*?)(?=^\*\*`|^## |^### |\Z)", PAGE, flags=re.M | re.S))
BY_NAME = {"loss", "shares", "seconds", "terms", "method"}
"""Entries of a row whose keys are names: of losses, tasks, processes and what a method reports."""
OF_NAMES = {"episodes", "health", "by_task"}
"""Entries whose keys are names, with the same keys below each."""
EVERYTHING = {
    "suite": "minatar", "tasks": ("breakout", "asterix"), "protocol": "simultaneous", "method": "clear", "cycles": 1,
    "frames_per_visit": 2_000, "slots": 8, "workers": 1, "batch_unrolls": 8, "unroll_steps": 5, "eval_max_steps": 20,
    "record_every_updates": 1, "diagnose_every_updates": 1, "eval_every_frames": 2_000, "eval_episodes": 1,
    "switch_episodes": 1, "runtime": "local",
}  # fmt: skip
"""Settings of a run whose train rows hold every optional entry."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "a"
    run(RunConfig(**EVERYTHING), out, console=False)
    return out


def _keys(values: Mapping[str, Any]) -> Iterator[str]:
    """The keys of a row, at every level, that are the same in all runs."""
    for key, value in values.items():
        yield key
        if isinstance(value, Mapping) and key not in BY_NAME:
            for part in value.values() if key in OF_NAMES else [value]:
                yield from _keys(part)


def test_every_key_of_every_row_is_on_the_page(recorded: Path) -> None:
    found = {(row["kind"], key) for row in MetricsTable.read(recorded) for key in _keys(row)}
    assert {kind for kind, _ in found} >= {"train", "eval", "segment", "summary"}
    assert {key for kind, key in found if kind == "train"} >= {
        "episodes", "mean_length", "shares", "seconds", "health", "restarts", "by_task", "median_age_frames",
        "diagnostics", "clipped_share", "cosine",
    }  # fmt: skip
    missing = [
        pair for pair in sorted(found) if pair[1] not in ("v", "kind") and f"`{pair[1]}`" not in SECTIONS[pair[0]]
    ]
    assert missing == []


@pytest.mark.parametrize("kind", ["train", "eval"])
def test_every_key_without_a_question_mark_is_in_every_row(recorded: Path, kind: str) -> None:
    table = SECTIONS[kind].partition("`diagnostics` describes one update")[0]
    cells = re.findall(r"^\| (`[^|]+) \|", table, flags=re.M)
    certain = {name for cell in cells for name, mark in re.findall(r"`(\w+)`(\??)", cell) if not mark}
    rows = list(MetricsTable.read(recorded).where(kind=kind))
    assert len(certain) >= 6 and rows
    assert [name for name in sorted(certain) if not all(name in row for row in rows)] == []


def test_every_key_of_meta_json_is_on_the_page(recorded: Path) -> None:
    section = PAGE.partition("## meta.json")[2].partition("\n## ")[0]
    meta = json.loads((recorded / "meta.json").read_text(encoding="utf-8"))
    assert [key for key in meta if key != "crc" and f"`{key}`" not in section] == []
