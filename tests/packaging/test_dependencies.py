"""Every package that the code imports is declared; the environment of the tests holds more, and would hide a lack."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearl.doctor import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
DISTRIBUTIONS = {  # by the names of their modules, where those differ
    "PIL": "pillow", "yaml": "pyyaml", "ale_py": "ale-py", "google_crc32c": "google-crc32c",
    "imageio_ffmpeg": "imageio-ffmpeg",
}  # fmt: skip
NOT_IN_AN_INDEX = {"deepmind_lab"}
NOT_IMPORTED_BY_NAME = {
    "onnxruntime": "runs what `clearl export --format onnx` writes",
    "clearl-minatar-fast": "is found by its entry point",
    "pyarrow": "writes Parquet for pandas",
    "onnx": "is imported by torch's exporter",
    "onnxscript": "is imported by torch's exporter",
}
"""Requirements that nothing in the package imports by a name in its text, and what they are for."""


def _imported(source: Path) -> dict[str, str]:
    """The top-level modules that a package imports, anywhere and in any way, each with one of the files."""
    found = {}
    for file in sorted(source.rglob("*.py")):
        for module in _modules(ast.parse(file.read_text(encoding="utf-8"))):
            found[module.partition(".")[0]] = file.relative_to(source).as_posix()
    return {name: file for name, file in found.items() if name not in sys.stdlib_module_names and name != source.name}


def _modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "find_spec") and node.args:
            (first, *_) = ast.walk(node.args[0])
            if isinstance(first, ast.JoinedStr):
                first = first.values[0]
            if isinstance(first, ast.Constant):
                yield str(first.value)


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _project(directory: Path) -> dict[str, list[str]]:
    """The required distributions, and those of every extra that is for users, by normalised names."""
    project = tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project.get("optional-dependencies", {})
    groups = {"": project["dependencies"], **{name: extras[name] for name in extras if name not in ("docs", "dev")}}
    return {name: [_normal(one) for one in listed] for name, listed in groups.items()}


def _normal(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]).lower()


@pytest.mark.parametrize("package", ["clearl", "distributions/minatar-fast/src/clearl_minatar_fast"])
def test_every_import_is_of_a_declared_distribution(package: str) -> None:
    source = ROOT / "src" / package if package == "clearl" else ROOT / package
    declared = {name for listed in _project(source.parents[1]).values() for name in listed}
    imported = _imported(source)
    assert "numpy" in imported
    missing = {
        module: file
        for module, file in imported.items()
        if module not in NOT_IN_AN_INDEX and _normal(DISTRIBUTIONS.get(module, module)) not in declared
    }
    assert missing == {}


def test_what_an_extra_brings_is_used() -> None:
    used = {_normal(DISTRIBUTIONS.get(module, module)) for module in _imported(ROOT / "src" / "clearl")}
    declared = {name for listed in _project(ROOT).values() for name in listed} - {"clearl"}
    assert declared - used == set(NOT_IMPORTED_BY_NAME)


def test_the_doctor_names_the_extra_that_brings_a_package() -> None:
    project = _project(ROOT)
    for package in PACKAGES:
        if package.extra is not None:
            assert _normal(package.distribution) in project[package.extra], package


def test_an_undeclared_import_is_found_wherever_it_stands() -> None:
    code = """
import first.part
def later():
    from second import name
    importlib.import_module("third.part")
    find_spec("fourth"), import_module(f"fifth.{name}"), import_module(name)
    from . import ours
"""
    assert sorted(_modules(ast.parse(code))) == ["fifth.", "first.part", "fourth", "second", "third.part"]
