"""What the pages name exists: verbs, flags, settings, files, row keys; and their files and Python blocks work."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from clearl.cli.main import VERBS
from clearl.config import resolve, settings
from clearl.errors import UnknownNameError
from clearl.protocols import PROTOCOLS
from clearl.records import schema
from clearl.reproduce.sweep import load_sweep

ROOT = Path(__file__).parents[2]
DOCS = sorted(page for page in (ROOT / "docs").rglob("*.md") if "results" not in page.parts)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS]


def _code(page: Path) -> list[str]:
    """Code spans, and lines of code blocks, of a page."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, flags=re.M | re.S)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    return [*spans, *(line for block in blocks for line in block.splitlines())]


@cache
def _flags(verb: str) -> set[str]:
    """The flags of a verb."""
    names = set(settings()) if verb in ("run", "resume") else set()
    module = import_module(f"clearl.cli.{verb}")
    for value in vars(module).values():
        if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == module.__name__:
            names |= {field.name for field in dataclasses.fields(value)}
    flags = {f"--{name.strip('_').replace('_', '-')}" for name in names}
    return flags | {flag.replace("--", "--no-", 1) for flag in flags} | {"--help", "--version"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_verbs_and_flags_exist(page: Path) -> None:
    own = OF_PAGE.get(page.name, set())
    for line in (code.removeprefix("$ ") for code in _code(page) if re.match(r"(\$ )?clearl [a-z]", code)):
        verb = line.split()[1]
        assert verb in {*VERBS, "version"}, line
        used = set(re.findall(r"(?<!\S)--[a-z][a-z-]+", line.partition(" && ")[0]))
        assert verb == "version" or used <= _flags(verb) | own, line
    bare = {code.split()[0].split("=")[0] for code in _code(page) if re.match(r"--[a-z][a-z-]+( |$)", code)}
    assert bare <= own.union(*map(_flags, VERBS))


OF_PAGE = {
    "extending.md": {"--pull-weight"},
    "your-method.md": {"--pull-weight"},
    "coming-from.md": {"--resume-id"},  # CORA's
    "CHANGELOG.md": {"--lr", "--env"},  # named there as wrong ones that lead to ours
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_source_files_that_a_page_names_exist(page: Path) -> None:
    named = {code for code in _code(page) if re.fullmatch(r"[\w./-]+/[\w.-]+\.(py|md|yaml|toml|cff)", code)}
    own = ("runs/", "my_", "OUT/")
    missing = [
        name
        for name in named
        if not name.startswith(own) and not any((base / name).exists() for base in (ROOT, ROOT / "src" / "clearl"))
    ]
    assert missing == []


def test_all_that_the_architecture_names_is_there() -> None:
    """Folders and bare file names too, which a page on the user's own files may use for others."""
    source = ROOT / "src" / "clearl"
    known = {path.name for path in source.rglob("*.py")}
    code = _code(ROOT / "docs" / "architecture.md")
    files = {name for name in code if re.fullmatch(r"[\w.-]+\.(py|toml|jsonl|yaml)", name)}
    folders = {name for name in code if re.fullmatch(r"[\w./-]+/", name)}
    assert len(files) > 10 and len(folders) > 10
    assert {name for name in files if name not in known and not (ROOT / name).exists()} == set()
    assert {name for name in folders if not any((base / name).is_dir() for base in (ROOT, source))} == set()


def test_the_architecture_shows_every_room() -> None:
    """Each module and folder of the package is in the table of layers."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    rooms = page[page.index("## The rooms") : page.index("## The way of one unroll")]
    source = ROOT / "src" / "clearl"
    folders = {f"{path.parent.name}/" for path in source.glob("*/__init__.py")}
    modules = {path.name for path in source.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert {name for name in folders | modules if f"`{name}`" not in rooms} == set()


def test_the_architecture_has_a_row_for_every_file_of_the_runtimes() -> None:
    rows = re.findall(r"^\| `(runtimes/[\w/]+\.py)` \|", (ROOT / "docs" / "architecture.md").read_text(), flags=re.M)
    source = ROOT / "src" / "clearl"
    files = [path for path in (source / "runtimes").rglob("*.py") if path.name != "__init__.py"]
    assert sorted(rows) == sorted(path.relative_to(source).as_posix() for path in files)


def test_every_protocol_has_its_row() -> None:
    rows = re.findall(r"^\| `([a-z]+)` \|", (ROOT / "docs" / "protocols.md").read_text(), flags=re.M)
    assert sorted(rows) == sorted(PROTOCOLS)


def test_every_kind_and_key_of_a_row_is_documented() -> None:
    page = (ROOT / "docs" / "files.md").read_text()
    rows = {
        "eval": schema.eval_row(
            task="a", frames=1, mean_return=0.0, episodes=1, updates=1, wall_s=0.0, std=0.0, column="active", segment=0,
            skipped=1, secondary=True,
        ),
        "train": schema.train_row(
            tasks=["a"], frames=1, updates=1, fps=1.0, loss={}, lag_updates=0.0, replay={}, wall_s=0.0
        ),
        "segment": schema.segment_row(tasks=["a"], start_frames=0, end_frames=1, index=0, extra_frames=1),
        "fault": schema.fault_row(frames=0, worker="w", problem="p", wall_s=0.0),
        "restart": schema.restart_row(frames=0, worker="w", after_s=0.0, wall_s=0.0),
        "resume": schema.resume_row(frames=0, updates=0, wall_s=0.0),
        "continued": schema.continued_row(start_bytes=0),
        "summary": schema.summary_row({"evaluations": {}, "seconds": {}}),
    }  # fmt: skip
    documented = dict(re.findall(r"^\*\*`(\w+)`\*\*(.*?)(?=^\*\*`|^## |\Z)", page, flags=re.M | re.S))
    assert documented.keys() == rows.keys()
    for kind, row in rows.items():
        missing = [key for key in row.keys() - {"v", "kind"} if f"`{key}`" not in documented[kind]]
        assert missing == [], kind


def test_the_sweep_of_the_page_stands_for_as_many_runs_as_it_says(tmp_path: Path) -> None:
    text = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / "sweeps.md").read_text(), flags=re.M | re.S)[0]
    (tmp_path / "entropy.yaml").write_text(text)
    stated = re.search(r"= (\d+) runs", text)
    assert stated and len(load_sweep(tmp_path / "entropy.yaml").runs) == int(stated[1])


def test_the_schedule_of_the_page_is_a_plan(tmp_path: Path) -> None:
    text = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / "protocols.md").read_text(), flags=re.M | re.S)[0]
    (tmp_path / "schedule.yaml").write_text(text)
    config = resolve(flags={"protocol": "schedule", "schedule": str(tmp_path / "schedule.yaml")})
    (plan,) = PROTOCOLS.get("schedule")(("breakout", "asterix", "freeway"), config)
    assert plan.total_frames == 700_000 and len(plan.segments) == 4


def test_every_measure_of_a_report_has_its_formula() -> None:
    code = (ROOT / "src" / "clearl" / "report" / "summary.py").read_text(encoding="utf-8")
    keys = set(re.findall(r'"(\w+)": stat\(|stats\["(\w+)"\] =', code))
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert len(keys) > 10
    assert [key for pair in keys for key in pair if key and f"`{key}`" not in page] == []


def test_every_measure_that_the_page_names_is_one_of_the_code() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "clearl" / "report").glob("*.py"))
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    names = re.findall(r"^\*\*[^*]+\*\* \((?:figure )?`(\w+)`", page, flags=re.M) + re.findall(r", `(cw_\w+)` \|", page)
    assert len(names) > 12
    assert [name for name in names if f'"{name}"' not in code] == []


def test_messages_that_troubleshooting_quotes_are_in_the_code() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    joined = re.sub(r'"\s*f?"', "", code) + str(UnknownNameError("Gymnasium id", "A-v0", ()))
    quoted = re.findall(r"^\| `([^`]+)`", page, flags=re.M)
    assert len(quoted) > 5
    assert [text for text in quoted if text not in joined] == []


def test_every_extra_has_one_row_on_the_install_page() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    table = page.partition("## Extras")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]+) \|", table, flags=re.M)
    named = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(project["optional-dependencies"].keys() - {"dev"})
    least, below = re.findall(r"torch>=([\d.]+),<2\.(\d+)", " ".join(project["dependencies"]))[0]
    assert f"({least} to 2.{int(below) - 1})" in page
