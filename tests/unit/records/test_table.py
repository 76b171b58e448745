"""The metrics of a run in other people's formats."""

from __future__ import annotations

import csv
import sys
import tracemalloc
from pathlib import Path

import pytest

from clearl.errors import MissingExtraError
from clearl.records import MetricsWriter, train_row
from clearl.records.table import MetricsTable

TABLE = MetricsTable(
    (
        train_row(
            tasks=["a", "b"], frames=20, updates=2, fps=9.0, loss={"value": 3.0, "entropy": -1.0}, lag_updates=1.0,
            replay={"held": 4}, wall_s=2.0, extra={"diagnostics": {"new": {"entropy": 0.5}}},
        ),
        {"v": 1, "kind": "eval", "task": "a", "frames": 20, "return": 1.5},
    )
)  # fmt: skip


def test_nested_values_become_columns_and_lists_texts() -> None:
    flat = TABLE.flat()
    assert flat[0]["loss/value"] == 3.0 and flat[0]["diagnostics/new/entropy"] == 0.5 and flat[0]["tasks"] == "a+b"
    assert not any(isinstance(value, dict | list) for row in flat for value in row.values())


def test_csv_has_every_column_of_every_row(tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "metrics.csv")
    with open(tmp_path / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["kind"] for row in rows] == ["train", "eval"]
    assert (rows[0]["replay/held"], rows[1]["replay/held"], rows[1]["return"]) == ("4", "", "1.5")


def test_a_data_frame_and_parquet(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = TABLE.to_pandas()
    assert frame["loss/value"].tolist()[0] == 3.0 and len(frame) == 2
    pytest.importorskip("pyarrow")
    TABLE.to_parquet(tmp_path / "metrics.parquet")
    assert pandas.read_parquet(tmp_path / "metrics.parquet")["return"].tolist()[1] == 1.5


def test_missing_pandas_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match="pip install pandas"):
        TABLE.to_pandas()


def test_shown_as_what_it_holds_not_as_all_its_rows() -> None:
    assert repr(TABLE) == "MetricsTable(1 train, 1 eval)"


def test_a_table_takes_the_memory_of_its_file(tmp_path: Path) -> None:
    row = dict(TABLE.rows[0])
    writer = MetricsWriter(tmp_path)
    for frames in range(5000):
        writer.write({**row, "frames": frames, "loss": {f"term {i}": i / 3 + frames for i in range(20)}})
    writer.close()
    nbytes = (tmp_path / "metrics.jsonl").stat().st_size
    tracemalloc.start()
    try:
        table = MetricsTable.read(tmp_path)
        some = table.where(frames=7)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(table) == 5000 and len(some) == 1 and some["frames"].tolist() == [7] == [r["frames"] for r in some]
    assert table.rows[-1]["frames"] == 4999 and [row["frames"] for row in table.rows[1:3]] == [1, 2]
    assert peak < 1.5 * nbytes, f"{peak / nbytes:.1f} times the file"
