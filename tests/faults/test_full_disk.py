from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from small_disk import SmallDisk
from whole_runs import assert_same_runs, context, small_config

from clearl.config import RunConfig
from clearl.errors import ConfigError, StorageError
from clearl.experiment import run
from clearl.records.schema import Row
from clearl.storage.checkpoints import CheckpointStore

CONFIGS = {
    "checkpoint": small_config(cycles=1),
    # No checkpoint before the end: it is replay that needs the room.
    "replay segment": small_config(cycles=1, frames_per_visit=1200, buffer_frames=2400, checkpoint_every_frames=None),
}
Record = Callable[[str, object], None]
TOLD = re.compile(r"(/\S+?): .*?\((\d+) bytes needed, (\d+) free\)")


@dataclass(frozen=True)
class Prepared:
    """A run that was stopped soon after its start, and its end when nothing fails."""

    config: RunConfig
    whole: Path
    stopped: Path


@pytest.fixture(scope="module", params=CONFIGS)
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    path, written = tmp_path_factory.mktemp("prepared"), []
    config = CONFIGS[request.param]
    run(config, path / "whole", console=False)

    def stop(row: Row) -> None:
        written.append(row)
        if len(written) == 6:
            os.kill(os.getpid(), signal.SIGTERM)

    run(config, path / "stopped", console=False, listeners=[stop])
    return Prepared(config, path / "whole", path / "stopped")


def fill_up(prepared: Prepared, disk_path: Path, offsets: list[int], report: Path) -> None:
    """Resume a run on a disk that is nearly full, then with room, for each of `offsets`."""
    disk, failed = SmallDisk(disk_path, 16 << 20), Counter[str]()
    for free in offsets:
        out = Path(shutil.copytree(prepared.stopped, disk.path / "run"))
        before = CheckpointStore(out / "checkpoints").newest()
        assert before is not None
        with disk.only(free):
            failed[where_it_failed(prepared.config, out)] += 1
        after = CheckpointStore(out / "checkpoints").newest()
        assert after is not None and not after.notes and after.tree
        assert after.path.name >= before.path.name
        assert run(prepared.config, out, console=False).status == "finished"
        assert not [path for path in out.rglob("*") if "tmp" in path.name]
        assert_same_runs(prepared.whole, out, prepared.config)
        shutil.rmtree(out)
    report.write_text(json.dumps({"disk": disk.kind, "failed": failed}))


def where_it_failed(config: RunConfig, out: Path) -> str:
    try:
        run(config, out, console=False)
    except StorageError as error:
        told = TOLD.search(str(error))
        assert told, f"the error does not say path, bytes needed and free: {error}"
        path = next(group for group in told.groups() if group and group.startswith("/"))
        place = Path(path).relative_to(out).parts
        return {"replay": "replay segment", "checkpoints": "checkpoint"}.get(place[0], place[0])
    return "nowhere: there was room enough"


def check(prepared: Prepared, tmp_path: Path, offsets: list[int], record: Record) -> Counter[str]:
    report = tmp_path / "report.json"
    process = context().Process(target=fill_up, args=(prepared, tmp_path / "disk", offsets, report))
    process.start()
    process.join()
    assert process.exitcode == 0
    found = json.loads(report.read_text())
    failed = ", ".join(f"{count} at {place}" for place, count in found["failed"].items())
    record("offsets", f"{len(offsets)} on a {found['disk']}; failed: {failed}")
    return Counter(found["failed"])


def test_a_full_disk(
    prepared: Prepared, tmp_path: Path, record_property: Record, request: pytest.FixtureRequest
) -> None:
    failed = check(prepared, tmp_path, [0, 20 << 10], record_property)
    assert failed["meta.json"] == 1 and failed[request.node.callspec.params["prepared"]] == 1


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_a_full_disk_at_many_offsets(
    prepared: Prepared, tmp_path: Path, record_property: Record, request: pytest.FixtureRequest
) -> None:
    failed = check(prepared, tmp_path, [4096 * n for n in range(30)], record_property)
    assert failed[request.node.callspec.params["prepared"]] >= 10


def test_a_run_that_cannot_even_begin_says_so(tmp_path: Path) -> None:
    process = context().Process(target=begin_on_full_disk, args=(tmp_path / "disk", tmp_path / "said"))
    process.start()
    process.join()
    assert process.exitcode == 0 and "checkpoints do not fit at" in (tmp_path / "said").read_text()


def begin_on_full_disk(disk_path: Path, said: Path) -> None:
    disk = SmallDisk(disk_path, 1 << 20)
    try:
        with disk.only(0):
            run(small_config(replay_store="ram"), disk.path / "run", console=False)
    except ConfigError as error:
        said.write_text(str(error))
