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


@pytest.mark.parametrize(
    ("suite", "claim", "words"),
    [
        ("e0a-pairs", "sequential-forgets", "the baseline kept {}"),
        ("e0a-pairs", "clear-keeps", "it kept {} of these games"),
        ("e0a-pairs", "clear-simultaneous", "{} on these games"),
        ("e1-schemes", "clear-keeps", "{} of three control schemes"),
        ("e1-schemes", "clear-simultaneous", "holds on the control schemes, {}"),
        ("e1-schemes", "balance", "on the control schemes, {}"),
        ("e1-schemes", "tiny-buffer", "1/180 of all frames gave {}"),
        ("e3-schemes", "clear-keeps", "instead of half on the control schemes, {}"),
        ("e3-schemes", "clear-ewc", "on the control schemes, {} times its score"),
    ],
)
def test_the_effects_that_the_readme_tells_are_those_of_the_findings(suite: str, claim: str, words: str):
    findings = json.loads((ROOT / f"docs/results/{suite}/{suite}/findings.json").read_text())
    effect = next(finding["effect"] for finding in findings if finding["id"] == claim)
    told = f"{effect['value']:.2f} ({effect['low']:.2f} to {effect['high']:.2f})"
    assert words.format(told) in " ".join(README.split())
