"""An agent that exists goes on with the next tasks: weights, optimiser, method and memory; the law of the reservoir."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from failing_calls import FailingCalls
from interrupted import crash, extend_and_end

import clearl
from clearl.config import RunConfig, from_yaml
from clearl.continuation import extend_run, fork_run, go_on, plan_extension
from clearl.errors import ClearlError, ConfigError
from clearl.experiment import run
from clearl.records.run_dir import RunDir, Status
from clearl.report import make_report
from clearl.seeding import derive, unroll_numbers
from clearl.storage.checkpoints import CheckpointStore
from clearl.storage.switch_weights import SwitchWeights
from clearl.wiring import load_factory

SMALL: dict[str, Any] = {
    "tasks": ("breakout", "breakout@1"), "runtime": "inline", "slots": 4, "batch_unrolls": 4, "unroll_steps": 5,
    "frames_per_visit": 400, "cycles": 1, "eval_every_frames": 200, "eval_episodes": 1, "eval_max_steps": 20,
    "replay_store": "disk", "buffer_frames": 300, "method": "clear", "seed": 5, "record_every_updates": 5,
    "torso": "minatar",
}  # fmt: skip
FIRST = SMALL
NEXT: dict[str, Any] = {"tasks": ("asterix",), "frames_per_visit": 300}


def learner(path: Path) -> dict[str, torch.Tensor]:
    saved = CheckpointStore(path / "checkpoints").newest()
    assert saved is not None
    return saved.tree["learner"]["tensors"]


def rows(path: Path, kind: str) -> list[dict[str, Any]]:
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == kind]


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def test_a_copy_goes_on_and_the_run_it_came_from_is_untouched(first: Path, tmp_path: Path) -> None:
    before, out = files(first), tmp_path / "b"
    fork_run(plan_extension(first, NEXT), out)
    for name, tensor in learner(first).items():
        assert torch.equal(tensor, learner(out)[name]), name
    result = clearl.run(resume_from=first, out=out, **NEXT)
    assert result.status == "finished" and files(first) == before
    frames = [row["frames"] for row in rows(out, "train")]
    assert frames == sorted(frames) and frames[-1] == 1100 and frames[0] < 800, "the axis goes on, the past is there"
    evaluated = {row["task"] for row in rows(out, "eval") if row["frames"] > 800}
    assert evaluated == {"breakout", "breakout@1", "asterix"}, "old tasks stay evaluated"
    segments = {row["index"]: row for row in rows(out, "segment")}
    assert [segments[i]["tasks"] for i in sorted(segments)] == [["breakout"], ["breakout@1"], ["asterix"]]
    assert segments[2]["end_frames"] == 1100
    switches = [row["segment"] for row in rows(out, "eval") if row.get("switch") and row["task"] == "breakout"]
    assert switches == [0, 1, 2], "each boundary once"


def test_in_place_and_as_a_copy_end_alike_bit_for_bit(copy: Path, first: Path, tmp_path: Path) -> None:
    one = clearl.run(resume_from=first, out=tmp_path / "b", **NEXT)
    extend_run(plan_extension(copy, NEXT))
    config = RunDir.open(copy).config_text
    two = run(from_yaml(config), copy, console=False)
    assert two.status == "finished"
    for name, tensor in learner(one.path).items():
        assert torch.equal(tensor, learner(copy)[name]), name


@pytest.mark.parametrize(
    "changes",
    [{}, {"buffer_frames": 160}, {"buffer_frames": 600}, {"replay_budget": "35KB"}],
    ids=["same", "less", "more", "budget"],
)
def test_the_buffer_is_a_uniform_sample_of_the_whole_life(first: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    out = tmp_path / "b"
    clearl.run(resume_from=first, out=out, **NEXT, **changes)
    factory = load_factory(RunDir(out).config_text, out)
    saved = CheckpointStore(out / "checkpoints").newest()
    assert saved is not None
    old, new = 300 // (5 * 4), changes.get("buffer_frames", 300) // (5 * 4)
    if "replay_budget" in changes:
        new = RunDir(out).meta["replay"]["capacity_unrolls"]
        assert new < old and RunDir(out).meta["replay"]["forecast"].endswith("frames within the budget of 35.0 KB")
    for slot in range(4):
        shard, offered = factory.shard(slot), int(saved.tree["shards"][slot])
        assert offered == 1100 // (5 * 4)
        shard.restore(offered)
        numbers = unroll_numbers(derive(5, "reservoir", slot), np.arange(offered))
        kept = shard.sequences().tolist()
        assert kept == sorted(np.argsort(numbers)[-len(kept) :].tolist()), (
            "kept == the top by number, old and new alike"
        )
        assert len(kept) == new if new <= old else old <= len(kept) <= new
        shard.close()


def test_other_settings_may_change_and_are_shown(first: Path, tmp_path: Path) -> None:
    extension = plan_extension(first, {**NEXT, "method": "ewc+clear", "learning_rate": 0.001})
    assert extension.changes["method"] == ("clear", "ewc+clear")
    assert extension.changes["learning_rate"] == (0.003, 0.001)
    fork_run(extension, tmp_path / "b")
    assert (
        clearl.run(resume_from=first, out=tmp_path / "b", **NEXT, method="ewc+clear", learning_rate=0.001).status
        == "finished"
    )


def test_the_meta_data_describe_the_method_from_now_on(first: Path, tmp_path: Path) -> None:
    told = {name: RunDir(first).meta[name] for name in ("method", "label", "needs_boundaries")}
    assert told == {"method": "clear", "label": "CLEAR", "needs_boundaries": False}
    fork_run(plan_extension(first, {**NEXT, "method": "ewc+clear"}), tmp_path / "b")
    meta = RunDir(tmp_path / "b").meta
    assert {name: meta[name] for name in told} == {
        "method": "ewc+clear", "label": "EWC + CLEAR", "needs_boundaries": True
    }  # fmt: skip


def test_extend_takes_an_arm_and_listeners(copy: Path) -> None:
    seen: list[dict[str, Any]] = []
    result = clearl.run(resume_from=copy, out=copy.with_name("b"), **NEXT)
    result.extend(arm="mine", listeners=[seen.append], **NEXT)
    assert RunDir(result.path).meta["arm"] == "mine"
    assert {row["task"] for row in seen if row["kind"] == "eval"} == {"breakout", "breakout@1", "asterix"}
    assert [row["frames"] for row in seen if row["kind"] == "train"][-1] == 1400


def test_a_baselines_agent_goes_on_with_clear(tmp_path: Path) -> None:
    run(RunConfig(**{**SMALL, "method": "baseline"}), tmp_path / "a", console=False)
    result = clearl.run(resume_from=tmp_path / "a", out=tmp_path / "b", **NEXT, method="clear")
    held = rows(tmp_path / "b", "train")[-1]["replay"]["held"]
    assert result.status == "finished" and held > 0
    result.extend(tasks=("freeway",), frames_per_visit=200, method="baseline")
    again = result.extend(tasks=("freeway",), frames_per_visit=200, method="clear")
    assert again.status == "finished" and rows(tmp_path / "b", "train")[-1]["replay"]["held"] >= held


def test_a_report_of_the_chain_shows_the_past_once(first: Path, tmp_path: Path) -> None:
    result = clearl.run(resume_from=first, out=tmp_path / "b", **NEXT)
    result.extend(tasks=("freeway",), frames_per_visit=200)
    assert rows(tmp_path / "b", "train")[-1]["frames"] == 1300
    assert len(rows(tmp_path / "b", "segment")) >= 4
    make_report([tmp_path / "b"], tmp_path / "report")
    summary = json.loads((tmp_path / "report" / "summary.json").read_text())
    (arm,) = summary["arms"].values()
    assert set(arm["tasks"]) == {"breakout", "breakout@1", "asterix", "freeway"}


def test_a_budget_is_kept_from_part_to_part_and_replaced_by_frames(first: Path, tmp_path: Path) -> None:
    fork_run(plan_extension(first, {**NEXT, "replay_budget": "35KB"}), tmp_path / "b")
    capacity = RunDir(tmp_path / "b").meta["replay"]["capacity_unrolls"]
    again = plan_extension(tmp_path / "b", NEXT)
    assert again.config.replay_budget == 35_000 and again.replay["capacity_unrolls"] == capacity
    frames = plan_extension(tmp_path / "b", {**NEXT, "buffer_frames": 600})
    assert frames.config.replay_budget is None and frames.replay["capacity_unrolls"] == 30


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "clearl", "run", *arguments, "--quiet"]


def test_a_task_that_was_trained_before_is_visited_again(first: Path) -> None:
    extension = plan_extension(first, {**NEXT, "tasks": ("breakout", "asterix")})
    assert extension.revisited == ("breakout",)
    assert [segment.tasks for segment in extension.plan.segments[2:]] == [("breakout",), ("asterix",)]


def test_the_command_says_what_changes_and_the_same_command_resumes(first: Path, tmp_path: Path) -> None:
    line = command(
        "--from", str(first), "--tasks", "asterix", "--frames-per-visit", "300", "--out", str(tmp_path / "b")
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    drawn = subprocess.run([*line, "--dry-run"], capture_output=True, text=True, env=environment, timeout=200)
    assert drawn.returncode == 0 and "sequential: 3 segments, 1,100 frames" in drawn.stdout
    assert not (tmp_path / "b").exists()
    done = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "frames_per_visit: 400 -> 300" in done.stdout and "goes on from frame 800" in done.stdout
    assert "MB of replay copied" in done.stdout
    again = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=200)
    assert again.returncode == 0 and "finished already" in again.stdout


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"torso": "mlp"}, "torso is 'minatar' in this run and cannot change"),
        ({"seed": 9}, "seed is 5"),
        ({"slots": 8}, "slots is 4"),
        ({"suite": "gym:CartPole-v1"}, "cannot go on with suite gym:CartPole-v1"),
        ({"tasks": ("pong",)}, "unknown task"),
        ({"learning_rat": 0.1}, "did you mean 'learning_rate'"),
        ({"protocol": "separate", "tasks": ("asterix", "freeway")}, "several networks"),
        ({"method": "progress-compress+clear"}, "another network"),
        ({"buffer_frames": 10}, "buffer_frames must be at least"),
        ({"replay_budget": "1KB"}, "replay_budget must be at least"),
        ({"tasks": ("asterix", "asterix")}, "tasks must differ from each other"),
        ({"layer_norm": True}, "layer_norm is False in this run and cannot change"),
        ({"cycles": "forever", "anneal": True}, "anneal needs an end"),
        ({"protocol": "schedule"}, "protocol schedule and the setting schedule"),
    ],
)
def test_what_cannot_go_on_is_one_line_and_changes_nothing(
    first: Path, tmp_path: Path, flags: dict[str, Any], says: str
) -> None:
    before = files(first)
    with pytest.raises(ClearlError) as caught:
        fork_run(plan_extension(first, {**NEXT, **flags}), tmp_path / "b")
    assert says in str(caught.value) and "\n" not in str(caught.value)
    assert files(first) == before and not (tmp_path / "b").exists()


def test_runs_that_hold_no_agent_to_go_on_with_are_refused(copy: Path, tmp_path: Path) -> None:
    RunDir(copy).set_status("running")
    with RunDir(copy).locked(), pytest.raises(ClearlError, match="(?i)another process"):
        plan_extension(copy, NEXT)
    RunDir(copy).set_status("finished")
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(ClearlError, match="no checkpoint"):
        plan_extension(copy, NEXT)
    with pytest.raises(ClearlError, match="holds no run"):
        plan_extension(tmp_path / "nowhere", NEXT)


@pytest.mark.parametrize("status", ["failed", "running"])
def test_a_run_that_failed_or_was_cut_off_goes_on_from_its_newest_checkpoint(tmp_path: Path, status: Status) -> None:
    a, config = tmp_path / "a", RunConfig(**{**SMALL, "checkpoint_every_frames": 160})
    crash(config, a, at=lambda row: row["kind"] == "train" and row["frames"] > 300)
    assert RunDir(a).status == "failed" and rows(a, "train")[-1]["frames"] > 320
    RunDir(a).set_status(status)
    before = files(a)
    clearl.run(resume_from=a, out=tmp_path / "b", **NEXT)
    assert files(a) == before
    run(go_on(a, None, NEXT), a, console=False)
    for out in (a, tmp_path / "b"):
        frames = [row["frames"] for row in rows(out, "train")]
        assert frames == [100, 200, 300, 400, 500, 600], "none twice"
        assert RunDir(out).status == "finished" and RunDir(out).meta["extensions"][0]["frames"] == 320
        last = rows(out, "segment")[-1]
        assert (last["tasks"], last["start_frames"], last["end_frames"]) == (["asterix"], 320, 320 + 300)


def test_a_run_that_changed_since_the_plan_is_refused(copy: Path, tmp_path: Path) -> None:
    extension = plan_extension(copy, NEXT)
    RunDir(copy).update_meta(arm="another")
    with pytest.raises(ClearlError, match="has changed meanwhile; nothing was done, try again"):
        extend_run(extension)
    extension = plan_extension(copy, NEXT)
    CheckpointStore(copy / "checkpoints").save(extension.saved.tree)
    before = files(copy)
    for extend in (lambda: extend_run(extension), lambda: fork_run(extension, tmp_path / "b")):
        with pytest.raises(ClearlError, match="has changed meanwhile"):
            extend()
    assert files(copy) == before and [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_full_disk_leaves_nothing_of_the_copy(first: Path, tmp_path: Path) -> None:
    extension, out, making, failures = plan_extension(first, NEXT), tmp_path / "b", tmp_path / ".b.making", 0
    with FailingCalls(making).injected() as whole:
        fork_run(extension, out)
    shutil.rmtree(out)
    for moment in range(0, len(whole.seen), 5):
        try:
            with FailingCalls(making, moment, error=errno.ENOSPC).injected():
                fork_run(extension, out)
        except ClearlError as error:
            failures += 1
            assert "No space left on device" in str(error) and "\n" not in str(error)
            assert list(tmp_path.rglob("*")) in ([], [making]), "at most a directory that could not be locked"
        else:
            shutil.rmtree(out)
    assert failures > 10


@pytest.mark.parametrize("damage", ["meta", "settings", "checkpoint", "version"])
def test_a_damaged_run_or_one_of_another_version_is_one_line_and_stays_as_it_is(copy: Path, damage: str) -> None:
    meta = copy / "meta.json"
    if damage == "meta":
        meta.write_text(meta.read_text().replace('"status": "finished"', '"status": "finishes"'))
    elif damage == "settings":
        (copy / "config.yaml").write_text((copy / "config.yaml").read_text().replace("seed: 5", "seed: 6"))
    elif damage == "checkpoint":
        for file in copy.glob("checkpoints/*/arrays.safetensors"):
            file.write_bytes(file.read_bytes()[:-9])
    else:
        fields = json.loads(meta.read_text()) | {"v": 99}
        meta.write_text(json.dumps({name: value for name, value in fields.items() if name != "crc"}))
    before = files(copy)
    says = {
        "meta": "meta.json", "settings": "was changed after the run was made",
        "checkpoint": "no good checkpoint is left",
        "version": "is of version 99; this clearl reads version 1",
    }  # fmt: skip
    with pytest.raises(ClearlError, match=says[damage]) as caught:
        go_on(copy, copy.with_name("b"), NEXT)
    assert "\n" not in str(caught.value) and files(copy) == before and not copy.with_name("b").exists()


def test_a_run_of_version_0_1_goes_on(tmp_path: Path) -> None:
    old = Path(__file__).parents[1] / "data" / "version-0.1" / "finished"
    source = Path(shutil.copytree(old, tmp_path / "a"))
    config = from_yaml(RunDir.open(source).config_text)
    settings = {"tasks": config.tasks[:1], "frames_per_visit": 2 * config.slots * config.unroll_steps}
    result = clearl.run(resume_from=source, out=tmp_path / "b", runtime="inline", cycles=1, **settings)
    assert result.status == "finished" and files(source) == files(old)


def test_an_interrupted_run_ends_its_visit_where_it_stands(tmp_path: Path) -> None:
    def stop(row: dict[str, Any]) -> None:
        if row["kind"] == "train" and row["frames"] >= 500:
            os.kill(os.getpid(), signal.SIGTERM)

    result = run(RunConfig(**SMALL), tmp_path / "a", console=False, listeners=[stop])
    assert result.status == "interrupted"
    stood = rows(tmp_path / "a", "train")[-1]["frames"]
    clearl.run(resume_from=tmp_path / "a", out=tmp_path / "b", **NEXT)
    segments = {row["index"]: row for row in rows(tmp_path / "b", "segment")}
    assert len(segments) == 3 and segments[1]["end_frames"] == segments[2]["start_frames"]
    assert stood <= segments[1]["end_frames"] < 800
    assert rows(tmp_path / "b", "train")[-1]["frames"] == segments[1]["end_frames"] + 300


def stop_after(frames: int):
    def stop(row: dict[str, Any]) -> None:
        if row["kind"] == "train" and row["frames"] >= frames:
            os.kill(os.getpid(), signal.SIGTERM)

    return stop


def test_switches_that_wait_for_their_evaluation_get_it_in_any_runtime(copy: Path, tmp_path: Path) -> None:
    saved, weights = CheckpointStore(copy / "checkpoints").newest(), SwitchWeights(copy).load(0)
    assert saved is not None
    before = [row for row in rows(copy, "eval") if row.get("segment") == 0]
    flat = np.concatenate([tensor.numpy().ravel() for tensor in weights.values()]).astype(np.float32)
    waiting = {"segment": 0, "updates": before[0]["updates"], "frames": before[0]["frames"], "weights": flat}
    CheckpointStore(copy / "checkpoints").save({**saved.tree, "snapshots": [waiting]})
    clearl.run(resume_from=copy, out=tmp_path / "b", **NEXT)
    again = [row for row in rows(tmp_path / "b", "eval") if row.get("segment") == 0][len(before) :]
    scores = [[(row["task"], row["frames"], row["return"]) for row in each] for each in (before, again)]
    assert scores[0] == [score for score in scores[1] if score[0] != "asterix"], "with the weights of that time"
    saved = CheckpointStore(tmp_path / "b" / "checkpoints").newest()
    assert saved is not None and not saved.json["snapshots"], "once"


def test_a_run_without_an_end_goes_on_with_others_and_again_without_an_end(tmp_path: Path) -> None:
    endless = {**SMALL, "cycles": "forever", "frames_per_visit": 100, "replay_store": "disk"}
    run(RunConfig(**endless), tmp_path / "a", console=False, listeners=[stop_after(700)])
    stood = int(CheckpointStore(tmp_path / "a" / "checkpoints").newest().json["cursor"]["granted_frames"])  # type: ignore[union-attr]
    assert stood > 600, "more than one cycle of two visits"
    next_tasks = {"tasks": ("asterix", "freeway"), "frames_per_visit": 60}
    result = clearl.run(
        resume_from=tmp_path / "a", out=tmp_path / "b", listeners=[stop_after(stood + 400)], **next_tasks
    )
    assert result.status == "interrupted", "it has no end"
    segments = {row["index"]: row for row in rows(tmp_path / "b", "segment")}
    order = [segments[index] for index in sorted(segments)]
    old, new = [row for row in order if row["end_frames"] <= stood], [row for row in order if row["end_frames"] > stood]
    assert [row["tasks"][0] for row in old] == ["breakout", "breakout@1"] * (len(old) // 2) + ["breakout"] * (
        len(old) % 2
    )
    assert [row["tasks"][0] for row in new] == (["asterix", "freeway"] * len(new))[: len(new)] and len(new) > 4
    assert [row["start_frames"] for row in order[1:]] == [row["end_frames"] for row in order[:-1]], "one axis"
    last = clearl.run(resume_from=tmp_path / "b", out=tmp_path / "c", tasks=("breakout",), cycles=1)
    assert last.status == "finished"


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("stop_at", [1, 3, 6, 9, 12, 15])
def test_a_kill_at_any_moment_leaves_the_old_run_and_a_new_one_that_starts(
    copy: Path, tmp_path: Path, in_place: bool, stop_at: int
) -> None:
    before = files(copy)
    extend_and_end(copy, None if in_place else tmp_path / "b", NEXT, stop_at)
    if not in_place:
        assert files(copy) == before
        result = clearl.run(resume_from=copy, out=tmp_path / "b", **NEXT)
    else:
        clearl.load_agent(copy)  # whatever happened, it can be read
        result = run(go_on(copy, None, NEXT), copy, console=False)
    assert result.status == "finished"
    assert rows(result.path, "train")[-1]["frames"] == 1100


def test_functions_that_make_environments_come_next(tmp_path: Path) -> None:
    vectors: dict[str, Any] = {"slots": 4, "batch_unrolls": 4, "unroll_steps": 5, "frames_per_visit": 200}
    result = clearl.run(tasks={"ice": make_ice}, out=tmp_path / "a", cycles=1, runtime="inline", **vectors)
    result = result.extend(tasks={"thaw": lambda: make_ice(length=1.0)})
    assert {row["task"] for row in rows(tmp_path / "a", "eval")} == {"ice", "thaw"}
    assert result.status == "finished"
    with pytest.raises(ConfigError, match=r"task 'rain': .*runtime='inline'"):
        result.extend(tasks={"rain": lambda: make_ice(length=2.0)}, runtime="local")


@pytest.mark.parametrize("in_place", [True, False])
def test_functions_of_the_past_are_evaluated_by_workers_too(in_place: bool, tmp_path: Path) -> None:
    """Their settings stay: processes that never saw the first call import all functions."""
    vectors: dict[str, Any] = {"slots": 4, "batch_unrolls": 4, "unroll_steps": 5, "frames_per_visit": 200}
    result = clearl.run(tasks={"ice": make_ice, "snow": make_ice}, out=tmp_path / "a", cycles=1, workers=1, **vectors)
    tasks: dict[str, Any] = {"thaw": make_thaw, "snow": make_thaw}
    if in_place:
        result = result.extend(tasks=tasks)
    else:
        result = clearl.run(resume_from=tmp_path / "a", tasks=tasks, out=tmp_path / "b")
    evaluated = {row["task"] for row in rows(result.path, "eval") if row["frames"] == 800}
    assert result.status == "finished" and evaluated == {"ice", "snow", "thaw"}
    made = from_yaml((result.path / "config.yaml").read_text(), "").environments
    assert made == tuple(f"{task}={__name__}:make_{kind}" for task, kind in
                         (("ice", "ice"), ("snow", "thaw"), ("thaw", "thaw")))  # fmt: skip


def make_thaw() -> gymnasium.Env:
    return make_ice(length=1.0)


def make_ice(length: float = 0.5) -> gymnasium.Env:
    world = gymnasium.make("CartPole-v1")
    world.unwrapped.length = length  # pyright: ignore[reportAttributeAccessIssue]
    return world
