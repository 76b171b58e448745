"""Every command of the README, as a subprocess, in its order; long ones with a small budget."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from served import served

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TINY_RUN = {
    "--frames-per-visit": "640",
    "--cycles": "1",
    "--runtime": "inline",
    "--slots": "8",
    "--batch-unrolls": "8",
    "--eval-every-frames": "640",
    "--eval-episodes": "2",
    "--eval-max-steps": "50",
}
TINY = {
    "run": TINY_RUN,
    "reproduce": {"--scale": "smoke"},
    "eval": {"--episodes": "2"},
    "video": {"--max-steps": "10"},
    "check": {"--steps": "200"},
}


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.M | re.S)


def _commands() -> list[list[str]]:
    lines = [line for block in _blocks("console") for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines), "a console block holds one command a line"
    return [shlex.split(line[2:]) for line in lines]


def _small(verb: str, arguments: list[str]) -> list[str]:
    """The same command with the budget of a test: its own flags are replaced, never repeated."""
    kept, changes = [], dict(TINY.get(verb, {}))
    tokens = iter(arguments)
    for token in tokens:
        kept.append(token)
        if token in changes:
            next(tokens)
            kept.append(changes.pop(token))
    return [*kept, *(part for pair in changes.items() for part in pair)]


def test_the_first_two_commands_are_make_demo_and_make_test():
    assert _commands()[:2] == [["make", "demo"], ["make", "test"]]
    for command in _commands()[:2]:
        subprocess.run([*command, "--dry-run"], cwd=ROOT, check=True, capture_output=True)


def test_every_command_runs(tmp_path: Path):
    commands = [command for command in _commands() if command[0] != "make"]
    assert {command[0] for command in commands} == {"clearl"}
    for _, verb, *arguments in commands:
        command = [sys.executable, "-m", "clearl", verb, *_small(verb, arguments)]
        if verb == "watch":
            with served([*arguments, "--no-browser"], tmp_path) as url, urlopen(url, timeout=60) as page:
                assert b"clearl watch" in page.read()
            continue
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("code", _blocks("python"))
def test_every_python_block_runs(code: str, tmp_path: Path):
    main_guarded = "if __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in code.splitlines())
    (tmp_path / "block.py").write_text(main_guarded)
    done = subprocess.run([sys.executable, "block.py"], cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("finished")


def test_every_link_and_picture_leads_somewhere():
    links = re.findall(r"\]\(([^)#\s:]+)[^):]*\)", README)
    assert [link for link in links if not (ROOT / link).exists()] == []


def _finding(suite: str, claim: str) -> tuple[str, str]:
    """The verdict and the effect of a claim, as the README writes it."""
    findings = json.loads((ROOT / f"docs/results/{suite}/{suite}/findings.json").read_text())
    finding = next(finding for finding in findings if finding["id"] == claim)
    if (effect := finding["effect"]) is None:
        return "not run", ""
    return finding["verdict"], f"{effect['value']:.2f} ({effect['low']:.2f} to {effect['high']:.2f})"


@pytest.mark.parametrize(
    ("row", "claim", "schemes"),
    [
        ("Without replay, a task is forgotten", "sequential-forgets", "e1-schemes"),
        ("CLEAR hardly forgets", "clear-keeps", "e1-schemes"),
        ("CLEAR is almost as good as training on all tasks at once", "clear-simultaneous", "e1-schemes"),
        ("Half new, half replay is a good balance", "balance", "e1-schemes"),
        ("Small buffers cost little", "tiny-buffer", "e1-schemes"),
        ("CLEAR is better than EWC", "clear-ewc", "e3-schemes"),
    ],
)
def test_the_verdicts_that_the_readme_tells_are_those_of_the_findings(row: str, claim: str, schemes: str):
    (line,) = re.findall(rf"^\| {row}\b.*\|$", README, flags=re.M)
    for cell, suite in zip(line.strip("| ").split(" | ")[1:], ("e0a-pairs", schemes), strict=True):
        verdict, effect = _finding(suite, claim)
        shown = "**holds**" if verdict == "holds" else verdict
        assert cell == (f"{shown}: {effect}" if effect else shown)


def test_what_the_readme_calls_unsettled_is_so():
    verdict, effect = _finding("e3-schemes", "clear-keeps")
    assert verdict == "undecided" and f"a quarter of each batch is replay: {effect}" in " ".join(README.split())
    assert _finding("e1-schemes", "no-cloning-between")[0] == "undecided"
    assert _finding("e3-schemes", "clear-progress-compress")[0] == "rival not tuned"
