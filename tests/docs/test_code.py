"""Code on the pages: commands and Python run in their order, with small budgets; excerpts are what their files hold."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "results" not in path.parts)
FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```", re.M | re.S)
OTHER_TESTS = [
    path.read_text(encoding="utf-8")
    for path in (*ROOT.glob("tests/docs/test_*.py"), *ROOT.glob("tests/cli/test_*.py"))
    if path.name not in ("test_code.py", "test_pages.py", "test_shell.py", "test_site.py")
]
NOT_RUN = {
    "sh": "installs, needs a cluster or a batch system; test_shell.py tries each line",
    "text": "output",
    "yaml": "a file that the commands of its page read, or that a test in test_pages.py reads",
    "toml": "a piece of another project's file",
}
TINY = {
    "run": {
        "--frames-per-visit": "320", "--cycles": "1", "--slots": "8", "--batch-unrolls": "8", "--unroll-steps": "10",
        "--eval-every-frames": "10_000", "--eval-episodes": "1", "--switch-episodes": "1", "--eval-max-steps": "20",
        "--runtime": "inline",
    },
    "eval": {"--episodes": "1"},
    "video": {"--max-steps": "10"},
    "check": {"--steps": "200"},
}  # fmt: skip
ELSEWHERE = {"watch": "tests/cli/test_readme.py", "demo": "tests/cli/test_demo.py"}
"""Verbs that would wait for Ctrl-C or take long, and the test that runs them."""
KEPT = {"--runtime"}
"""Flags of a page that stay as they are."""
RUNNER = """
import json, os, pathlib, sys
from clearl.cli.main import main
if __name__ == "__main__":
    top = pathlib.Path.cwd()
    for kind, code in json.loads(sys.argv[1]):
        if kind == "page":
            print("page", code, flush=True)
            os.makedirs(top / code)
            os.chdir(top / code)
        elif kind == "file":
            pathlib.Path(code[0]).write_text(code[1])
        elif kind == "python":
            exec(compile(code, "page", "exec"), {"__name__": "page"})
        elif (status := main(code)) != 0:
            sys.exit(f"exit code {status}: clearl {' '.join(code)}")
    print("all pages have run")
"""


def _blocks(page: Path) -> list[tuple[str, str]]:
    """The info string and the text of each block of code."""
    return [(match[2].strip(), match[3]) for match in FENCE.finditer(page.read_text(encoding="utf-8"))]


def _small(verb: str, arguments: list[str]) -> list[str]:
    """The same command with the budget of a test: its own flags are replaced, never repeated."""
    changes = {} if "--dry-run" in arguments else dict(TINY.get(verb, {}))
    kept, tokens = [verb], iter(arguments)
    for token in tokens:
        kept.append(token)
        if token in changes:
            value = next(tokens)
            small = changes.pop(token)
            kept.append(value if token in KEPT else small)
    return [*kept, *(part for pair in changes.items() for part in pair)]


def _steps(page: Path) -> list[tuple[str, str | list[str]]]:
    steps: list[tuple[str, str | list[str]]] = []
    for info, text in _blocks(page):
        if named := re.match(r"# (\w+\.(?:yaml|py))\b", text):
            steps.append(("file", [named[1], text]))
        elif info == "python":
            steps.append(("python", text))
        if info == "console":
            lines = [shlex.split(line) for line in text.splitlines()]
            assert all(line[:2] == ["$", "clearl"] for line in lines), f"{page}: one clearl command a line"
            steps += [("command", _small(verb, rest)) for _, _, verb, *rest in lines if verb not in ELSEWHERE]
    return steps


RUNNABLE = [page for page in PAGES if not any(f'"{page.name}"' in test for test in OTHER_TESTS) and _steps(page)]
"""Pages that have no test of their own."""


@pytest.mark.parametrize("folder", sorted({page.parent for page in RUNNABLE}), ids=lambda folder: folder.name)
def test_the_pages_run_from_top_to_bottom(folder: Path, tmp_path: Path) -> None:
    """One process for the pages of a folder: most of the time is the import of torch."""
    steps: list[tuple[str, str | list[str]]] = []
    for page in (page for page in RUNNABLE if page.parent == folder):
        steps += [("page", page.stem), *_steps(page)]
    (tmp_path / "runner.py").write_text(RUNNER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "runner.py", json.dumps(steps)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)
    assert done.stdout.endswith("all pages have run\n"), done.stdout[-3000:] + done.stderr[-4000:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_every_block_is_run_or_says_why_not(page: Path) -> None:
    kinds = {info for info, _ in _blocks(page) if not re.fullmatch(r'python title="[^"]+"', info)}
    assert kinds <= {"console", "python", *NOT_RUN}


EXCERPTS = [
    pytest.param(match[1], text, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, (info, text) in enumerate(_blocks(page))
    if (match := re.fullmatch(r'python title="([^"]+)"', info))
]


@pytest.mark.parametrize(("file", "text"), EXCERPTS)
def test_an_excerpt_stands_in_the_file_that_it_names(file: str, text: str) -> None:
    rest = iter((ROOT / file).read_text(encoding="utf-8").splitlines())
    missing = [line for line in text.splitlines() if line not in rest]  # consumes: the order counts
    assert missing == []


def test_every_method_and_suite_has_a_page() -> None:
    from clearl.methods import METHODS
    from clearl.suites import SUITES

    names = {name: "gymnasium" if name == "gym" else name for name in SUITES if SUITES.ships(name)}
    methods = [name for name in METHODS if METHODS.ships(name)]  # tests register others
    assert [name for name in methods if not (DOCS / "methods" / f"{name}.md").is_file()] == []
    assert [name for name in names if not (DOCS / "suites" / f"{names[name]}.md").is_file()] == []


def test_every_suite_page_has_pictures_with_something_in_them() -> None:
    """A frame from before anything has happened shows next to nothing."""
    shown = {page.stem: re.findall(r'src="(pictures/[^"]+)"', page.read_text()) for page in (DOCS / "suites").glob("*")
             if page.suffix == ".md" and page.stem != "index"}  # fmt: skip
    assert [name for name, pictures in shown.items() if not pictures] == ["dmlab"], "in no index, and not trained yet"
    empty = []
    for name in (name for pictures in shown.values() for name in pictures):
        with Image.open(DOCS / "suites" / name) as picture:
            if len(picture.convert("RGB").getcolors(1 << 20) or ()) < 4:
                empty.append(name)
    assert empty == []


def test_the_drawings_are_those_of_the_script(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, str(ROOT / "tools" / "drawings"), str(tmp_path)], env=environment, check=True)
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert drawn == {path.name: path.read_text() for path in (DOCS / "drawings").glob("*.svg")}
