"""The metrics of a run as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clearl.records.reader import read_rows
from clearl.records.schema import METRICS_FILE, Row


@dataclass(frozen=True)
class MetricsTable:
    """Rows of `metrics.jsonl`; `where` picks some of them, indexing by a name gives a column."""

    rows: tuple[Row, ...]

    @classmethod
    def read(cls, run_dir: Path) -> MetricsTable:
        """All rows of a run, or of the parts of a run on separate tasks."""
        run_dir = Path(run_dir)
        files = [run_dir / METRICS_FILE] if (run_dir / METRICS_FILE).exists() else run_dir.glob(f"*/{METRICS_FILE}")
        return cls(tuple(row for file in sorted(files) for row in read_rows(file)))

    def where(self, **values: Any) -> MetricsTable:
        """The rows that hold these values, for instance `where(kind="eval", task="breakout")`."""
        return MetricsTable(tuple(r for r in self.rows if all(r.get(name) == value for name, value in values.items())))

    def __getitem__(self, column: str) -> np.ndarray:
        return np.array([row.get(column) for row in self.rows])

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_pandas(self) -> Any:
        """A pandas DataFrame (needs pandas)."""
        import pandas

        return pandas.DataFrame(list(self.rows))
