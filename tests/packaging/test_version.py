"""The version is told once, and everything else that names it agrees."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

import clearl

ROOT = Path(__file__).resolve().parents[2]


def test_it_is_that_of_the_changelogs_first_section() -> None:
    (number, date), *_ = re.findall(r"^## (\S+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    base, _, development = clearl.__version__.partition(".dev")
    assert re.fullmatch(r"\d+\.\d+\.\d+", base) and number == base
    assert (date == "unreleased") == bool(development), "a released version has a date, and no .dev"


def test_the_citation_names_it() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == clearl.__version__
    assert cited["cff-version"] == "1.2.0" and cited["authors"]
