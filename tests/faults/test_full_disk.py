from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from small_disk import SmallDisk
from whole_runs import assert_same_runs, context, small_config

from clearl.checkpoint import CheckpointStore
from clearl.errors import StorageError
from clearl.experiment import run
from clearl.records.schema import Row

CONFIG = small_config(cycles=1)
# Path, bytes needed, bytes free: as checkpoints, metrics and meta data say it, or as replay says it.
TOLD = re.compile(r"(/\S+?):? .*?(\d+) bytes.*?(\d+) free|cannot write (\d+) bytes to (/\S+): .*?(\d+) bytes are free")


class CrashError(Exception):
    """The run ends here."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    run(CONFIG, out, console=False)
    return out


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("crashed") / "run"
    written: list[Row] = []

    def listen(row: Row) -> None:
        written.append(row)
        if len(written) == 8:
            raise CrashError

    with pytest.raises(CrashError):
        run(CONFIG, out, console=False, listeners=[listen])
    return out


def fill_up(whole: Path, crashed: Path, disk_path: Path, offsets: list[int], report: Path) -> None:
    """Go on with a run on a disk that has only so much room left, then with room, for each of `offsets`."""
    disk, failed = SmallDisk(disk_path, 16 << 20), Counter[str]()
    for free in offsets:
        out = Path(shutil.copytree(crashed, disk.path / "run"))
        before = CheckpointStore(out / "checkpoints").newest()
        assert before is not None
        with disk.only(free):
            failed[where_it_failed(out)] += 1
        after = CheckpointStore(out / "checkpoints").newest()
        assert after is not None and not after.notes and after.tree
        assert after.path.name >= before.path.name
        assert run(CONFIG, out, console=False).status == "finished"
        assert not [path for path in out.rglob("*") if "tmp" in path.name]
        assert_same_runs(whole, out, CONFIG)
        shutil.rmtree(out)
    report.write_text(json.dumps({"disk": disk.kind, "failed": failed}))


def where_it_failed(out: Path) -> str:
    try:
        run(CONFIG, out, console=False)
    except StorageError as error:
        told = TOLD.search(str(error))
        assert told, f"the error does not say path, bytes needed and free: {error}"
        path = next(group for group in told.groups() if group and group.startswith("/"))
        assert Path(path).is_relative_to(out), error
        return "replay segment" if "/replay/" in path else "checkpoint" if "checkpoint" in path else Path(path).name
    return "nowhere: there was room enough"


def check(
    whole: Path, crashed: Path, tmp_path: Path, offsets: list[int], record: Callable[[str, object], None]
) -> Counter[str]:
    report = tmp_path / "report.json"
    process = context().Process(target=fill_up, args=(whole, crashed, tmp_path / "disk", offsets, report))
    process.start()
    process.join()
    assert process.exitcode == 0
    found = json.loads(report.read_text())
    record("full disk", f"{len(offsets)} offsets, {found['disk']}; failed at: {found['failed']}")
    return Counter(found["failed"])


def test_a_full_disk(
    whole: Path, crashed: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    failed = check(whole, crashed, tmp_path, [0, 8 << 10, 24 << 10, 100 << 10], record_property)
    assert failed["checkpoint"] >= 1 and sum(failed.values()) == 4


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_a_full_disk_at_fifty_offsets(
    whole: Path, crashed: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    failed = check(whole, crashed, tmp_path, [4096 * n for n in range(50)], record_property)
    assert failed["checkpoint"] >= 10 and failed["replay segment"] >= 1


def test_a_run_that_cannot_even_begin_says_so(tmp_path: Path) -> None:
    process = context().Process(target=begin_on_full_disk, args=(tmp_path / "disk", tmp_path / "said"))
    process.start()
    process.join()
    assert process.exitcode == 0 and TOLD.search((tmp_path / "said").read_text())


def begin_on_full_disk(disk_path: Path, said: Path) -> None:
    disk = SmallDisk(disk_path, 1 << 20)
    try:
        with disk.only(0):
            run(small_config(replay_store="ram"), disk.path / "run", console=False)
    except StorageError as error:
        said.write_text(str(error))
