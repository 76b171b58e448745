"""Rows of a long run lie in closed parts and `metrics.jsonl`; every reader and a resume see one file."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from clearl.errors import CorruptFileError
from clearl.records import MetricsWriter, eval_row, follow, read_rows, resume_row, scan_rows
from clearl.records.parts import RowFiles, copy_rows, rows_nbytes
from clearl.records.table import MetricsTable
from clearl.records.writer import check_position

SMALL_NBYTES = 1000
"""A part of about eight rows."""


def _row(frames: int) -> dict[str, Any]:
    return eval_row(task="a", frames=frames, mean_return=frames / 2, episodes=4, updates=frames, wall_s=0.0)


def _write(path: Path, count: int, *, part_nbytes: int | None = SMALL_NBYTES) -> list[int]:
    """Write `count` rows; the positions after each."""
    positions = []
    with MetricsWriter(path, part_nbytes=part_nbytes) as writer:
        for frames in range(count):
            writer.write(_row(frames))
            positions.append(writer.position)
    return positions


def _frames(path: Path) -> list[int]:
    return [row["frames"] for row in read_rows(path / "metrics.jsonl")]


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """The same rows in one file, as a run that is not large has them."""
    (tmp_path / "plain").mkdir()
    _write(tmp_path / "plain", 60, part_nbytes=None)
    assert sorted(os.listdir(tmp_path / "plain")) == ["metrics.jsonl"]
    return tmp_path / "plain" / "metrics.jsonl"


def test_parts_and_file_together_are_the_file_that_was_not_divided(tmp_path: Path, plain: Path) -> None:
    positions = _write(tmp_path, 60)
    file = tmp_path / "metrics.jsonl"
    parts = sorted(tmp_path.glob("metrics-*.jsonl.zst"))
    assert len(parts) >= 6 and file.stat().st_size < SMALL_NBYTES + 300
    assert sum(part.stat().st_size for part in parts) < plain.stat().st_size / 2
    assert positions[-1] == plain.stat().st_size == rows_nbytes(file)
    with RowFiles(file) as files:
        whole = plain.read_bytes()
        assert files.read() == whole == b"".join(chunk for chunk in files.chunks() if isinstance(chunk, bytes))
        for start, end in ((0, 1), (positions[3], positions[20]), (positions[-2], positions[-1]), (5, 5)):
            assert files.read(start, end) == whole[start:end]
    assert json.loads(file.read_bytes().splitlines()[0])["kind"] == "continued"
    assert read_rows(file) == read_rows(plain) == scan_rows(file).rows == list(MetricsTable.read(tmp_path))
    assert not scan_rows(file).damaged_lines and not scan_rows(file).torn_tail


def test_a_file_that_is_opened_again_goes_on(tmp_path: Path) -> None:
    _write(tmp_path, 30)
    with MetricsWriter(tmp_path, part_nbytes=SMALL_NBYTES) as writer:
        writer.write(_row(30))
    assert _frames(tmp_path) == list(range(31))
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b'{"v":1,"kind":"ev')
    with MetricsWriter(tmp_path) as writer:
        writer.write(_row(31))
    assert _frames(tmp_path) == list(range(32)), "a torn tail is dropped"


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 9, 23, 24, 25, 59, 60])
def test_a_checkpoint_takes_rows_back_from_closed_parts(tmp_path: Path, plain: Path, kept: int) -> None:
    positions = [0, *_write(tmp_path, 60)]
    with MetricsWriter(tmp_path, part_nbytes=SMALL_NBYTES) as writer:
        writer.write(resume_row(frames=60, updates=60, wall_s=1.0))
    check_position(tmp_path, positions[kept])
    for wrong in (positions[kept] + 1, positions[-1] + 1000, -1):
        with pytest.raises(CorruptFileError, match="no row that ends at byte"):
            check_position(tmp_path, wrong)
    with MetricsWriter(tmp_path, position=positions[kept], part_nbytes=SMALL_NBYTES) as writer:
        for frames in range(kept, 60):
            writer.write(_row(frames))
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert [row["kind"] for row in rows].index("resume") == kept, "each resume happened"
    assert [row["frames"] for row in rows if row["kind"] == "eval"] == list(range(60))
    with RowFiles(tmp_path / "metrics.jsonl") as files:
        assert sorted(tmp_path.glob("*.zst")) == [part.path for part in files.parts], "nothing stale is left"


def test_who_follows_sees_every_row_once(tmp_path: Path) -> None:
    seen, position, positions = [], None, []
    with MetricsWriter(tmp_path, part_nbytes=SMALL_NBYTES) as writer:
        for frames in range(60):
            writer.write(_row(frames))
            positions.append(writer.position)
            if frames % 11 == 0:
                followed = follow(tmp_path / "metrics.jsonl", position)
                assert not followed.rewound
                seen += [row["frames"] for row in followed.rows]
                position = followed.position
    seen += [row["frames"] for row in follow(tmp_path / "metrics.jsonl", position).rows]
    assert seen == list(range(60))
    with MetricsWriter(tmp_path, position=positions[33], part_nbytes=SMALL_NBYTES) as writer:
        writer.write(_row(99))
    followed = follow(tmp_path / "metrics.jsonl", position)
    assert followed.rewound and [row["frames"] for row in followed.rows] == [*range(34), 99]


def test_who_follows_goes_on_behind_a_damaged_part(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path, part_nbytes=SMALL_NBYTES) as writer:
        while not list(tmp_path.glob("*.zst")):
            position = follow(tmp_path / "metrics.jsonl").position
            writer.write(_row(1))
    (part,) = tmp_path.glob("*.zst")
    part.write_bytes(b"damaged")
    followed = follow(tmp_path / "metrics.jsonl", position)
    assert [row["frames"] for row in followed.rows] == [1] and not followed.rewound
    assert follow(tmp_path / "metrics.jsonl", followed.position).rows == []


def test_a_damaged_or_missing_part_is_named_and_read_around(tmp_path: Path) -> None:
    positions = _write(tmp_path, 60)
    _, second, third, *_ = sorted(tmp_path.glob("*.zst"))
    whole, rng = second.read_bytes(), random.Random(0)
    lost = range(*(positions.index(int(part.name[8:23])) + 1 for part in (second, third)))
    for damaged in [None, b"", *(bytearray(whole) for _ in range(20))]:
        if damaged is None:
            second.unlink()
        elif damaged:
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        if damaged is not None:
            second.write_bytes(damaged)
        scan = scan_rows(tmp_path / "metrics.jsonl")
        frames = [row["frames"] for row in scan.rows]
        if frames == list(range(60)):  # a bit that means nothing
            continue
        assert scan.damaged_lines and frames == [frame for frame in range(60) if frame not in lost]
        with pytest.raises(CorruptFileError, match=f"{second.name}.*put it back from a copy"):
            read_rows(tmp_path / "metrics.jsonl")
        check_position(tmp_path, positions[-1])  # training goes on
    second.write_bytes(whole)
    assert _frames(tmp_path) == list(range(60))
    data = (tmp_path / "metrics.jsonl").read_bytes()
    (tmp_path / "metrics.jsonl").write_bytes(data.replace(b"start_bytes", b"start_bytez", 1))
    assert scan_rows(tmp_path / "metrics.jsonl").damaged_lines
    with pytest.raises(CorruptFileError, match="line 1"):
        check_position(tmp_path, positions[-1])


def test_a_full_disk_leaves_the_rows_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.replace

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with MetricsWriter(tmp_path, part_nbytes=SMALL_NBYTES) as writer:
        monkeypatch.setattr(os, "replace", refuse)
        for frames in range(30):
            writer.write(_row(frames))
        assert sorted(os.listdir(tmp_path)) == ["metrics.jsonl"]
        monkeypatch.setattr(os, "replace", real)
        for frames in range(30, 60):
            writer.write(_row(frames))
    assert _frames(tmp_path) == list(range(60)) and list(tmp_path.glob("*.zst"))


def _killed_at(path: Path, moment: int, position: int | None) -> bool:
    """Write rows in a process that is killed by SIGKILL at its n-th call that changes a file; whether it was."""
    child = os.fork()
    if child == 0:
        calls = 0

        def counted(real: Any) -> Any:
            def call(*arguments: Any, **named: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == moment:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **named)

            return call

        for name in ("open", "write", "replace", "unlink", "fsync", "ftruncate"):
            setattr(os, name, counted(getattr(os, name)))
        try:
            with MetricsWriter(path, position=position, part_nbytes=SMALL_NBYTES) as writer:
                start = scan_rows(path / "metrics.jsonl").rows[-1]["frames"] + 1 if writer.position else 0
                for frames in range(start, 22):
                    writer.write(_row(frames))
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_a_kill_at_every_write_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """With and without a checkpoint that takes rows back out of closed parts."""
    moment, killed = 0, True
    while killed:
        moment += 1
        out = tmp_path / str(moment)
        out.mkdir()
        killed = _killed_at(out, moment, None)
        there = _frames(out)
        assert there == list(range(len(there)))
        with MetricsWriter(out, part_nbytes=SMALL_NBYTES) as writer:
            assert _frames(out) == there, "opening it changes nothing"
            for frames in range(len(there), 40):
                writer.write(_row(frames))
        assert _frames(out) == list(range(40)) and not list(out.glob("*.tmp"))
    assert moment > 40, "parts were closed"
    moment, killed = 0, True
    while killed:
        moment += 1
        out = tmp_path / f"back-{moment}"
        out.mkdir()
        positions = _write(out, 40)
        killed = _killed_at(out, moment, positions[11])
        there = _frames(out)
        assert there == list(range(len(there))) and len(there) >= 12
        with MetricsWriter(out, position=positions[11], part_nbytes=SMALL_NBYTES) as writer:
            for frames in range(12, 50):
                writer.write(_row(frames))
        assert _frames(out) == list(range(50))
    assert moment > 20


@pytest.mark.parametrize("kind", ["fifo", "zero"])
def test_a_part_that_is_no_plain_file_is_damage_and_is_not_read(tmp_path: Path, kind: str) -> None:
    positions = _write(tmp_path, 60)
    file = tmp_path / "metrics.jsonl"
    first, *_ = sorted(tmp_path.glob("metrics-*.jsonl.zst"))
    with RowFiles(file) as files:
        lost = positions.index(files.parts[0].end) + 1
    first.unlink()
    os.mkfifo(first) if kind == "fifo" else first.symlink_to("/dev/zero")
    assert [row["frames"] for row in scan_rows(file).rows] == list(range(lost, 60))
    assert scan_rows(file).damaged_lines == [1]
    assert [row["frames"] for row in follow(file).rows] == list(range(lost, 60))
    with pytest.raises(CorruptFileError, match=f"{first.name} is damaged or gone"):
        read_rows(file)
    check_position(tmp_path, positions[-1])  # training goes on
    with pytest.raises(CorruptFileError, match=f"{first.name} is no plain file"):
        copy_rows(file, tmp_path / "copy" / "metrics.jsonl", positions[-1])


@pytest.mark.parametrize("kind", ["fifo", "directory"])
def test_a_metrics_file_that_is_no_plain_file_is_refused(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "metrics.jsonl"
    os.mkfifo(file) if kind == "fifo" else file.mkdir()
    for read in (scan_rows, read_rows):
        with pytest.raises(CorruptFileError, match=r"metrics\.jsonl (is no plain file|cannot be read: Is a directory)"):
            read(file)
    assert follow(file).rows == []


def test_parts_that_unpack_to_too_much_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, 60)
    file = tmp_path / "metrics.jsonl"
    with RowFiles(file) as files:
        first, second, *others = files.parts
        own = files.end - files.start
    monkeypatch.setattr("clearl.records.parts.MOST_ROWS_NBYTES", second.end)
    with RowFiles(file) as files:
        chunks = list(files.chunks())
        assert [len(chunk) for chunk in chunks if isinstance(chunk, bytes)] == [
            first.end, second.end - first.end, own
        ]  # fmt: skip
        assert [chunk for chunk in chunks if not isinstance(chunk, bytes)] == others
    scan = scan_rows(file)
    assert scan.damaged_lines and 0 < len(scan.rows) < 30


def test_a_copy_up_to_any_row_has_those_rows_and_shares_whole_parts(tmp_path: Path, plain: Path) -> None:
    (tmp_path / "a").mkdir()
    positions = _write(tmp_path / "a", 60)
    for count in (0, 1, 8, 24, 59, 60):
        out = tmp_path / f"copy-{count}"
        out.mkdir()
        position = positions[count - 1] if count else 0
        copy_rows(tmp_path / "a" / "metrics.jsonl", out / "metrics.jsonl", position)
        assert _frames(out) == list(range(count)) and rows_nbytes(out / "metrics.jsonl") == position
        assert all(part.stat().st_nlink > 1 for part in out.glob("metrics-*.zst"))
        with MetricsWriter(out, position=position, part_nbytes=SMALL_NBYTES) as writer:
            writer.write(_row(count))
        assert _frames(out) == list(range(count + 1))
    assert _frames(tmp_path / "a") == list(range(60)) and len(list((tmp_path / "copy-60").glob("*.zst"))) >= 6
