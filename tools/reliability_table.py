"""Write the last result of `make test-faults` into docs/reliability.md: `reliability_table.py FAULTS.xml PAGE.md`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

HEADING = "## Last full result"


def results(junit: Path) -> list[dict[str, str]]:
    """Return what was tried, what was counted and the outcome of every test in a JUnit file."""
    found = []
    for case in ElementTree.parse(junit).iter("testcase"):
        failed = case.find("failure") is not None or case.find("error") is not None
        name, _, variant = case.get("name", "").removeprefix("test_").partition("[")
        counted = [f"{p.get('name')}: {p.get('value')}" for p in case.iter("property")]
        found.append(
            {
                "test": name.replace("_", " ") + (f" ({variant.rstrip(']')})" if variant else ""),
                "counted": "; ".join(counted),
                "result": "FAILED" if failed else "skipped" if case.find("skipped") is not None else "passed",
                "seconds": f"{float(case.get('time', 0)):.0f}",
            }
        )
    return found


def section(junit: Path, commit: str) -> str:
    """Return the section: when, of which commit, and a row for every test."""
    suite = next(ElementTree.parse(junit).iter("testsuite"))
    rows = results(junit)
    failed = sum(row["result"] == "FAILED" for row in rows)
    day = suite.get("timestamp", "")[:10]
    lines = [
        HEADING,
        "",
        f"`make test-faults` on {day}, commit {commit}: {len(rows)} tests, {failed} failed, "
        f"{float(suite.get('time', 0)) / 60:.0f} minutes. Written by `tools/reliability_table.py`, not by hand.",
        "",
        "| test | counted | result | s |",
        "|---|---|---|---|",
        *(f"| {row['test']} | {row['counted']} | {row['result']} | {row['seconds']} |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def current_commit(root: Path) -> str:
    """Return the commit that was tested, and say where files had been changed since."""
    head = _git(root, "rev-parse", "--short", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "src", "tests")
    return f"{head} with local changes" if changed else head


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() or ("" if done.returncode == 0 else "unknown")


def write(junit: Path, page: Path) -> None:
    """Put the section in place of the one that the page ends with."""
    head, _, _ = page.read_text(encoding="utf-8").partition(HEADING)
    page.write_text(head.rstrip() + "\n\n" + section(junit, current_commit(page.parent)), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
