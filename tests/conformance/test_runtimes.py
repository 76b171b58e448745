"""Every runtime moves the same data: the same frames, updates, pairs and switches of task, whatever the process."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from whole_runs import contents, rows, shards, small_config, state, top_by_number

from clearl.config import RunConfig
from clearl.errors import EnvironmentFaultError, WorkerError
from clearl.experiment import run
from clearl.records.run_dir import RunDir
from clearl.records.schema import Row
from clearl.replay.framing import read_header, record_label
from clearl.runtimes import RUNTIMES

SLOTS, STEPS, VISIT_FRAMES = 4, 8, 640
ROUND_FRAMES = SLOTS * STEPS
TOTAL_FRAMES = 2 * VISIT_FRAMES
UNTRAINED_SUCCESS_RATE = 0.375
"""The success rate of the untrained robot of `robot_env`."""


def config(runtime: str, **changes: Any) -> RunConfig:
    """Rounds fit the visits and batches the rounds, so that every count can be foretold."""
    settings = {
        "runtime": runtime, "workers": 2, "cycles": 1, "frames_per_visit": VISIT_FRAMES, "slots": SLOTS,
        "batch_unrolls": SLOTS, "unroll_steps": STEPS, "buffer_frames": TOTAL_FRAMES, "record_every_updates": 1,
        "eval_every_frames": 320, "switch_episodes": 3, "checkpoint_every_frames": 300,
    }  # fmt: skip
    return small_config(**{**settings, **changes})


@pytest.fixture(scope="module", params=list(RUNTIMES))
def runtime(request: pytest.FixtureRequest) -> str:
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    return request.param


@pytest.fixture(scope="module")
def finished(runtime: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, Path]:
    settings, out = config(runtime), tmp_path_factory.mktemp(runtime) / "run"
    run(settings, out, console=False)
    return settings, out


Finished = tuple[RunConfig, Path]


def assert_counts(out: Path, settings: RunConfig) -> None:
    """Assert the counts at the end of a run."""
    saved = state(out)
    assert RunDir.open(out).status == "finished"
    assert saved["learner"]["state"]["counters"]["frames"] == TOTAL_FRAMES
    assert saved["learner"]["state"]["counters"]["updates"] == TOTAL_FRAMES // ROUND_FRAMES
    assert saved["cursor"]["granted_frames"] == TOTAL_FRAMES
    assert saved["intake"]["slots"] == []
    assert saved["shards"] == [TOTAL_FRAMES // ROUND_FRAMES] * SLOTS


def test_frames_updates_and_sequences(finished: Finished) -> None:
    settings, out = finished
    assert_counts(out, settings)
    trained = rows(out, "train")
    assert [row["frames"] for row in trained] == list(range(ROUND_FRAMES, TOTAL_FRAMES + 1, ROUND_FRAMES))
    assert [row["updates"] for row in trained] == list(range(1, TOTAL_FRAMES // ROUND_FRAMES + 1))


def test_pairs_and_the_share_of_replay(finished: Finished) -> None:
    _, out = finished
    mixer = state(out)["mixer"]
    pairs = TOTAL_FRAMES // STEPS
    assert mixer["pairs"] == pairs
    # The first pair of each slot has nothing to replay; what is due then is excused.
    assert pairs // 2 - SLOTS <= mixer["replayed"] <= pairs // 2


@pytest.mark.parametrize("ratio", [0.75, 2.5])
def test_both_of_a_pair_are_learnt_from(runtime: str, ratio: float, tmp_path: Path) -> None:
    settings, out = config(runtime, pairs="both", replay_ratio=ratio, frames_per_visit=320), tmp_path / "run"
    run(settings, out, console=False)
    saved, pairs = state(out), 640 // STEPS
    assert saved["learner"]["state"]["counters"]["frames"] == 640, "frames are those of new experience"
    assert saved["learner"]["state"]["counters"]["updates"] == pairs // SLOTS and saved["intake"]["slots"] == []
    # The first pair of each slot has nothing to replay; all that was due then is excused.
    due = int(ratio * pairs)
    assert saved["mixer"]["pairs"] == pairs and saved["mixer"]["excused"] == int(ratio * SLOTS)
    assert saved["mixer"]["replayed"] == due - saved["mixer"]["excused"]


def test_updates_are_diagnosed_every_so_often(runtime: str, tmp_path: Path) -> None:
    settings, out = config(runtime, frames_per_visit=320, diagnose_every_updates=5), tmp_path / "run"
    run(settings, out, console=False)
    found = {row["updates"]: row["diagnostics"] for row in rows(out, "train") if "diagnostics" in row}
    assert sorted(found) == [5, 10, 15, 20]
    for diagnostics in found.values():
        assert set(diagnostics) == {"new", "replay", "terms", "between"}
        assert diagnostics["new"]["grad_norm"] > 0 and diagnostics["replay"]["kl"] > 0


def test_tasks_change_at_the_planned_frame_in_every_slot(finished: Finished) -> None:
    settings, out = finished
    switch = VISIT_FRAMES // ROUND_FRAMES
    assert [row["tasks"] for row in rows(out, "train")] == [["breakout"]] * switch + [["freeway"]] * switch
    for shard in shards(out, settings):
        held = contents(shard)
        assert sorted(held) == list(range(TOTAL_FRAMES // ROUND_FRAMES))
        # Freeway has seven channels, Breakout four; the rest is padding.
        freeway = [bool(held[sequence].frames[:, 4:].any()) for sequence in sorted(held)]
        assert freeway == [False] * switch + [True] * switch
        shard.close()


def test_unrolls_are_labelled_with_the_task_that_was_played(finished: Finished) -> None:
    settings, out = finished
    switch = VISIT_FRAMES // ROUND_FRAMES
    for shard in shards(out, settings):
        labels = {}
        for position in range(shard._reservoir.held):
            record = shard._store.get(position)
            header = read_header(record)
            assert header is not None
            labels[header.sequence] = record_label(record, header)
        held = contents(shard)
        assert [labels[s].task for s in sorted(labels)] == ["breakout"] * switch + ["freeway"] * switch
        # Workers are granted their rounds one after the other: a frame number is within a round of the slot's own.
        assert all(abs(label.frames - s * ROUND_FRAMES) <= ROUND_FRAMES for s, label in labels.items())
        assert all(labels[s].reward_sum == float(held[s].reward.sum()) for s in labels)
        shard.close()
    counted = [row["replay"]["by_task"] for row in rows(out, "train") if "by_task" in row["replay"]]
    assert counted and set(counted[0]) == {"breakout"}
    if settings.runtime == "inline":
        assert counted[-1]["breakout"]["unrolls"] == SLOTS * switch == 80
        assert counted[-1]["freeway"]["unrolls"] == SLOTS * (31 - switch)
        assert counted[-1]["breakout"]["median_age_frames"] == 31 * ROUND_FRAMES - (switch - 1) * ROUND_FRAMES // 2


def test_segments_are_written_at_the_start(finished: Finished) -> None:
    _, out = finished
    written = rows(out)
    bounds = [(row["tasks"], row["start_frames"], row["end_frames"]) for row in written[:2]]
    assert bounds == [(["breakout"], 0, VISIT_FRAMES), (["freeway"], VISIT_FRAMES, TOTAL_FRAMES)]


def test_all_tasks_are_evaluated_from_the_first_weights_to_the_last(finished: Finished) -> None:
    _, out = finished
    evaluated = [row for row in rows(out, "eval") if "switch" not in row]
    moments = Counter((row["frames"], row["updates"]) for row in evaluated)
    assert (0, 0) in moments and (TOTAL_FRAMES, TOTAL_FRAMES // ROUND_FRAMES) in moments
    assert set(moments.values()) == {2}, "each moment has one row for each of the two tasks"
    assert {row["task"] for row in evaluated} == {"breakout", "freeway"}
    assert all(row["frames"] == row["updates"] * ROUND_FRAMES for row in evaluated)


def test_every_switch_and_the_end_are_evaluated(finished: Finished) -> None:
    _, out = finished
    switches = [row for row in rows(out, "eval") if row.get("switch")]
    assert [(row["segment"], row["frames"], row["updates"], row["task"]) for row in switches] == [
        (segment, frames, frames // ROUND_FRAMES, task)
        for segment, frames in enumerate((VISIT_FRAMES, TOTAL_FRAMES))
        for task in ("breakout", "freeway")
    ]
    assert {row["episodes"] for row in switches} == {3}


def test_boundaries_are_recorded_when_they_are_reached(finished: Finished) -> None:
    _, out = finished
    last = {row["index"]: row for row in rows(out, "segment")}
    assert [(row["start_frames"], row["end_frames"]) for row in last.values()] == [
        (0, VISIT_FRAMES),
        (VISIT_FRAMES, TOTAL_FRAMES),
    ]
    assert [(row["weights"], row["end_weights"]) for row in last.values()] == [([1.0], None)] * 2
    assert [row["index"] for row in rows(out, "segment")] == [0, 1, 0, 1, 1], "planned, then one ends and one begins"


def test_evaluations_that_were_due_are_made_or_counted(finished: Finished) -> None:
    settings, out = finished
    (summary,) = rows(out, "summary")
    due = TOTAL_FRAMES // settings.eval_every_frames + 1
    assert summary["evaluations"]["made"] + summary["evaluations"]["skipped"] == due
    skipped = [row.get("skipped", 0) for row in rows(out, "eval") if row["task"] == "breakout"]
    assert sum(skipped) == summary["evaluations"]["skipped"]
    assert settings.runtime != "inline" or not sum(skipped)


def test_policy_lag_is_recorded(finished: Finished) -> None:
    settings, out = finished
    lags = [row["lag_updates"] for row in rows(out, "train")]
    assert lags[0] == 0
    # A worker has read the weights when it began an unroll, and is at most one round ahead of the learner.
    assert max(lags) == 0 if settings.runtime == "inline" else 0 < max(lags) <= 2


def test_rows_tell_of_episodes_processes_and_health(finished: Finished) -> None:
    settings, out = finished
    trained = rows(out, "train")
    ended = [(task, values) for row in trained for task, values in row.get("episodes", {}).items()]
    assert {task for task, _ in ended} <= {"breakout", "freeway"} and "breakout" in {task for task, _ in ended}
    for _, values in ended:
        assert values.keys() == {"count", "mean_return", "mean_length"}
        assert values["count"] >= 1 and values["mean_return"] >= 0 and values["mean_length"] >= 1
    assert sum(values["count"] * values["mean_length"] for _, values in ended) <= TOTAL_FRAMES
    assert not any("shares" in row for row in trained), "one task has all slots"
    if settings.runtime == "inline":
        return
    health, seconds = trained[-1]["health"], trained[-1]["seconds"]
    assert {"worker-0", "worker-1"} < health.keys() and any(name.startswith("evaluator") for name in health)
    assert health["worker-0"] == {"state": "running", "restarts": 0}
    assert seconds.keys() == {"learner", *health}
    spent = sum(row["seconds"]["learner"].get("backward", 0.0) for row in trained)
    assert 0 < spent < rows(out, "summary")[0]["seconds"]["learner"]["backward"] * 1.1 + 0.1


def test_replay_is_counted(finished: Finished) -> None:
    _, out = finished
    last = rows(out, "train")[-1]["replay"]
    # What the last pairs were drawn from: all but the new half of them.
    assert last["held"] == TOTAL_FRAMES // STEPS - SLOTS and last["bytes"] > 0 and last["quarantined"] == 0


def test_a_stopped_run_goes_on_to_the_same_counts(runtime: str, tmp_path: Path) -> None:
    settings, out = config(runtime, checkpoint_every_frames=None), tmp_path / "run"

    def stop(row: Row) -> None:
        if row["kind"] == "train" and row["updates"] == 25:
            os.kill(os.getpid(), signal.SIGTERM)

    assert run(settings, out, console=False, listeners=[stop]).status == "interrupted"
    stopped = state(out)
    updates = stopped["learner"]["state"]["counters"]["updates"]
    assert 25 <= updates <= 28, "what was under way is finished, and no more"
    assert stopped["cursor"]["granted_frames"] == sum(stopped["shards"]) * STEPS
    # Slots are divided anew, and each finds its replay: it belongs to the slot, not to the worker.
    assert run(replace(settings, workers=3), out, console=False).status == "finished"
    assert_counts(out, settings)
    assert [row["updates"] for row in rows(out, "train")] == list(range(1, TOTAL_FRAMES // ROUND_FRAMES + 1))
    assert rows(out, "fault") == []


WITH_BOUNDARIES = {
    "ewc": {"ewc": {"visit": 3, "task": "freeway", "added": 20, "anchors": {"tasks": ["breakout", "freeway"]}}},
    "progress-compress+clear": {
        "ewc": {"visit": 3, "task": "freeway", "added": 25, "anchors": {"scale": "mean of 1"}},
        "compressing": True,
        "restart": None,
    },
}


@pytest.mark.parametrize("method", WITH_BOUNDARIES)
def test_methods_that_need_boundaries_end_each_visit_and_keep_their_state(
    runtime: str, method: str, tmp_path: Path
) -> None:
    changes = {"cycles": 2, "fisher_batches": 3, "compress_frames": 160, "lstm": True, "checkpoint_every_frames": None}
    settings, out = config(runtime, method=method, **changes), tmp_path / "run"

    def stop(row: Row) -> None:
        if row["kind"] == "train" and row["updates"] == 30:
            os.kill(os.getpid(), signal.SIGTERM)

    assert run(settings, out, console=False, listeners=[stop]).status == "interrupted"
    assert state(out)["learner"]["state"]["method"]["ewc"]["visit"] == 1, "one visit is over, the second is on"
    assert run(settings, out, console=False).status == "finished"
    kept = state(out)["learner"]["state"]["method"]
    assert kept["ewc"].pop("gradient_ratio") >= 0
    assert kept == {"base": {}, **WITH_BOUNDARIES[method]}
    losses = [row["loss"] for row in rows(out, "train")]
    own = VISIT_FRAMES // ROUND_FRAMES
    visit = own + (changes["compress_frames"] // ROUND_FRAMES if method != "ewc" else 0)
    assert len(losses) == 4 * visit
    segments = {row["index"]: row for row in rows(out, "segment")}
    extra = changes["compress_frames"] if method != "ewc" else 0
    assert [row.get("extra_frames", 0) for row in segments.values()] == [extra] * 4
    if method == "ewc":
        assert all(loss["ewc"] == 0 for loss in losses[:visit]), "nothing is held in place before a first visit ends"
        assert all(loss["ewc"] > 0 for loss in losses[visit + 1 :])
    else:
        distilled = [index for index, loss in enumerate(losses) if "distillation" in loss]
        assert distilled == [i for i in range(4 * visit) if i % visit >= own], "compression is on top of the visit"
        _check_columns(rows(out, "eval"), visit * ROUND_FRAMES, own * ROUND_FRAMES)


def _check_columns(evaluations: list[Row], visit_frames: int, own_frames: int) -> None:
    """Both columns of the task in training, the one in training plotted; of another task the knowledge base."""
    seen: set[tuple[bool, bool]] = set()
    for key in {(row["task"], row["frames"], row.get("switch")) for row in evaluations}:
        task, frames, _ = key
        columns = [
            (row["column"], row.get("secondary", False))
            for row in evaluations
            if (row["task"], row["frames"], row.get("switch")) == key
        ]
        index = max(0, frames - 1) // visit_frames
        in_training = task == ("breakout", "freeway")[index % 2]
        if frames <= own_frames:
            assert columns == [("active", False)], "nothing is compressed yet"
        elif not in_training:
            assert columns == [("knowledge_base", False)]
        else:
            # The weights of `frames` trained frames were changed last by the frame before.
            compressing = (frames - 1) % visit_frames >= own_frames
            both = ["knowledge_base", "active"] if compressing else ["active", "knowledge_base"]
            assert columns == [(both[0], False), (both[1], True)]
            seen.add((in_training, compressing))
    assert (True, True) in seen


def test_a_robot_trains_and_its_success_rate_is_recorded(runtime: str, tmp_path: Path) -> None:
    """Dict observations and real actions; the first weights are evaluated on the same seeds everywhere."""
    robot = {
        "suite": "gym:Robot-v0", "tasks": (), "imports": ("robot_env",), "eval_episodes": 8,
        "normalise_observations": True, "frames_per_visit": 320,
    }  # fmt: skip
    out = tmp_path / "run"
    run(config(runtime, **robot), out, console=False)
    evaluated = rows(out, "eval")
    assert [row["success_rate"] for row in evaluated if row["frames"] == 0] == [UNTRAINED_SUCCESS_RATE]
    assert all((row["success_rate"] * row["episodes"]).is_integer() for row in evaluated if "switch" not in row)
    assert all("success_rate" in row for row in evaluated)
    losses = [row["loss"]["value"] for row in rows(out, "train")]
    assert len(losses) == 320 // ROUND_FRAMES and len(set(losses)) > len(losses) // 2


@pytest.mark.parametrize("name", ["StrictMask", "StrictParts"])
def test_actions_that_a_state_forbids_are_played_nowhere(name: str, runtime: str, tmp_path: Path) -> None:
    """In training and in evaluations, whose episodes end one by one; the environment raises at a forbidden action."""
    masked = {"suite": f"gym:Broken{name}-v0", "tasks": (), "imports": ("broken_envs",), "eval_episodes": 6}
    out = tmp_path / "run"
    run(config(runtime, **masked), out, console=False)
    assert rows(out, "fault") == rows(out, "restart") == []
    evaluated = rows(out, "eval")
    assert evaluated and all(row["std"] > 0 for row in evaluated), "episodes of several lengths"


def test_a_drift_applied_at_once_ends_no_episode(runtime: str, tmp_path: Path) -> None:
    """A visit of 160 steps is shorter than an episode of 200: under resets, none would ever end."""
    settings = config(
        runtime, suite="control", tasks=("pendulum", "pendulum?g=5"), protocol="drift", drift_shape="steps",
        drift_applied="at-once", torso="mlp", cycles=2, eval_every_frames=10_000, switch_episodes=1,
    )  # fmt: skip
    out = tmp_path / "run"
    run(settings, out, console=False)
    ended = [values for row in rows(out, "train") for values in row.get("episodes", {}).values()]
    steps_and_reset = 200 + 1
    assert sum(values["count"] for values in ended) == SLOTS * (4 * VISIT_FRAMES // SLOTS // steps_and_reset) == 12
    assert {values["mean_length"] for values in ended} == {200}


def test_a_broken_environment_stops_the_run_with_its_place_and_its_own_traceback(runtime: str, tmp_path: Path) -> None:
    broken = {"suite": "gym:BrokenRaisesLater-v0", "tasks": (), "imports": ("broken_envs",), "torso": "mlp"}
    with pytest.raises((EnvironmentFaultError, WorkerError)) as caught:
        run(config(runtime, **broken), tmp_path / "run", console=False)
    told = str(caught.value)
    assert re.search(
        r"task 'BrokenRaisesLater-v0', slot \d, step \d+: step raised RuntimeError: the motor is on fire", told
    )
    assert 'raise RuntimeError("the motor is on fire")' in told
    assert RunDir.open(tmp_path / "run").status == "failed"
    assert [row["kind"] for row in rows(tmp_path / "run")][:1] == ["segment"]


def kill_child(name: str, number: int) -> None:
    """Send a signal to the child of this process with that name."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and (entry / "comm").read_text().strip() == f"clearl:{name}"[:15]:
                return os.kill(int(entry.name), number)
        except (FileNotFoundError, ProcessLookupError):
            continue
    raise AssertionError(f"{name} is not running")


def test_killed_and_hanging_children_are_replaced_and_nothing_is_lost_or_counted_twice(tmp_path: Path) -> None:
    settings, out = config("local", buffer_frames=640, worker_timeout_s=2.0), tmp_path / "run"
    died, hung = "was killed by SIGKILL", "said nothing for 2 s (worker_timeout_s) and was killed"
    victims = {
        7: ("worker-0", signal.SIGKILL, died), 16: ("worker-1", signal.SIGKILL, died),
        22: ("worker-1", signal.SIGSTOP, hung), 26: ("evaluator", signal.SIGKILL, died),
        32: ("worker-0", signal.SIGKILL, died),
    }  # fmt: skip

    def strike(row: Row) -> None:
        if row["kind"] == "train" and row["updates"] in victims:
            name, number, _ = victims[row["updates"]]
            kill_child(name, number)

    run(settings, out, console=False, listeners=[strike])
    assert_counts(out, settings)
    assert [row["updates"] for row in rows(out, "train")] == list(range(1, TOTAL_FRAMES // ROUND_FRAMES + 1))
    faults = [(row["worker"], row["problem"]) for row in rows(out, "fault")]
    assert sorted(faults) == sorted((name, problem) for name, _, problem in victims.values())
    restarted = Counter(row["worker"] for row in rows(out, "restart"))
    assert (restarted["worker-0"], restarted["worker-1"]) == (2, 2)
    capacity = int(RunDir.open(out).meta["replay"]["capacity_unrolls"])
    for shard in shards(out, settings):
        assert shard.sequences().tolist() == top_by_number(settings, shard.slot, capacity, shard.next_sequence)
        shard.close()


def test_replay_in_ram_that_died_with_its_worker_is_counted_and_said(tmp_path: Path) -> None:
    settings, out = config("local", replay_store="ram"), tmp_path / "run"

    def kill(row: Row) -> None:
        if row["kind"] == "train" and row["updates"] == 20:
            kill_child("worker-0", signal.SIGKILL)

    run(settings, out, console=False, listeners=[kill])
    assert_counts(out, settings)
    _, lost = [row["problem"] for row in rows(out, "fault")]
    # Two slots; the round after the twentieth may or may not have been reported by then.
    assert lost.split()[0] in ("40", "42") and "--replay-store disk" in lost
