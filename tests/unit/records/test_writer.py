"""A row is whole or absent: after a crash, on a full disk, and when a checkpoint takes the file back."""

from __future__ import annotations

import os

import pytest

from clearl.errors import CorruptFileError, StorageError
from clearl.records import MetricsWriter, RunDir, eval_row, read_rows, scan_rows, train_row
from clearl.records.writer import check_position


def _row(frames: int):
    return eval_row(task="a", frames=frames, mean_return=frames / 2, episodes=4, updates=frames, wall_s=0.0)


def _write(run_dir, count: int) -> list[int]:
    """Write `count` rows; the positions after each."""
    positions = []
    with MetricsWriter(run_dir) as writer:
        for frames in range(count):
            writer.write(_row(frames))
            positions.append(writer.position)
    return positions


def test_rows_come_back_in_order_and_position_counts_bytes(tmp_path):
    positions = _write(tmp_path, 5)
    assert positions[-1] == (tmp_path / "metrics.jsonl").stat().st_size
    assert read_rows(tmp_path / "metrics.jsonl") == [_row(frames) for frames in range(5)]


def test_a_row_is_on_disk_before_write_returns(tmp_path):
    writer = MetricsWriter(tmp_path)
    writer.write(_row(1))
    assert read_rows(tmp_path / "metrics.jsonl") == [_row(1)]
    writer.sync()
    writer.close()
    writer.close()


def test_each_row_is_one_write(tmp_path, monkeypatch):
    writes = []
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: writes.append(data) or real(file, data))
    _write(tmp_path, 3)
    assert len(writes) == 3 and all(data.endswith(b"\n") for data in writes)


def test_every_torn_tail_is_cut_back_to_the_last_whole_row(tmp_path):
    positions = _write(tmp_path, 3)
    whole = (tmp_path / "metrics.jsonl").read_bytes()
    for size in range(len(whole) + 1):
        (tmp_path / "metrics.jsonl").write_bytes(whole[:size])
        expected = max((position for position in [0, *positions] if position <= size), default=0)
        with MetricsWriter(tmp_path) as writer:
            assert writer.position == expected
            writer.write(_row(9))
        rows = read_rows(tmp_path / "metrics.jsonl")
        assert rows == [_row(frames) for frames in range([0, *positions].index(expected))] + [_row(9)]


def test_garbage_lines_at_the_end_are_dropped_even_when_long(tmp_path):
    positions = _write(tmp_path, 2)
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b"x" * 200_000 + b"\n" + b"\0" * 70_000)
    with MetricsWriter(tmp_path) as writer:
        assert writer.position == positions[-1]


def test_a_checkpoint_takes_the_file_back_to_its_position(tmp_path):
    positions = _write(tmp_path, 4)
    with MetricsWriter(tmp_path, position=positions[1]) as writer:
        writer.write(_row(7))
    assert [row["frames"] for row in read_rows(tmp_path / "metrics.jsonl")] == [0, 1, 7]
    with MetricsWriter(tmp_path, position=0) as writer:
        assert writer.position == 0
    assert read_rows(tmp_path / "metrics.jsonl") == []


@pytest.mark.parametrize("offset", [-1, 1, 10_000])
def test_a_position_where_no_row_ends_is_refused_and_nothing_is_lost(tmp_path, offset):
    positions = _write(tmp_path, 3)
    position = positions[1] + offset
    with pytest.raises(CorruptFileError, match=f"no row that ends at byte {position}"):
        MetricsWriter(tmp_path, position=position)
    assert len(read_rows(tmp_path / "metrics.jsonl")) == 3


@pytest.mark.parametrize("damage", ["none", "short", "flipped", "missing"])
def test_a_position_can_be_checked_without_touching_the_file(tmp_path, damage):
    positions, path = _write(tmp_path, 3), tmp_path / "metrics.jsonl"
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage != "none":
        end = positions[1] - 1 if damage == "short" else positions[1]
        path.write_bytes(data[:end] if damage == "short" else data[: end - 20] + b"~" + data[end - 19 :])
    if damage == "none":
        check_position(tmp_path, positions[1])
        assert path.read_bytes() == data
    else:
        with pytest.raises(CorruptFileError):
            check_position(tmp_path, positions[1])
        check_position(tmp_path, 0 if damage == "missing" else positions[0])


def test_a_bad_row_is_refused_before_it_reaches_the_file(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        with pytest.raises(CorruptFileError):
            writer.write({"v": 1, "kind": "eval"})
        assert writer.position == 0


def test_a_full_disk_leaves_no_part_of_the_row(tmp_path, monkeypatch):
    real = os.write
    with MetricsWriter(tmp_path) as writer:
        writer.write(_row(1))
        monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:10]))
        with pytest.raises(StorageError, match=r"metrics.jsonl: No space left.*\(\d+ bytes needed, \d+ free\)"):
            writer.write(_row(2))
        monkeypatch.setattr(os, "write", real)
        writer.write(_row(3))
    assert [row["frames"] for row in read_rows(tmp_path / "metrics.jsonl")] == [1, 3]


def test_damage_in_the_middle_is_named_and_can_be_read_around(tmp_path):
    _write(tmp_path, 4)
    path = tmp_path / "metrics.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[1] = lines[1].replace(b'"frames":1', b'"frames":2')
    path.write_bytes(b"\n".join(lines) + b'{"v":1,')
    with pytest.raises(CorruptFileError, match="line 2 is damaged"):
        read_rows(path)
    scan = scan_rows(path)
    assert [row["frames"] for row in scan.rows] == [0, 2, 3]
    assert scan.damaged_lines == [2] and scan.torn_tail


def test_no_file_means_no_rows(tmp_path):
    assert read_rows(tmp_path / "metrics.jsonl") == []


def test_a_finished_run_that_lost_its_last_rows_is_noticed(tmp_path):
    run = RunDir.create(tmp_path, config_text="seed: 0", meta={})
    positions, path = _write(tmp_path, 3), tmp_path / "metrics.jsonl"
    run.set_status("finished", metrics_bytes=path.stat().st_size)
    assert len(read_rows(path)) == 3
    os.truncate(path, positions[1])
    assert scan_rows(path).missing_bytes == positions[2] - positions[1] and len(scan_rows(path).rows) == 2
    with pytest.raises(CorruptFileError, match="has lost its last"):
        read_rows(path)
    path.unlink()
    with pytest.raises(CorruptFileError, match="has lost its last"):
        read_rows(path)


def test_rows_of_a_kind_can_be_thinned_but_the_last_is_read(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        for frames in range(105):
            writer.write(_row(frames))
            fields = {"loss": {}, "lag_updates": 0.0, "replay": {}, "wall_s": 0.0}
            writer.write(train_row(tasks=["a"], frames=frames, updates=0, fps=1.0, **fields))
    rows = scan_rows(tmp_path / "metrics.jsonl", thin="train").rows
    assert [row["frames"] for row in rows if row["kind"] == "eval"] == list(range(105))
    assert [row["frames"] for row in rows if row["kind"] == "train"] == [9, 19, 29, 39, 49, 59, 69, 79, 89, 99, 104]
