from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
JUNIT = """<testsuites><testsuite tests="3" time="90.5" timestamp="2026-11-15T10:00:00">
<testcase name="test_ten_flips" time="12.4">
<properties><property name="flips" value="9 refused"/></properties></testcase>
<testcase name="test_kills[lstm]" time="60.6"><failure>oops</failure></testcase>
<testcase name="test_other" time="1"><skipped/></testcase>
</testsuite></testsuites>"""


def load_tool():
    spec = importlib.util.spec_from_file_location("reliability_table", ROOT / "tools" / "reliability_table.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_last_result_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    tool = load_tool()
    (tmp_path / "faults.xml").write_text(JUNIT)
    page = tmp_path / "page.md"
    page.write_text("# Title\n\ntext\n\n## Last full result\n\n| old | table |\n")
    tool.write(tmp_path / "faults.xml", page)
    first = page.read_text()
    assert first.startswith("# Title\n\ntext\n\n## Last full result\n") and "old" not in first
    assert "on 2026-11-15, commit" in first and "3 tests, 1 failed, 2 minutes" in first
    assert "| ten flips | flips: 9 refused | passed | 12 |" in first
    assert "| kills (lstm) |  | FAILED | 61 |" in first and "| other |  | skipped | 1 |" in first
    tool.write(tmp_path / "faults.xml", page)
    assert page.read_text() == first


def test_every_test_that_the_page_names_is_there() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text()
    named = {word.strip("`,|") for word in text.split() if "tests/" in word}
    assert len(named) >= 10 and all((ROOT / name).is_file() for name in named)
