"""Results on the pages: sweep files that pages name exist, and the overview links every result."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


def test_sweep_files_that_pages_name_exist() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"experiments/([\w.-]+\.yaml)", page.read_text("utf-8"))}
    assert len(named) >= 3
    assert [name for name in sorted(named) if not (ROOT / "experiments" / name).is_file()] == []


def test_every_published_result_is_linked_from_the_overview() -> None:
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    published = [path.parent.name for path in RESULTS.glob("*/README.md")]
    assert len(published) >= 5
    assert [name for name in published if f"({name}/README.md)" not in page] == []
