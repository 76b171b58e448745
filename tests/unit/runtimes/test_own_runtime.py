"""A runtime of a user's own, registered by a module that `--imports` names, trains; an unknown one is refused."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from whole_runs import SMALL, assert_equal, rows, state

import clearl
from clearl.cli.main import main
from clearl.config import RunConfig, from_yaml, to_yaml
from clearl.errors import UnknownNameError
from clearl.experiment import run
from clearl.plugins import import_plugins
from clearl.records.schema import Row
from clearl.runtimes import RUNTIMES

MODULE = '''
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from clearl.config import Count, Tag
from clearl.runtimes import RUNTIMES

@dataclass(frozen=True)
class TimidSettings:
    """Timid"""
    timid_attempts: Annotated[Count, Tag.PLACEMENT, "attempts that are noted down"] = 3

def run_timid(spec):
    from clearl.runtimes.inline import run_inline
    (spec.run_dir / "attempts.txt").write_text(str(spec.config.timid_attempts))
    run_inline(spec)

run_timid.settings = TimidSettings
RUNTIMES.register("timid", run_timid)
'''
FLAGS = [
    "--tasks", "breakout", "--cycles", "1", "--frames-per-visit", "320", "--slots", "4", "--batch-unrolls", "4",
    "--unroll-steps", "8", "--buffer-frames", "400", "--eval-episodes", "1", "--eval-max-steps", "20", "--quiet",
]  # fmt: skip


@pytest.fixture
def timid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "timid_runtime.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    RUNTIMES._entries.pop("timid", None)
    sys.modules.pop("timid_runtime", None)


@pytest.mark.usefixtures("timid")
def test_it_trains_with_its_settings_and_resumes_as_the_runtime_that_it_wraps(tmp_path: Path) -> None:
    own = ["--imports", "timid_runtime", "--runtime", "timid", "--timid-attempts", "7"]
    assert main(["run", *FLAGS, *own, "--out", "own"]) == 0
    assert (tmp_path / "own" / "attempts.txt").read_text() == "7"
    assert main(["run", *FLAGS, "--runtime", "inline", "--out", "plain"]) == 0
    assert_equal(rows(tmp_path / "own", "train"), rows(tmp_path / "plain", "train"), "metrics")
    assert_equal(state(tmp_path / "own")["learner"], state(tmp_path / "plain")["learner"], "learner")
    assert "timid_attempts: 7" in (tmp_path / "own" / "config.yaml").read_text()
    assert "timid" not in (tmp_path / "plain" / "config.yaml").read_text()
    assert main(["resume", "own", "--imports", "timid_runtime", "--quiet"]) == 0


@pytest.mark.usefixtures("timid")
def test_its_settings_of_placement_may_change_when_a_run_is_resumed(tmp_path: Path) -> None:
    own = ["--imports", "timid_runtime", "--runtime", "timid", "--timid-attempts"]
    import_plugins(["timid_runtime"])

    def stop(row: Row) -> None:
        if row["kind"] == "train" and row["updates"] == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    flags = {flag[2:].replace("-", "_"): value for flag, value in zip(FLAGS[:-1:2], FLAGS[1::2], strict=True)}
    config = RunConfig(**flags, imports=("timid_runtime",), runtime="timid", timid_attempts=7, record_every_updates=1)
    assert run(config, tmp_path / "own", console=False, listeners=[stop]).status == "interrupted"
    assert main(["run", *FLAGS, *own, "8", "--record-every-updates", "1", "--out", "own"]) == 0
    assert (tmp_path / "own" / "attempts.txt").read_text() == "8"
    assert "timid_attempts: 8" in (tmp_path / "own" / "config.yaml").read_text()
    assert [row["updates"] for row in rows(tmp_path / "own", "train")] == list(range(1, 11))


def test_settings_of_a_run_are_read_where_its_runtime_is_not_registered() -> None:
    assert from_yaml(to_yaml(RunConfig(runtime="elsewhere"))).runtime == "elsewhere"


UNKNOWN = "unknown runtime 'lokal'; did you mean 'local'?"


@pytest.mark.parametrize("flags", [[], ["--dry-run"]], ids=["run", "dry-run"])
def test_an_unknown_name_is_refused_with_the_nearest(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x"
    assert main(["run", *FLAGS, *flags, "--runtime", "lokal", "--out", str(out)]) == 2
    assert capsys.readouterr().err.strip().endswith(UNKNOWN) and not out.exists()


def test_an_unknown_name_is_refused_before_a_run_is_copied_or_changed(tmp_path: Path) -> None:
    clearl.run(out=tmp_path / "a", **{**SMALL, "cycles": 1, "frames_per_visit": 200})
    before = (tmp_path / "a" / "config.yaml").read_bytes()
    with pytest.raises(UnknownNameError, match="did you mean 'local'"):
        clearl.run(resume_from=tmp_path / "a", out=tmp_path / "b", runtime="lokal", tasks=("asterix",))
    assert not (tmp_path / "b").exists()
    assert (tmp_path / "a" / "config.yaml").read_bytes() == before


def test_the_name_must_be_a_text(tmp_path: Path) -> None:
    with pytest.raises(clearl.ClearlError, match="runtime must be a text"):
        clearl.run(out=tmp_path / "a", runtime=3)
