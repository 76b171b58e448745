"""Following a growing metrics file: every row once, whatever a crash or a resume does to the file."""

from __future__ import annotations

import os
from pathlib import Path

from clearl.records import MetricsWriter, eval_row, follow, train_row
from clearl.records.parts import close_part
from clearl.records.reader import last_frames
from clearl.records.schema import METRICS_FILE, Row


def _row(frames: int) -> Row:
    return eval_row(task="a", frames=frames, mean_return=1.0, episodes=1, updates=0, wall_s=0.0)


def _frames(rows: list[Row]) -> list[int]:
    return [row["frames"] for row in rows]


def test_each_call_gives_the_rows_since_the_last(tmp_path: Path) -> None:
    path = tmp_path / METRICS_FILE
    seen = follow(path)
    assert seen.rows == [] and not seen.rewound
    with MetricsWriter(tmp_path) as writer:
        for number in range(3):
            writer.write(_row(number))
        first = follow(path, seen.position)
        assert _frames(first.rows) == [0, 1, 2]
        assert follow(path, first.position).rows == []
        writer.write(_row(3))
        second = follow(path, first.position)
    assert _frames(second.rows) == [3] and not second.rewound


def test_no_more_than_the_new_rows_are_read(tmp_path: Path, monkeypatch) -> None:
    with MetricsWriter(tmp_path) as writer:
        for number in range(100):
            writer.write(_row(number))
        position = follow(tmp_path / METRICS_FILE).position
        writer.write(_row(100))
    decoded: list[bytes] = []
    monkeypatch.setattr("clearl.records.reader.decode", lambda line: decoded.append(line) or {"frames": 100})
    assert _frames(follow(tmp_path / METRICS_FILE, position).rows) == [100]
    assert len(decoded) == 1


def test_a_torn_row_waits_and_a_damaged_one_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / METRICS_FILE
    with MetricsWriter(tmp_path) as writer:
        writer.write(_row(0))
        writer.write(_row(1))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0].replace(b'"a"', b'"b"') + lines[1][:10])
    torn = follow(path)
    assert torn.rows == [] and torn.position.nbytes == len(lines[0])
    path.write_bytes(lines[0].replace(b'"a"', b'"b"') + lines[1])
    assert _frames(follow(path, torn.position).rows) == [1]


def test_a_resumed_run_is_read_from_its_start_even_where_its_file_has_grown_again(tmp_path: Path) -> None:
    path = tmp_path / METRICS_FILE
    with MetricsWriter(tmp_path) as writer:
        writer.write(_row(0))
        kept = writer.position
        writer.write(_row(1))
    position = follow(path).position
    with MetricsWriter(tmp_path, position=kept) as writer:
        shorter = follow(path, position)
        assert shorter.rewound and _frames(shorter.rows) == [0]
        writer.write(_row(7))
        writer.write(_row(8))
    grown = follow(path, position)
    assert grown.rewound and _frames(grown.rows) == [0, 7, 8]


def test_of_very_many_rows_the_seldom_values_are_kept(tmp_path: Path) -> None:
    """Diagnostics stand in every 12th row, counts of replay in every 10th: no stride may step over all of them."""
    with MetricsWriter(tmp_path) as writer:
        writer.write(_row(0))
        for number in range(1, 601):
            extra = {"diagnostics": {"new": {"entropy": float(number)}}} if number % 12 == 5 else {}
            replay = {"by_task": {"a": {"unrolls": number}}} if number % 10 == 1 else {}
            plain = {"tasks": ["a"], "fps": 1.0, "loss": {}, "lag_updates": 0.0, "wall_s": 0.0}
            writer.write(train_row(frames=number, updates=number, replay=replay, extra=extra, **plain))
    for most in (10, 50, 60):
        rows = follow(tmp_path / METRICS_FILE, most_rows=most).rows
        assert len(rows) <= most + 3 and [row["kind"] for row in rows].count("eval") == 1
        assert rows[-1]["frames"] == 600
        counts = [row["replay"]["by_task"]["a"] for row in rows if "by_task" in row.get("replay", {})]
        assert counts[-1] == {"unrolls": 591}
        diagnosed = [row["frames"] for row in rows if "diagnostics" in row]
        assert len(diagnosed) >= min(most, 50) - 1 and all(number % 12 == 5 for number in diagnosed)


def test_of_very_many_evaluations_every_task_keeps_its_share_its_last_and_those_at_switches(tmp_path: Path) -> None:
    def row(task: str, frames: int, **extra: object) -> Row:
        return {**eval_row(task=task, frames=frames, mean_return=1.0, episodes=1, updates=0, wall_s=0.0), **extra}

    with MetricsWriter(tmp_path) as writer:
        for number in range(1, 301):
            for task in ('a"b', "b") if number % 3 else ('a"b',):
                writer.write(row(task, number))
            if number % 100 == 0:
                writer.write(row("b", number, switch=True, segment=number // 100))
    rows = follow(tmp_path / METRICS_FILE, most_rows=50).rows
    assert [row["segment"] for row in rows if row.get("switch")] == [1, 2, 3]
    kept = {
        task: [row["frames"] for row in rows if row["task"] == task and not row.get("switch")] for task in ('a"b', "b")
    }
    assert kept['a"b'] == list(range(10, 301, 10)), "500 evaluations: one of ten"
    assert len(kept["b"]) == 20 and kept["b"][-1] == 299
    assert len(follow(tmp_path / METRICS_FILE, most_rows=503).rows) == 503


def test_the_newest_frames_are_those_of_the_last_whole_row_that_has_some(tmp_path: Path) -> None:
    path = tmp_path / METRICS_FILE
    assert last_frames(path) is None
    with MetricsWriter(tmp_path) as writer:
        for number in range(1000):
            writer.write(_row(1000 + number))
    with open(path, "ab") as file:
        file.write(b'{"v":1,"kind":"note"}\n{"v":1,"kind":"eval","frames":20')
    assert last_frames(path) == 1999
    path.unlink()
    os.mkfifo(path)
    assert last_frames(path) is None


def test_the_newest_frames_may_lie_in_a_part_that_was_closed_a_moment_ago(tmp_path: Path) -> None:
    path = tmp_path / METRICS_FILE
    with MetricsWriter(tmp_path) as writer:
        for frames in range(5):
            writer.write(_row(frames))
    file = os.open(path, os.O_RDWR)
    close_part(path, file)
    os.close(file)
    assert path.read_bytes().count(b"\n") == 1 and last_frames(path) == 4
