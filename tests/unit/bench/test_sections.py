"""Benchmarks of several sections: what the file holds is kept, and written again after each section."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest
from benchmarks.sections import Section, measure_sections, parser_of


def measure(monkeypatch: pytest.MonkeyPatch, file: Path, *flags: str) -> list[str]:
    """Run a benchmark of two sections; return those that were measured."""
    measured: list[str] = []

    def section(name: str) -> Section:
        measured.append(name)
        return [{"run": len(measured), "name": name}]

    sections = {name: lambda options, name=name: section(f"{name} {options.seconds:g}") for name in ("one", "two")}
    monkeypatch.setattr("sys.argv", ["bench", "--json", str(file), *flags])
    measure_sections(parser_of("About.", sections, file="unused.json", seconds=5.0), sections, ("numpy",))
    return measured


def test_only_missing_sections_are_measured_unless_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "new" / "found.json"
    assert measure(monkeypatch, file, "--only", "two") == ["two 5"]
    assert measure(monkeypatch, file) == ["one 5"]
    assert measure(monkeypatch, file) == []
    assert measure(monkeypatch, file, "--only", "one,two", "--seconds", "2") == ["one 2", "two 2"]
    found = json.loads(file.read_text())
    assert found["sections"] == {"one": [{"run": 1, "name": "one 2"}], "two": [{"run": 2, "name": "two 2"}]}
    assert found["cores"] >= 1 and found["versions"].keys() == {"python", "numpy"} and found["machine"]


def test_a_section_that_fails_leaves_those_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(options: Namespace) -> Section:
        raise RuntimeError("no such device")

    monkeypatch.setattr("sys.argv", ["bench", "--json", str(tmp_path / "found.json")])
    sections = {"one": lambda options: [{"rate": 1.5}], "two": fails}
    with pytest.raises(RuntimeError):
        measure_sections(parser_of(None, sections, file="unused.json", seconds=5.0), sections, ())
    assert json.loads((tmp_path / "found.json").read_text())["sections"] == {"one": [{"rate": 1.5}]}


def test_an_unknown_section_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        measure(monkeypatch, tmp_path / "found.json", "--only", "three")
    assert "no such section: three" in capsys.readouterr().err and not (tmp_path / "found.json").exists()
