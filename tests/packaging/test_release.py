"""The release workflow: its jobs fit together, its shell lines do what they say, its Pythons are told of."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import clearl
from clearl.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]
STEPS = [(job, step) for job, content in JOBS.items() for step in content["steps"]]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OTHERS = {
    tomllib.loads(file.read_text(encoding="utf-8"))["project"]["name"]: file.parent
    for file in (ROOT / "distributions").glob("*/pyproject.toml")
}
"""The distributions beside clearl, and their directories."""
PUBLISHING = [*(f"publish-{path.name}" for path in OTHERS.values()), "publish"]


def shell_lines(job: str) -> list[str]:
    return [line for step in JOBS[job]["steps"] for line in step.get("run", "").splitlines()]


def test_it_starts_with_a_tag_and_may_only_read() -> None:
    assert WORKFLOW[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads the key `on` as true
    assert WORKFLOW["permissions"] == {"contents": "read"}
    writing = {job: content["permissions"] for job, content in JOBS.items() if "permissions" in content}
    assert list(writing) == PUBLISHING
    assert all(given == {"id-token": "write"} for given in writing.values()), "trusted publishing, no stored secret"
    assert "secrets." not in str(WORKFLOW)


def test_every_job_waits_for_the_one_whose_files_it_takes() -> None:
    order = list(JOBS)
    assert order == ["build", "check", *PUBLISHING]
    for job, before in zip(order[1:], order[:-1], strict=True):
        assert JOBS[job]["needs"] == before
    handed = [(job, step["with"]["name"]) for job, step in STEPS if "artifact" in step.get("uses", "")]
    assert handed == [(job, "dist") for job in order]
    environments = [JOBS[job]["environment"] for job in PUBLISHING]
    assert len(set(environments)) == len(environments), "the index tells publishers apart by them"


@pytest.mark.parametrize(("job", "step"), STEPS, ids=[f"{job}-{place}" for place, (job, _) in enumerate(STEPS)])
def test_a_step_either_runs_shell_or_uses_an_action_of_a_fixed_version(job: str, step: dict[str, Any]) -> None:
    assert ("run" in step) != ("uses" in step)
    assert step.keys() <= {"name", "run", "uses", "with"}
    if "uses" in step:
        assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", step["uses"])
    else:
        subprocess.run(["bash", "-n", "-c", step["run"]], check=True)


def test_the_pythons_begin_with_those_of_the_classifiers_and_are_told_of() -> None:
    named = [match[1] for each in PROJECT["classifiers"] if (match := re.search(r"Python :: (3\.\d+)$", each))]
    tried = JOBS["check"]["strategy"]["matrix"]["python-version"]
    assert tried[: len(named)] == named and PROJECT["requires-python"] == f">={named[0]}"
    (row,) = [line for line in (ROOT / "docs" / "install.md").read_text().splitlines() if line.startswith("| Linux |")]
    assert re.findall(r"3\.\d+", row) == tried, "what ran with which version"


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/install.md", "Makefile"])
def test_the_oldest_python_is_told_the_same_everywhere(page: str) -> None:
    told = re.findall(r"Python 3\.\d+ (?:or|to) [\w.]*\w", (ROOT / page).read_text(encoding="utf-8"))
    assert set(told) == {f"Python {PROJECT['requires-python'].removeprefix('>=')} or newer"}


@pytest.mark.parametrize(("tag", "passes"), [(f"v{clearl.__version__}", True), ("v9.9.9", False), ("v", False)])
def test_a_tag_that_is_not_the_version_stops_the_release(tag: str, passes: bool) -> None:
    (line,) = [line for line in shell_lines("build") if "__version__" in line]
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, env={**os.environ, "GITHUB_REF_NAME": tag})
    assert (done.returncode == 0) == passes


@pytest.mark.parametrize(
    ("heading", "passes"),
    [("1.2.3 (2031-01-02)", True), ("1.2.3 (unreleased)", False), ("1.2.4 (2031-01-02)", False)],
)
def test_a_version_without_a_date_in_the_changelog_is_not_released(heading: str, passes: bool, tmp_path: Path) -> None:
    (line,) = [line for line in shell_lines("build") if "CHANGELOG.md" in line]
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n\n## 0.1.0 (2030-01-01)\n")
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env={**os.environ, "GITHUB_REF_NAME": "v1.2.3"})
    assert (done.returncode == 0) == passes


def test_the_readme_of_the_index_page_has_no_link_into_the_clone(tmp_path: Path) -> None:
    (line,) = [line for line in shell_lines("build") if "README.md" in line]
    (tmp_path / "tools").mkdir()
    for name in ("README.md", "tools/index_readme.py"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    where = {"GITHUB_SERVER_URL": "https://host", "GITHUB_REPOSITORY": "some/one", "GITHUB_REF_NAME": "v1.2.3"}
    subprocess.run(["bash", "-c", line], cwd=tmp_path, env={**os.environ, **where}, check=True)
    before, after = ((directory / "README.md").read_text(encoding="utf-8") for directory in (ROOT, tmp_path))
    links = re.findall(r"(!?)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)", after)
    assert len(links) == before.count("](") == after.count("](")
    assert [link for _, link in links if not link.startswith("https://")] == []
    ours = [(picture, link) for picture, link in links if link.startswith("https://host/")]
    assert len(ours) > 20 and "![Two agents train" in after
    for picture, link in ours:
        kind, tag, path = link.removeprefix("https://host/some/one/").split("/", 2)
        assert (kind, tag) == ("raw" if picture else "blob", "v1.2.3") and (ROOT / path).exists()


def test_every_distribution_of_ours_is_built_checked_and_published_before_what_requires_it() -> None:
    build, check = shell_lines("build"), "\n".join(shell_lines("check"))
    uploads = [[step for step in JOBS[job]["steps"] if "pypi-publish" in step["uses"]] for job in PUBLISHING]
    published = [step["with"]["packages-dir"] for (step,) in uploads]
    required = {name for extra in PROJECT["optional-dependencies"].values() for name in map(_name, extra)}
    ours = {name for name in required if name.startswith("clearl")} - {"clearl"}
    assert ours == set(OTHERS), "an extra names a distribution that anybody could publish, or one that nobody installs"
    for directory in (path.relative_to(ROOT).as_posix() for path in OTHERS.values()):
        out = f"dist/{Path(directory).name}"
        assert f"python -m build --outdir {out} {directory}" in build
        assert f"{out}/*.whl" in check
    assert published == [*(f"dist/{path.name}/" for path in OTHERS.values()), "dist/clearl/"]
    assert "python -m build --outdir dist/clearl" in build and "twine check --strict dist/*/*" in build


def test_extras_within_extras_exist() -> None:
    extras = PROJECT["optional-dependencies"]
    named = [each for extra in extras.values() for one in extra for each in re.findall(r"^clearl\[(.*)\]$", one)]
    assert len(named) == 2
    assert {name for each in named for name in each.split(",")} <= extras.keys()


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]


def test_its_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = [shlex.split(line) for line in shell_lines("check") if line.startswith("clearl ")]
    assert [command[1] for command in commands] == ["doctor", "demo", "run", "report", "eval"]
    inline = ["--runtime", "inline"]
    small = {
        "run": [*inline, "--slots", "8", "--batch-unrolls", "8", "--eval-episodes", "1", "--cycles", "1"],
        "demo": inline,
    }
    for _, verb, *rest in commands:
        given = [
            "320" if before == "--frames-per-visit" else word for before, word in zip(["", *rest], rest, strict=False)
        ]
        assert main([verb, *given, *small.get(verb, [])]) == 0
