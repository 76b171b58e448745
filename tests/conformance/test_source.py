"""Rules that hold over all source files."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "clearl"
TREES = {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def assigned(node: ast.AST) -> set[str]:
    """Attributes of `self` that are assigned to below `node`."""
    return {
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and ast.unparse(part.value) == "self"
    }


def test_no_class_name_occurs_twice() -> None:
    """One word, one thing: a class is found by its name alone."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in TREES.items():
        for node in classes(tree):
            places[node.name].append(f"{path}:{node.lineno}")
    assert len(places) > 200
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize("path", [path for path in TREES if path.startswith("runtimes/")])
def test_objects_of_runtimes_have_all_their_attributes_from_the_start(path: str) -> None:
    """None exists only after the right methods were called in the right order."""
    for kind in classes(TREES[path]):
        methods = {node.name: node for node in kind.body if isinstance(node, ast.FunctionDef)}
        declared = {
            node.target.id
            for node in kind.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        }
        made = assigned(methods["__init__"]) if "__init__" in methods else set()
        late = {name: assigned(node) - made - declared for name, node in methods.items()}
        assert not any(late.values()), f"{kind.name}: {late}"


def imported_rooms(tree: ast.Module) -> set[str]:
    """The folders of clearl that a file imports from, anywhere in it."""
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {module.split(".")[1] for module in modules if module.startswith("clearl.")}


def test_one_file_joins_the_parts_of_a_run() -> None:
    parts = {"acting", "learning", "methods", "replay", "suites", "protocols"}
    assert [path for path, tree in TREES.items() if parts <= imported_rooms(tree)] == ["wiring.py"]


HEADS = "nets/heads/"


def names(tree: ast.AST) -> set[str]:
    """Every name that a file gives to a variable, argument, attribute, function or keyword."""
    kinds = {ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg", ast.keyword: "arg", ast.FunctionDef: "name"}
    return {getattr(node, kinds[type(node)]) or "" for node in ast.walk(tree) if type(node) in kinds}


@pytest.mark.parametrize("path", [path for path in TREES if not path.startswith(HEADS)])
def test_only_heads_know_logits_and_nobody_else_a_kind_of_head(path: str) -> None:
    """So that another kind of policy is another file."""
    kinds = {kind.name for file, tree in TREES.items() if file.startswith(HEADS) for kind in classes(tree)}
    public = {"Distribution", "Head", "StdSettings", "Described"}
    assert {"CategoricalHead", "GaussianHead"} <= kinds and public <= kinds
    assert names(TREES[path]) & {"logits", *kinds - public} == set()
    assert "nets.heads." not in " ".join(
        node.module or "" for node in ast.walk(TREES[path]) if isinstance(node, ast.ImportFrom)
    )


RIDDLES = ("What", "Who", "Whom", "Whose", "Of", "Whether", "How", "Where", "When", "Which", "Why")


@pytest.mark.parametrize("path", TREES)
def test_docstrings_name_their_subject_or_begin_with_a_verb(path: str) -> None:
    """Relative clauses without a head make a reader start twice: "Return what ...", "The place of ..." do not."""
    documented = (
        node for node in ast.walk(TREES[path]) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    )
    texts = (text for node in documented if (text := ast.get_docstring(node)))
    assert [text for text in texts if text.split()[0].strip(",:;") in RIDDLES] == []


FOREIGN_TEXTS = ("runtimes/cluster/ray_host.py",)
"""Files that read the texts of another library's errors, which have no other form."""


def caught_names(tree: ast.Module) -> set[str]:
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name}


@pytest.mark.parametrize("path", [path for path in TREES if path not in FOREIGN_TEXTS])
def test_no_meaning_is_read_out_of_the_text_of_an_error(path: str) -> None:
    """Texts are for people: they may be shown and shortened, but nothing is decided by them."""
    texts = {f"str({name})" for name in caught_names(TREES[path])}
    asked = [
        ast.unparse(node)
        for node in ast.walk(TREES[path])
        if (isinstance(node, ast.Attribute) and node.attr in ("startswith", "endswith", "split", "partition", "find"))
        and ast.unparse(node.value) in texts
    ]
    compared = [
        ast.unparse(node)
        for node in ast.walk(TREES[path])
        if isinstance(node, ast.Compare) and texts & {ast.unparse(part) for part in (node.left, *node.comparators)}
    ]
    assert [*asked, *compared] == []
