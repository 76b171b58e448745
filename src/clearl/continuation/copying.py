"""A copy of a run up to its checkpoint: full files of the replay buffer are shared, everything else is copied."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from clearl.records.parts import RowFiles
from clearl.records.run_dir import RunDir
from clearl.records.schema import METRICS_FILE
from clearl.storage.checkpoints import Saved
from clearl.storage.switch_weights import SWITCHES_DIR


def copy_run(source: RunDir, target: Path, saved: Saved) -> int:
    """Copy a run up to its checkpoint; return the bytes of replay that were copied instead of linked."""
    position = int(saved.json["metrics_position"])
    with RowFiles(source.metrics_path) as rows, open(target / METRICS_FILE, "wb") as copy:
        copy.write(rows.read(0, position))
        copy.flush()
        os.fsync(copy.fileno())
    (target / "checkpoints").mkdir()
    shutil.copytree(saved.path, target / "checkpoints" / saved.path.name)
    if (source.path / SWITCHES_DIR).is_dir():
        shutil.copytree(source.path / SWITCHES_DIR, target / SWITCHES_DIR)
    copied = _copy_replay(source.replay_path, target / "replay")
    RunDir.begin(target, config_text=source.config_text, meta=source.meta)
    return copied


def _copy_replay(source: Path, target: Path) -> int:
    """Link full segment files of the buffer, which are never written to again, and copy the last one."""
    copied = 0
    for shard in sorted(source.iterdir()) if source.is_dir() else ():
        (target / shard.name).mkdir(parents=True)
        files = sorted(path for path in shard.iterdir() if path.suffix == ".seg")
        for file in files:
            place = target / shard.name / file.name
            if file == files[-1] or not _link(file, place):
                shutil.copyfile(file, place)
                copied += place.stat().st_size
    return copied


def _link(file: Path, place: Path) -> bool:
    try:
        os.link(file, place)
    except OSError:  # another file system, or one without links
        return False
    return True


def empty(directory: Path) -> None:
    """Remove the files that an earlier attempt left."""
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != ".lock":
            path.unlink()
