"""Plug-ins by name: ours, those that a module registers, those of installed packages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import clearl.interfaces
from clearl.errors import ConfigError, UnknownNameError
from clearl.methods import CORRECTIONS, METHODS
from clearl.nets.torsos import TORSOS
from clearl.protocols import PROTOCOLS
from clearl.records.mirrors import MIRRORS
from clearl.registry import Registry
from clearl.runtimes import RUNTIMES
from clearl.suites import SUITES

DOCS, SOURCE = Path(__file__).parents[2] / "docs", Path(clearl.interfaces.__file__).parent


class Painted:
    """A plug-in."""


def a_registry(group: str | None = None) -> Registry:
    return Registry("shape", {"path": "pathlib:Path"}, group=group)


def test_an_entry_is_imported_when_it_is_used() -> None:
    registry = Registry("shape", {"missing": "no.such.module:Thing"})
    assert "missing" in registry and list(registry) == ["missing"]
    with pytest.raises(ImportError):
        registry.get("missing")
    assert a_registry().get("path") is Path


def test_a_plug_in_is_registered_as_an_object_or_by_where_it_is() -> None:
    registry = a_registry()
    registry.register("painted", Painted)
    registry.register("pure", "pathlib:PurePath")
    assert registry.get("painted") is Painted
    assert registry.get("pure").__name__ == "PurePath"
    assert list(registry) == ["path", "painted", "pure"]


def test_a_name_that_is_taken_is_refused_and_the_same_plug_in_is_not() -> None:
    registry = a_registry()
    registry.register("painted", Painted)
    registry.register("painted", Painted)
    registry.register("path", "pathlib:Path")
    for name in ("painted", "path"):
        with pytest.raises(ConfigError, match="exists already"):
            registry.register(name, "pathlib:PurePath")
    assert registry.get("painted") is Painted


@pytest.mark.parametrize("name", ["", "a+b", "a b", "-", "gym:x"])
def test_a_name_that_no_flag_could_give_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="letters, digits"):
        a_registry().register(name, Painted)


def test_an_unknown_name_is_told_its_neighbours() -> None:
    registry = a_registry()
    registry.register("painted", Painted)
    with pytest.raises(UnknownNameError, match="did you mean 'painted'"):
        registry.get("paintet")


def test_an_entry_that_its_module_does_not_have_is_named() -> None:
    with pytest.raises(ConfigError, match="'pathlib' has no 'Square'"):
        Registry("shape", {"square": "pathlib:Square"}).get("square")


REGISTRIES = {
    "clearl.methods": METHODS, "clearl.corrections": CORRECTIONS, "clearl.suites": SUITES,
    "clearl.protocols": PROTOCOLS, "clearl.torsos": TORSOS, "clearl.mirrors": MIRRORS, "clearl.runtimes": RUNTIMES,
}  # fmt: skip
"""Every registry that plug-ins may join, by its entry-point group."""


@pytest.mark.parametrize("group", REGISTRIES)
def test_installed_packages_add_plug_ins_by_entry_points(
    group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "their_package-1.0.dist-info"
    home.mkdir()
    (home / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (home / "entry_points.txt").write_text(f"[{group}]\ntheirs = fractions:Fraction\npath = fractions:Fraction\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    shipped = REGISTRIES[group]
    registry = Registry(shipped.kind, {"path": "pathlib:Path"}, group=shipped.group)
    assert "theirs" in registry and list(registry).count("path") == 1
    assert registry.get("theirs").__name__ == "Fraction"
    assert registry.get("path") is Path, "an installed package does not replace what is there"


def test_of_two_packages_with_one_name_the_first_on_the_path_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for directory, target in (("behind", "fractions:Fraction"), ("before", "decimal:Decimal")):
        home = tmp_path / directory / "their_package-1.0.dist-info"
        home.mkdir(parents=True)
        (home / "entry_points.txt").write_text(f"[clearl.methods]\ntheirs = {target}\n")
        monkeypatch.syspath_prepend(str(tmp_path / directory))
    assert a_registry("clearl.methods").get("theirs").__name__ == "Decimal"


@pytest.mark.parametrize("group", REGISTRIES)
def test_the_pages_on_plug_ins_name_every_registry_and_its_group(group: str) -> None:
    name = {id(value): name for name, value in vars(clearl.interfaces).items()}.get(id(REGISTRIES[group]))
    assert name is not None or group == "clearl.runtimes", "a runtime of one's own rests on more than the interfaces"
    for text in (clearl.interfaces.__doc__ or "", (DOCS / "extending.md").read_text()):
        assert f"`{group}`" in text
        assert name is None or f"{name}.register" in text


def test_no_registry_of_plug_ins_is_left_out() -> None:
    source = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    assert len(re.findall(r"^\w+: Registry\b.* = Registry\($", source, re.M)) == len(REGISTRIES) == 7
