"""Numbers as people write them, YAML that cannot explode, and values cut in messages."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from clearl.config import RunConfig, from_yaml, resolve, to_yaml
from clearl.config.engine import parse_yaml
from clearl.errors import ConfigError

WRITTEN = {
    "100_000": 100_000, "1e5": 100_000, "100k": 100_000, "100K": 100_000, "2M": 2_000_000, "2.5m": 2_500_000,
    "1G": 10**9, "1.5e3k": 1_500_000, " 7 ": 7, "1234567890123": 1234567890123,
}  # fmt: skip


@pytest.mark.parametrize("text", WRITTEN)
def test_a_whole_number_may_be_written_short(text: str) -> None:
    assert RunConfig(frames_per_visit=text).frames_per_visit == WRITTEN[text]


@pytest.mark.parametrize(
    "text", ["1.5", "k", "1kk", "1e400", "nan", "inf", "1__0", "9" * 5000, "1e999999999", "0x10", "-1", "٣ M"]
)
def test_what_is_no_whole_number_in_range_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="frames_per_visit must be a whole number"):
        RunConfig(frames_per_visit=text)


@pytest.mark.parametrize(("text", "value"), [("3e-4", 3e-4), ("0.1", 0.1), ("1", 1.0), ("1e-12", 1e-12)])
def test_a_rate_is_the_float_that_python_reads(text: str, value: float) -> None:
    assert RunConfig(learning_rate=text).learning_rate == value


def test_numbers_in_a_file_may_be_written_short(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("frames_per_visit: 100k\nbuffer_frames: 2e6\nlearning_rate: 6e-4\n")
    config = resolve(file=tmp_path / "a.yaml")
    assert (config.frames_per_visit, config.buffer_frames, config.learning_rate) == (100_000, 2_000_000, 6e-4)


SIZES = {
    "20GB": 20 * 10**9, "1.5TB": 15 * 10**11, "512MiB": 512 * 2**20, "1 gib": 2**30, "300k": 300_000, "7": 7, "7B": 7,
    "2_000 KB": 2_000_000, 40: 40,
}  # fmt: skip


@pytest.mark.parametrize("text", SIZES)
def test_a_size_may_have_a_unit(text: str | int, tmp_path: Path) -> None:
    config = RunConfig(replay_budget=text)
    assert config.replay_budget == SIZES[text] and from_yaml(to_yaml(config)) == config


@pytest.mark.parametrize("text", ["lots", "GB", "20 apples", "-3GB", "0GB", "7iB", "1e30TB", "20GBB", True])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="replay_budget must be a size such as 20GB, in bytes between 1 and"):
        RunConfig(replay_budget=text)


LEVELS = "abcdefghi"
MERGE_BOMB = "a: &a {x: 1}\n" + "".join(
    f"{new}: &{new}\n  <<: [{', '.join(['*' + old] * 9)}]\n" for old, new in pairwise(LEVELS)
)
NESTED_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join(['*' + old] * 9)}]\n" for old, new in pairwise(LEVELS)
)


@pytest.mark.parametrize("text", [MERGE_BOMB, NESTED_BOMB, "tasks: &t [a]\nimports: *t", "method: {<<: {a: 1}}"])
def test_aliases_and_merge_keys_are_refused_at_once(text: str) -> None:
    began = time.monotonic()
    with pytest.raises(ConfigError, match="write the values out"):
        parse_yaml(text, "foreign.yaml")
    assert time.monotonic() - began < 2


def test_a_long_value_is_cut_in_the_message() -> None:
    for value in ("x" * 10**6, ["y" * 1000] * 1000, {"a": list(range(10**5))}):
        with pytest.raises(ConfigError) as caught:
            RunConfig(slots=value)
        assert len(str(caught.value)) < 1000


def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(ConfigError, match="is no plain file"):
        resolve(file=tmp_path / "pipe.yaml")
    with pytest.raises(ConfigError, match="is no plain file"):
        resolve(file="/dev/zero")


def test_a_text_is_parsed_once_and_each_reader_gets_its_own_values(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, load = [], yaml.load
    monkeypatch.setattr(yaml, "load", lambda text, loader: texts.append(text) or load(text, loader))
    text = f"tasks: [a, b]\nseed: {id(texts)}"
    first = parse_yaml(text, "one.yaml")
    first["tasks"].append("c")
    assert parse_yaml(text, "one.yaml")["tasks"] == ["a", "b"]
    assert texts == [text]
