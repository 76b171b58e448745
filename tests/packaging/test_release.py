"""The release workflow: its jobs fit together, its shell lines do what they say, its Pythons are the classifiers'."""

from __future__ import annotations

import os
import re
import shlex
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


def shell_lines(job: str) -> list[str]:
    return [line for step in JOBS[job]["steps"] for line in step.get("run", "").splitlines()]


def test_it_starts_with_a_tag_and_may_only_read() -> None:
    assert WORKFLOW[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads the key `on` as true
    assert WORKFLOW["permissions"] == {"contents": "read"}
    writing = {job: content["permissions"] for job, content in JOBS.items() if "permissions" in content}
    assert writing == {"publish": {"id-token": "write"}}, "trusted publishing, and no stored secret"
    assert "secrets." not in str(WORKFLOW)


def test_every_job_waits_for_the_one_whose_files_it_takes() -> None:
    order = list(JOBS)
    assert order == ["build", "check", "publish"]
    for job, before in zip(order[1:], order[:-1], strict=True):
        assert JOBS[job]["needs"] == before
    handed = [(job, step["with"]["name"]) for job, step in STEPS if "artifact" in step.get("uses", "")]
    assert handed == [("build", "dist"), ("check", "dist"), ("publish", "dist")]


@pytest.mark.parametrize(("job", "step"), STEPS, ids=[f"{job}-{place}" for place, (job, _) in enumerate(STEPS)])
def test_a_step_either_runs_shell_or_uses_an_action_of_a_fixed_version(job: str, step: dict[str, Any]) -> None:
    assert ("run" in step) != ("uses" in step)
    assert step.keys() <= {"name", "run", "uses", "with"}
    if "uses" in step:
        assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", step["uses"])
    else:
        subprocess.run(["bash", "-n", "-c", step["run"]], check=True)


def test_the_pythons_are_those_of_the_classifiers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [match[1] for each in project["classifiers"] if (match := re.search(r"Python :: (3\.\d+)$", each))]
    assert JOBS["check"]["strategy"]["matrix"]["python-version"] == named
    assert project["requires-python"] == f">={named[0]}"


@pytest.mark.parametrize(("tag", "passes"), [(f"v{clearl.__version__}", True), ("v9.9.9", False), ("v", False)])
def test_a_tag_that_is_not_the_version_stops_the_release(tag: str, passes: bool) -> None:
    (line,) = [line for line in shell_lines("build") if "GITHUB_REF_NAME" in line]
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, env={**os.environ, "GITHUB_REF_NAME": tag})
    assert (done.returncode == 0) == passes


def test_its_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = [shlex.split(line) for line in shell_lines("check") if line.startswith("clearl ")]
    assert [command[1] for command in commands] == ["doctor", "run", "report", "eval"]
    small = ["--runtime", "inline", "--slots", "8", "--batch-unrolls", "8", "--eval-episodes", "1", "--cycles", "1"]
    for _, verb, *rest in commands:
        given = [
            "320" if before == "--frames-per-visit" else word for before, word in zip(["", *rest], rest, strict=False)
        ]
        assert main([verb, *given, *(small if verb == "run" else [])]) == 0
