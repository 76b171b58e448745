"""The arm that forgets: trained on the first task, which is dropped from memory, then on the second."""

from __future__ import annotations

from pathlib import Path

from clearl.memory import read_memory
from clearl.records.run_dir import RunDir
from clearl.records.table import MetricsTable
from clearl.reproduce.catalog import CHANGED_ACTIONS, EXPERIMENTS, FORGETS, planned_runs
from clearl.reproduce.planned import first_part, forget_commands
from clearl.reproduce.runner import is_finished, run_all
from clearl.suites.minatar import LEFT, RIGHT, control_scheme, parse_task


def test_every_arm_sees_the_same_two_tasks_and_no_sign_between_them() -> None:
    runs = planned_runs("changed-actions", "laptop")
    assert len(runs) == 5 * len(EXPERIMENTS["changed-actions"].arms) and FORGETS in {run.arm for run in runs}
    assert {run.config.tasks for run in runs} == {("breakout~1", "breakout~6")}
    assert {run.config.buffer_frames for run in runs} == {120_000} and all(run.config.keep_replay for run in runs)
    assert CHANGED_ACTIONS.keys() == {"smoke", "laptop"}
    then, now = (control_scheme(parse_task(task).scheme) for task in runs[0].config.tasks)
    assert (then.index(LEFT), then.index(RIGHT)) == (now.index(RIGHT), now.index(LEFT)), "left and right exchanged"


def test_the_words_of_the_sequence() -> None:
    (run,) = [run for run in planned_runs("changed-actions", "smoke") if run.arm == FORGETS]
    first, dropped, then = forget_commands(run.config, Path("a.yaml"), Path("runs/a"), arm=FORGETS)
    assert first[:6] == ["clearl", "run", "--config", "a.yaml", "--out", "runs/a-first"]
    assert dropped == ["clearl", "forget", "runs/a-first", "--task", "breakout~1"]
    assert then[:6] == ["clearl", "run", "--from", "runs/a-first", "--tasks", "breakout~6"]


def test_the_arm_forgets_before_it_goes_on_and_a_second_call_does_nothing(tmp_path: Path) -> None:
    (run,) = [run for run in planned_runs("changed-actions", "smoke") if run.arm == FORGETS]
    assert run_all([run], tmp_path, jobs=1, say=lambda line: None)
    out = tmp_path / run.path
    assert is_finished(out) and RunDir(out).meta["arm"] == FORGETS
    assert read_memory(out).tasks.keys() == {"breakout~6"}
    (dropped,) = RunDir(first_part(out)).meta["forgotten"]
    assert dropped["task"] == "breakout~1" and dropped["unrolls"] > 0 and dropped["left"] == 0
    rows = MetricsTable.read(out).rows
    assert [row["frames"] for row in rows if row["kind"] == "train"][-1] == 2 * 1280
    assert {row["task"] for row in rows if row["kind"] == "eval"} == {"breakout~1", "breakout~6"}
    assert run_all([run], tmp_path, jobs=1, say=lambda line: None)
