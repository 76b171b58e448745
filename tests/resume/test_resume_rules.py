from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest
from interrupted import crash, row_number
from whole_runs import assert_same_runs, contents, rows, shards, small_config, start, state

from clearl.errors import CorruptFileError, RunDirectoryError
from clearl.experiment import run
from clearl.methods import method_spellings
from clearl.records.run_dir import RunDir
from clearl.records.schema import Row
from clearl.storage.checkpoints import CheckpointStore

CONFIG = small_config(cycles=1)


def wait_until(process: BaseProcess, happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        process.join(0.01)
        assert process.is_alive() and time.monotonic() < deadline


def has_rows(out: Path, number: int) -> Callable[[], bool]:
    path = out / "metrics.jsonl"
    return lambda: path.exists() and path.read_bytes().count(b"\n") >= number


def tree_of_files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    assert run(CONFIG, out, console=False).status == "finished"
    return out


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that died between its third checkpoint and its end."""
    out = tmp_path_factory.mktemp("crashed") / "run"
    crash(CONFIG, out, at=row_number(11))
    assert len(list((out / "checkpoints").iterdir())) == 2
    return out


@pytest.fixture
def broken(crashed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(crashed, tmp_path / "run"))


@pytest.mark.parametrize("number", [1, 3, 6, 13])
def test_a_crash_at_any_row_is_made_good(whole: Path, tmp_path: Path, number: int) -> None:
    crash(CONFIG, tmp_path, at=row_number(number))
    assert RunDir.open(tmp_path).status == "failed"
    assert run(CONFIG, tmp_path, console=False).status == "finished"
    assert_same_runs(whole, tmp_path, CONFIG)


@pytest.mark.parametrize("method", [name for name in method_spellings() if name != "clear"])
def test_every_method_resumes_exactly(tmp_path: Path, method: str) -> None:
    config = replace(CONFIG, method=method, cycles=2, frames_per_visit=300, fisher_batches=3, compress_frames=None)
    run(config, tmp_path / "whole", console=False)
    written = len(rows(tmp_path / "whole"))
    crash(config, tmp_path / "run", at=row_number(2 * written // 3))
    assert state(tmp_path / "run")["learner"]["state"]["counters"]["frames"] > 300
    run(config, tmp_path / "run", console=False)
    assert_same_runs(tmp_path / "whole", tmp_path / "run", config)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_gives_a_checkpoint_and_the_same_command_goes_on(whole: Path, tmp_path: Path, number: int) -> None:
    process = start(CONFIG, tmp_path)
    wait_until(process, has_rows(tmp_path, 6))
    assert process.pid is not None
    os.kill(process.pid, number)
    process.join(10)
    assert process.exitcode == 0 and RunDir.open(tmp_path).status == "interrupted"
    at_stop = max(row["frames"] for row in rows(tmp_path) if "frames" in row)
    assert state(tmp_path)["learner"]["state"]["counters"]["frames"] >= at_stop
    assert run(CONFIG, tmp_path, console=False).status == "finished"
    assert_same_runs(whole, tmp_path, CONFIG)


def test_a_signal_after_the_last_evaluation_does_not_repeat_it(whole: Path, tmp_path: Path) -> None:
    last = [row for row in rows(whole) if row["kind"] == "eval"][-1]

    def stop_after(row: Row) -> None:
        if row["kind"] == "eval" and (row["task"], row["frames"]) == (last["task"], last["frames"]):
            os.kill(os.getpid(), signal.SIGTERM)

    assert run(CONFIG, tmp_path, console=False, listeners=[stop_after]).status == "interrupted"
    assert run(CONFIG, tmp_path, console=False).status == "finished"
    assert_same_runs(whole, tmp_path, CONFIG)


def test_a_crash_after_the_last_checkpoint_leaves_nothing_to_do(tmp_path: Path) -> None:
    config = replace(CONFIG, runtime="local", workers=1)
    run(config, tmp_path, console=False)
    before = rows(tmp_path)
    RunDir.open(tmp_path).set_status("running")
    assert run(config, tmp_path, console=False).status == "finished"
    assert [row for row in rows(tmp_path) if row["kind"] != "resume"] == before


def test_a_long_evaluation_does_not_delay_the_end(tmp_path: Path) -> None:
    config = replace(CONFIG, tasks=("freeway",), eval_episodes=300, eval_max_steps=10_000)
    process = start(config, tmp_path)
    wait_until(process, has_rows(tmp_path, 1))
    assert process.pid is not None
    os.kill(process.pid, signal.SIGTERM)
    process.join(10)
    assert process.exitcode == 0 and RunDir.open(tmp_path).status == "interrupted"
    assert [row["kind"] for row in rows(tmp_path)] == ["segment"]
    assert state(tmp_path)["evaluations"] == 0, "the evaluation that was given up must be made when the run goes on"


def test_a_second_signal_ends_at_once_unless_it_belongs_to_the_first(tmp_path: Path) -> None:
    config = replace(CONFIG, suite="gym:Faulty-v0", tasks=(), torso="mlp", imports=("faulty_envs",))
    process = start(config, tmp_path / "run", environ={"FAULTS": str(tmp_path)})
    (tmp_path / "hang").touch()
    wait_until(process, lambda: (tmp_path / "hang.taken").exists())
    assert process.pid is not None
    for _ in range(2):  # within a second they are one request
        os.kill(process.pid, signal.SIGINT)
        process.join(0.1)
    process.join(1)
    assert process.is_alive(), "the first signal waits for the step to end"
    os.kill(process.pid, signal.SIGINT)
    process.join(2)
    assert process.exitcode == 128 + signal.SIGINT


def test_a_changed_config_is_refused_with_a_diff(broken: Path) -> None:
    before = tree_of_files(broken)
    with pytest.raises(RunDirectoryError, match=r"learning_rate: 0.003 there, 0.001 now; slots|slots.*learning_rate"):
        run(replace(CONFIG, learning_rate=0.001, slots=5), broken, console=False)
    assert tree_of_files(broken) == before


def test_a_finished_run_says_so_and_returns_its_result(whole: Path) -> None:
    before = tree_of_files(whole)
    result = run(CONFIG, whole, console=False)
    assert (result.status, result.trained) == ("finished", False)
    assert result.metrics and tree_of_files(whole) == before


def test_a_run_killed_between_its_last_checkpoint_and_its_end_has_nothing_left_to_do(
    whole: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(whole, tmp_path / "run"))
    RunDir.open(out).set_status("running", metrics_bytes=None)
    assert run(CONFIG, out, console=False).trained
    assert_same_runs(whole, out, CONFIG)


def test_a_directory_that_is_being_trained_is_left_alone(broken: Path) -> None:
    with RunDir.open(broken).locked():
        before = tree_of_files(broken)
        with pytest.raises(RunDirectoryError, match="being trained by another process"):
            run(CONFIG, broken, console=False)
        assert tree_of_files(broken) == before


def test_a_torn_row_is_repaired(whole: Path, broken: Path) -> None:
    with open(broken / "metrics.jsonl", "ab") as file:
        file.write(b'{"v":1,"kind":"train","tasks":["breakout"],"fra')
    assert run(CONFIG, broken, console=False).status == "finished"
    assert_same_runs(whole, broken, CONFIG)


@pytest.mark.parametrize("name", ["state.json", "arrays.safetensors", "manifest.json"])
def test_a_damaged_checkpoint_costs_time_and_nothing_else(whole: Path, broken: Path, name: str) -> None:
    newest = CheckpointStore(broken / "checkpoints").newest()
    assert newest is not None
    data = bytearray((newest.path / name).read_bytes())
    data[len(data) // 2] ^= 4
    (newest.path / name).write_bytes(bytes(data))
    run(CONFIG, broken, console=False)
    told = [row["problem"] for row in rows(broken, "fault")]
    assert len(told) == 1 and newest.path.name in told[0] and "went on from" in told[0]
    forget_faults(broken)
    assert_same_runs(whole, broken, CONFIG)


def test_metrics_that_end_before_the_checkpoint_are_written_again(whole: Path, broken: Path) -> None:
    newest = CheckpointStore(broken / "checkpoints").newest()
    assert newest is not None
    os.truncate(broken / "metrics.jsonl", newest.json["metrics_position"] - 1)
    run(CONFIG, broken, console=False)
    assert "metrics.jsonl has no row that ends at byte" in rows(broken, "fault")[0]["problem"]
    forget_faults(broken)
    assert_same_runs(whole, broken, CONFIG)


def test_no_good_checkpoint_is_an_error_and_never_a_fresh_start(broken: Path) -> None:
    for path in (broken / "checkpoints").iterdir():
        (path / "manifest.json").unlink()
    with pytest.raises(CorruptFileError, match="no good checkpoint is left"):
        run(CONFIG, broken, console=False)


def test_replay_in_ram_is_lost_with_the_process_and_the_run_says_so(tmp_path: Path) -> None:
    config = replace(CONFIG, replay_store="ram")
    crash(config, tmp_path, at=row_number(11))
    assert run(config, tmp_path, console=False).status == "finished"
    assert "unrolls of replay are lost" in rows(tmp_path, "fault")[0]["problem"]
    frames = [row["frames"] for row in rows(tmp_path, "train")]
    assert frames == sorted(set(frames))


def test_environments_without_a_state_start_new_episodes(tmp_path: Path) -> None:
    config = replace(CONFIG, suite="gym:CartPole-v1", tasks=(), torso="mlp", buffer_frames=4000)
    crash(config, tmp_path, at=row_number(5))
    before = state(tmp_path)["shards"][0]
    assert run(config, tmp_path, console=False).status == "finished"
    frames = [row["frames"] for row in rows(tmp_path, "train")]
    assert frames == sorted(set(frames)) and state(tmp_path)["finished"]
    held = contents(shards(tmp_path, config)[0])
    assert held[before].first[0] and not np.array_equal(held[before].frames, held[0].frames), "other episodes"


def test_the_size_of_a_checkpoint_does_not_depend_on_the_buffer(tmp_path: Path) -> None:
    sizes = []
    for frames in (200, 20_000):
        run(replace(CONFIG, buffer_frames=frames), tmp_path / str(frames), console=False)
        newest = CheckpointStore(tmp_path / str(frames) / "checkpoints").newest()
        assert newest is not None
        sizes.append(sum(file.stat().st_size for file in newest.path.iterdir()))
    assert abs(sizes[0] - sizes[1]) < 200, sizes


def forget_faults(out: Path) -> None:
    """Take the rows that tell of faults out of the metrics."""
    lines = (out / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (out / "metrics.jsonl").write_bytes(b"".join(line for line in lines if b'"kind":"fault"' not in line))
