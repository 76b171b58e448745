"""Damage to the files of a run directory, and what loading them gives afterwards."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from whole_runs import assert_equal, assert_same_runs, contents, rows

from clearl.config import RunConfig, from_yaml, to_yaml
from clearl.errors import ClearlError
from clearl.records.reader import scan_rows
from clearl.records.run_dir import RunDir
from clearl.records.writer import check_position
from clearl.storage.checkpoints import CheckpointStore
from clearl.wiring import RunFactory, load_factory

KINDS = ("config.yaml", "meta.json", "metrics.jsonl", "state.json", "arrays.safetensors", "manifest.json", ".seg")

UNHARMED = "as if nothing had happened"


def files_of(out: Path, kind: str) -> list[Path]:
    return sorted(path for path in out.rglob("*") if path.is_file() and path.name.endswith(kind))


def flip(data: bytes, rng: random.Random) -> bytes:
    bit = rng.randrange(8 * len(data))
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


@dataclass(frozen=True)
class Loaded:
    """The result of loading one kind of file, and the notes on it."""

    content: Any
    complaints: tuple[str, ...] = ()


def load_settings(out: Path, config: RunConfig) -> Loaded:
    run_dir = RunDir.open(out)
    return Loaded([to_yaml(from_yaml(run_dir.config_text)), run_dir.meta])


def load_checkpoint(out: Path, config: RunConfig) -> Loaded:
    saved = CheckpointStore(out / "checkpoints").newest()
    assert saved is not None
    return Loaded([saved.path.name, saved.tree], saved.notes)


def load_metrics(out: Path, config: RunConfig) -> Loaded:
    """Load metrics as a resume and a report do. What lies behind the checkpoint is written anew by the resume."""
    saved = CheckpointStore(out / "checkpoints").newest()
    assert saved is not None
    position = int(saved.json["metrics_position"])
    check_position(out, position)
    behind = (out / "metrics.jsonl").read_bytes()[:position].count(b"\n")
    scan = scan_rows(out / "metrics.jsonl")
    damaged = [number for number in scan.damaged_lines if number <= behind]
    return Loaded(scan.rows[: behind - len(damaged)], tuple(f"line {number}" for number in damaged))


def load_replay(out: Path, config: RunConfig) -> Loaded:
    """The buffer as a resume takes it up; what is damaged must be missing and counted, never changed."""
    saved = CheckpointStore(out / "checkpoints").newest()
    assert saved is not None
    parts, held, complaints = _parts(out, config), [], []
    for slot, sequence in enumerate(saved.json["shards"]):
        shard = parts.shard(slot)
        shard.restore(int(sequence))
        held.append(contents(shard))
        counters = shard.counters()
        if counters["lost"] or counters["quarantined"]:
            complaints.append(f"slot {slot}: {counters['lost']} lost, {counters['quarantined']} quarantined")
        shard.close()
    return Loaded(held, tuple(complaints))


@cache
def _parts(out: Path, config: RunConfig) -> RunFactory:
    return load_factory(to_yaml(config), out)


LOADERS: dict[str, Callable[[Path, RunConfig], Loaded]] = {
    "config.yaml": load_settings, "meta.json": load_settings, "metrics.jsonl": load_metrics,
    "state.json": load_checkpoint, "arrays.safetensors": load_checkpoint, "manifest.json": load_checkpoint,
    ".seg": load_replay,
}  # fmt: skip


class Judge:
    """Knows what a sound run directory holds, and tells what damage did to it."""

    def __init__(self, out: Path, config: RunConfig) -> None:
        self.out, self.config = out, config
        self.sound = {kind: LOADERS[kind](out, config) for kind in KINDS}
        assert not any(loaded.complaints for loaded in self.sound.values())
        generations = sorted((out / "checkpoints").iterdir())
        assert len(generations) == 2
        older = CheckpointStore(out / "checkpoints").oldest()
        assert older is not None and older.path == generations[0]
        self.older = [older.path.name, older.tree]

    def verdict(self, kind: str) -> str:
        """refused, harmless, fell back or quarantined; `AssertionError` where something wrong was taken for right."""
        try:
            found = LOADERS[kind](self.out, self.config)
        except ClearlError:
            return "refused"
        sound = self.sound[kind].content
        if not found.complaints:
            assert_equal(sound, found.content, kind)
            return "harmless"
        if kind == ".seg":
            for slot, held in enumerate(found.content):
                assert_equal({key: sound[slot][key] for key in held}, held, f"slot {slot}")
            return "quarantined"
        if kind == "metrics.jsonl":
            assert all(row in sound for row in found.content)
            return "row missed"
        assert_equal(self.older, found.content, kind)
        return "fell back"


def judge_finished(whole: Path, out: Path, config: RunConfig) -> str:
    """Return how a fault shows in a finished run; raise `AssertionError` where the run differs silently."""
    scan = scan_rows(out / "metrics.jsonl")
    if scan.damaged_lines:
        known = [{**row, "wall_s": 0, "fps": 0} for row in scan_rows(whole / "metrics.jsonl").rows]
        assert all({**row, "wall_s": 0, "fps": 0} in known for row in scan.rows if row["kind"] in ("eval", "segment"))
        return "finished with a row that cannot be read, and its number told"
    problems = [row["problem"] for row in rows(out, "fault")]
    if any("unrolls of replay are lost" in problem for problem in problems):
        return "went on without some unrolls, and said so"
    quarantined = any(row["replay"]["quarantined"] for row in rows(out, "train"))
    forget_faults(out)
    assert_same_runs(whole, out, config)
    return UNHARMED + (", and said so" if problems or quarantined else "")


def forget_faults(out: Path) -> None:
    """Take out of the metrics what tells of faults: their rows, and the number of records that nobody needed."""
    lines = (out / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    kept = [re.sub(rb'"quarantined":\d+(.*),"crc":"\w+"', rb'"quarantined":0\1', line) for line in lines]
    (out / "metrics.jsonl").write_bytes(b"".join(line for line in kept if b'"kind":"fault"' not in line))
