"""The commands of the page on memory do what it says, in its order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from clearl.cli.main import main
from clearl.memory import read_memory
from clearl.replay.labels import _HEAD, MAX_LABEL_NBYTES

PAGE = Path(__file__).parents[2] / "docs" / "memory.md"
QUICK = ["--eval-episodes", "1", "--eval-max-steps", "20", "--switch-episodes", "1", "--quiet"]


def test_the_commands_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)
    commands = [shlex.split(line.removeprefix("$ ")) for block in blocks for line in block.splitlines()]
    verbs = [words[1] for words in commands]
    assert verbs == ["run", "memory", "memory", "memory", "forget", "forget", "forget", "run", "reproduce"]
    held = []
    for words in commands[:-1]:  # the last is run by the tests of `reproduce`
        assert words[0] == "clearl" and main([*words[1:], *(QUICK if words[1] == "run" else [])]) == 0
        held.append(read_memory(tmp_path / "runs" / "a").tasks.get("breakout"))
    counts = [0 if each is None else each.unrolls for each in held]
    assert counts[4] == counts[0] > counts[5] > counts[6] == 0, "dry run, some, all"
    assert read_memory(tmp_path / "runs" / "b").tasks.keys() == {"freeway", "asterix"}
    assert (tmp_path / "memory.png").stat().st_size > 1000


def test_the_bytes_of_a_label_are_those_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert f"{_HEAD.size} bytes and the task's name" in text and f"at most {MAX_LABEL_NBYTES} bytes" in text
