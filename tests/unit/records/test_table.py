"""The metrics of a run in other people's formats."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from clearl.errors import MissingExtraError
from clearl.records import train_row
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
