"""Pages that the navigation does not name: each joins a section, so that a new page is never lost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

REST, RESULTS = "Guides", "Results"


def complete(nav: list[Any], docs: Path) -> None:
    """Append every page below `docs` that `nav` lacks to its section."""
    listed = set(_paths(nav))
    for path in sorted(docs.rglob("*.md")):
        name = path.relative_to(docs).as_posix()
        if name in listed or "/tables/" in name:
            continue
        section = RESULTS if name.startswith("results/") else REST
        members = next(entry[section] for entry in nav if isinstance(entry, dict) and section in entry)
        members.append({_title(path): name})


def _paths(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [path for part in parts for path in _paths(part)]


def _title(path: Path) -> str:
    found = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), flags=re.M)
    return found[1] if found else path.stem
