"""A copy of a run up to its checkpoint: files that are never written to again are shared, the others copied."""

from __future__ import annotations

import shutil
from pathlib import Path

from clearl.records.parts import copy_rows
from clearl.records.run_dir import RunDir
from clearl.records.schema import METRICS_FILE
from clearl.storage.checkpoints import Saved
from clearl.storage.files import copy_file, link_or_copy
from clearl.storage.switch_weights import SWITCHES_DIR


def copy_run(source: RunDir, target: Path, saved: Saved) -> int:
    """Copy a run up to its checkpoint; return the bytes of replay that were copied instead of linked."""
    copy_rows(source.metrics_path, target / METRICS_FILE, int(saved.json["metrics_position"]))
    _copy_files(saved.path, target / "checkpoints" / saved.path.name)
    _copy_files(source.path / SWITCHES_DIR, target / SWITCHES_DIR)
    copied = _copy_replay(source.replay_path, target / "replay")
    RunDir.begin(target, config_text=source.config_text, meta=source.meta)
    return copied


def _copy_files(source: Path, target: Path) -> None:
    for file in sorted(source.iterdir()) if source.is_dir() else ():
        target.mkdir(parents=True, exist_ok=True)
        copy_file(file, target / file.name)


def _copy_replay(source: Path, target: Path) -> int:
    """Link full segment files of the buffer, which are never written to again, and copy the last one."""
    copied = 0
    for shard in sorted(source.iterdir()) if source.is_dir() else ():
        (target / shard.name).mkdir(parents=True)
        *full, last = sorted(path for path in shard.iterdir() if path.suffix == ".seg") or [None]
        copied += sum(link_or_copy(file, target / shard.name / file.name) for file in full if file)
        copied += copy_file(last, target / shard.name / last.name) if last else 0
    return copied


def empty(directory: Path) -> None:
    """Remove the files that an earlier attempt left."""
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != ".lock":
            path.unlink()
