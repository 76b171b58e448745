"""The metrics of a run as a table."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from clearl.errors import MissingExtraError
from clearl.records.reader import StoredRows, stored_rows
from clearl.records.schema import METRICS_FILE, Row


@dataclass(frozen=True, repr=False)
class MetricsTable:
    """Rows of `metrics.jsonl`; `where` filters them, indexing by a name gives a column.

    Rows stay encoded and are decoded at each use, so that a table takes no more memory than its file.
    """

    rows: Sequence[Row]

    @classmethod
    def read(cls, run_dir: Path) -> MetricsTable:
        """Return all rows of a run, or of the parts of a run on separate tasks."""
        run_dir = Path(run_dir)
        files = [run_dir / METRICS_FILE] if (run_dir / METRICS_FILE).exists() else run_dir.glob(f"*/{METRICS_FILE}")
        parts = [stored_rows(file) for file in sorted(files)]
        return cls(parts[0] if len(parts) == 1 else tuple(row for part in parts for row in part))

    def where(self, **values: Any) -> MetricsTable:
        """Return the rows that hold these values, for instance `where(kind="eval", task="breakout")`."""

        def wanted(row: Row) -> bool:
            return all(row.get(name) == value for name, value in values.items())

        if isinstance(self.rows, StoredRows):
            return MetricsTable(self.rows.chosen(wanted))
        return MetricsTable(tuple(filter(wanted, self.rows)))

    def __getitem__(self, column: str) -> np.ndarray:
        return np.array([row.get(column) for row in self.rows])

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def flat(self) -> list[Row]:
        """Return the rows with nested values spread out: `loss` becomes `loss/value`, `loss/entropy` and so on."""
        return list(self._flat())

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame of `flat()`, one row each (needs pandas)."""
        return _pandas().DataFrame(self.flat())

    def to_csv(self, path: str | Path) -> None:
        """Write `flat()` as CSV, with every column that any row has."""
        columns = list(dict.fromkeys(name for row in self._flat() for name in row))
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(self._flat())

    def to_parquet(self, path: str | Path) -> None:
        """Write `flat()` as Parquet (needs pandas and pyarrow)."""
        frame = self.to_pandas()
        try:
            frame.to_parquet(path)
        except ImportError:
            raise MissingExtraError("Parquet", "pyarrow", "pip install 'clearl[parquet]'") from None

    def _flat(self) -> Iterator[Row]:
        return (dict(_spread(row)) for row in self.rows)

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
