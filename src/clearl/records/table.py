"""The metrics of a run as a table."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from clearl.errors import MissingExtraError
from clearl.records.reader import read_rows
from clearl.records.schema import METRICS_FILE, Row


@dataclass(frozen=True, repr=False)
class MetricsTable:
    """Rows of `metrics.jsonl`; `where` picks some of them, indexing by a name gives a column."""

    rows: tuple[Row, ...]

    @classmethod
    def read(cls, run_dir: Path) -> MetricsTable:
        """Return all rows of a run, or of the parts of a run on separate tasks."""
        run_dir = Path(run_dir)
        files = [run_dir / METRICS_FILE] if (run_dir / METRICS_FILE).exists() else run_dir.glob(f"*/{METRICS_FILE}")
        return cls(tuple(row for file in sorted(files) for row in read_rows(file)))

    def where(self, **values: Any) -> MetricsTable:
        """Return the rows that hold these values, for instance `where(kind="eval", task="breakout")`."""
        return MetricsTable(tuple(r for r in self.rows if all(r.get(name) == value for name, value in values.items())))

    def __getitem__(self, column: str) -> np.ndarray:
        return np.array([row.get(column) for row in self.rows])

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def flat(self) -> list[Row]:
        """Return the rows with nested values spread out: `loss` becomes `loss/value`, `loss/entropy` and so on."""
        return [dict(_spread(row)) for row in self.rows]

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame of `flat()`, one row each (needs pandas)."""
        return _pandas().DataFrame(self.flat())

    def to_csv(self, path: str | Path) -> None:
        """Write `flat()` as CSV, with every column that any row has."""
        rows = self.flat()
        columns = list(dict.fromkeys(name for row in rows for name in row))
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)

    def to_parquet(self, path: str | Path) -> None:
        """Write `flat()` as Parquet (needs pandas and pyarrow)."""
        frame = self.to_pandas()
        try:
            frame.to_parquet(path)
        except ImportError:
            raise MissingExtraError("Parquet", "pyarrow", "pip install 'clearl[parquet]'") from None

    def __repr__(self) -> str:
        kinds = Counter(row["kind"] for row in self.rows)
        return f"MetricsTable({', '.join(f'{count} {kind}' for kind, count in kinds.items()) or 'empty'})"


def _spread(row: Row, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _spread(value, f"{prefix}{name}/")
        else:
            yield prefix + name, "+".join(map(str, value)) if isinstance(value, list) else value


def _pandas() -> Any:
    try:
        return import_module("pandas")
    except ImportError:
        raise MissingExtraError("a DataFrame", "pandas", "pip install pandas") from None
