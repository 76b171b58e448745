"""A task is dropped from memory: all of it or nothing, whatever happens; the law holds for the rest."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from interrupted import end_at_call
from two_tasks import SMALL, files

import clearl
from clearl.cli.main import main
from clearl.config import RunConfig, from_yaml
from clearl.errors import ClearlError, CorruptFileError
from clearl.experiment import run
from clearl.forgetting import forget, plan_forgetting
from clearl.memory import read_memory
from clearl.records.run_dir import RunDir
from clearl.replay.codec import Codec
from clearl.replay.disk import DiskStore
from clearl.replay.history import Earlier, pack_mask, reservoir_at
from clearl.replay.labels import Label
from clearl.replay.reservoir import Reservoir
from clearl.replay.shard import ReplayShard
from clearl.seeding import derive, unroll_numbers
from clearl.spaces import discrete_spec
from clearl.storage.checkpoints import CheckpointStore
from clearl.unroll import UnrollLayout
from clearl.wiring import load_factory

FIRST = SMALL
NEXT: dict[str, Any] = {"tasks": ("asterix",), "frames_per_visit": 300}
TINY = UnrollLayout(discrete_spec((3,), "uint8", 2), 2)


def held(path: Path) -> dict[str, int]:
    memory = read_memory(path)
    assert memory.problems == () and memory.lost == 0
    return {name: task.unrolls for name, task in memory.tasks.items()}


def sequences(path: Path) -> list[list[int]]:
    """Return the unrolls that the shards of a run can sample, opened as in training."""
    factory = load_factory(RunDir.open(path).config_text, path)
    saved = CheckpointStore(path / "checkpoints").newest()
    assert saved is not None
    found = []
    for slot, sequence in enumerate(saved.json["shards"]):
        shard = factory.shard(slot)
        shard.restore(sequence)
        assert shard.counters()["lost"] == 0
        found.append(shard.sequences().tolist())
        shard.close()
    return found


def test_a_task_is_dropped_and_the_rest_is_untouched(copy: Path) -> None:
    before, records = held(copy), sequences(copy)
    plan = plan_forgetting(copy, "breakout")
    assert before.keys() == {"breakout", "freeway"} and plan.unrolls == before["breakout"] > 20
    forget(plan)
    assert held(copy) == {"freeway": before["freeway"]}
    rounds = 410 // 20 + 1
    assert sequences(copy) == [[sequence for sequence in slot if sequence >= rounds] for slot in records]
    raw = b"".join(file.read_bytes() for file in (copy / "replay").rglob("*.seg"))
    assert b"breakout" not in raw and b"freeway" in raw, "erased, not only hidden"
    assert [entry["unrolls"] for entry in RunDir(copy).meta["forgotten"]] == [plan.unrolls]
    assert "unfinished" not in RunDir(copy).meta["replay"]


def test_a_dry_run_and_a_task_without_unrolls_change_nothing(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(copy)
    assert main(["forget", str(copy), "--task", "breakout", "--dry-run"]) == 0
    assert "would drop" in capsys.readouterr().out
    assert main(["forget", str(copy), "--task", "freeway", "--older-than", "1000000"]) == 0
    assert "dropped 0 unrolls" in capsys.readouterr().out
    assert files(copy) == before
    assert main(["forget", str(copy), "--task", "brakout"]) == 2
    assert "did you mean 'breakout'" in capsys.readouterr().err and files(copy) == before


def test_only_unrolls_above_an_age_go(copy: Path) -> None:
    before = read_memory(copy).tasks["breakout"]
    older = (before.played_frames < 820 - 600).sum()
    assert 0 < older < before.unrolls
    plan = plan_forgetting(copy, "breakout", older_than_frames=600)
    assert plan.now_frames == 819 // 15 * 15 and plan.unrolls == (before.played_frames < plan.now_frames - 600).sum()
    forget(plan)
    after = read_memory(copy).tasks["breakout"]
    assert after.unrolls == before.unrolls - plan.unrolls and after.oldest_age_frames is not None
    assert after.oldest_age_frames <= 600


def test_training_goes_on_after_forgetting_and_resumes_exactly(copy: Path, tmp_path: Path) -> None:
    forget(plan_forgetting(copy, "breakout"))
    result = clearl.run(resume_from=copy, out=tmp_path / "b", **NEXT)
    assert result.status == "finished" and held(tmp_path / "b").keys() == {"freeway", "asterix"}
    again = clearl.run(resume_from=copy, out=tmp_path / "c", **NEXT)
    one, two = (CheckpointStore(path / "checkpoints").newest() for path in (result.path, again.path))
    assert one is not None and two is not None
    tensors = one.tree["learner"]["tensors"], two.tree["learner"]["tensors"]
    assert all((tensors[0][name] == tensors[1][name]).all() for name in tensors[0])
    assert sequences(result.path) == sequences(again.path)
    assert not [row for row in result.metrics.rows if row["kind"] == "fault"]


def test_the_run_that_a_copy_shares_files_with_is_untouched(copy: Path, tmp_path: Path) -> None:
    before = files(copy)
    clearl.run(resume_from=copy, out=tmp_path / "b", **NEXT)
    forget(plan_forgetting(tmp_path / "b", "breakout"))
    forget(plan_forgetting(tmp_path / "b", "freeway"))
    forget(plan_forgetting(tmp_path / "b", "asterix"))
    assert held(tmp_path / "b") == {}
    clearl.run(resume_from=tmp_path / "b", out=tmp_path / "c", **NEXT)
    assert held(tmp_path / "c").keys() == {"asterix"} and files(copy) == before


def test_a_running_run_is_refused(copy: Path) -> None:
    before = files(copy)
    with RunDir(copy).locked(), pytest.raises(ClearlError, match="is running; stop it"):
        plan_forgetting(copy, "breakout")
    plan = plan_forgetting(copy, "breakout")
    with RunDir(copy).locked(), pytest.raises(ClearlError, match="is running; stop it"):
        forget(plan)
    assert files(copy) == before


@pytest.mark.parametrize(
    ("changes", "problem"),
    [({"replay_store": "ram"}, "is gone"), ({"method": "baseline"}, "no replay"), ({"keep_replay": False}, "is gone")],
)
def test_nothing_to_forget_is_said_so(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    run(RunConfig(**{**SMALL, "frames_per_visit": 60, **changes}), tmp_path / "a", console=False)
    with pytest.raises(ClearlError, match=problem):
        plan_forgetting(tmp_path / "a", "breakout")
    assert read_memory(tmp_path / "a").note


def killed_at(path: Path, moment: int) -> bool:
    """Forget in a process that SIGKILL ends at its n-th call that changes a file; return whether it came to that."""
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)  # further ones are not forked along
        changes = ("replace", "rename", "unlink", "fsync", "ftruncate", "rmdir")
        end_at_call(changes, moment, lambda: os.kill(os.getpid(), signal.SIGKILL))
        try:
            forget(plan_forgetting(path, "breakout"))
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_a_kill_at_any_moment_leaves_the_run_before_or_after(first: Path, tmp_path: Path) -> None:
    before = held(first)
    after, outcomes, moment = {"freeway": before["freeway"]}, Counter[str](), 0
    whole = Path(shutil.copytree(first, tmp_path / "whole"))
    forget(plan_forgetting(whole, "breakout"))
    while True:
        moment += 1
        path = Path(shutil.copytree(first, tmp_path / str(moment)))
        killed = killed_at(path, moment)
        found = held(path)
        assert found in (before, after), f"half of it was dropped at moment {moment}"
        outcomes["before" if found == before else "after"] += 1
        if not killed:
            break
        if found == after and moment % 12 == 0:  # whoever opens the run finishes the work
            result = clearl.run(resume_from=path, out=tmp_path / f"{moment}-next", **NEXT)
            assert held(result.path).keys() == {"freeway", "asterix"}
        elif found == before and moment % 3 == 0:
            forget(plan_forgetting(path, "breakout"))
            assert held(path) == after and sequences(path) == sequences(whole)
        shutil.rmtree(path)
    assert outcomes["before"] >= 2 and outcomes["after"] >= 20, outcomes


def test_a_kill_before_the_erasing_is_made_good_by_the_next_resume(first: Path, tmp_path: Path) -> None:
    path, moment = tmp_path / "a", 0
    while True:
        moment += 1
        shutil.copytree(first, path)
        killed_at(path, moment)
        if RunDir(path).meta["replay"].get("unfinished"):
            break
        shutil.rmtree(path)
    RunDir(path).set_status("interrupted")
    assert b"breakout" in b"".join(file.read_bytes() for file in (path / "replay").rglob("*.seg"))
    run(from_yaml(RunDir.open(path).config_text), path, console=False)
    assert "unfinished" not in RunDir(path).meta["replay"] and held(path).keys() == {"freeway"}
    assert b"breakout" not in b"".join(file.read_bytes() for file in (path / "replay").rglob("*.seg"))
    saved = CheckpointStore(path / "checkpoints")
    newest, oldest = saved.newest(), saved.oldest()
    assert newest is not None and oldest is not None and newest.path != oldest.path
    assert newest.json["shards"] == oldest.json["shards"], "no generation goes back to before"


def test_the_law_holds_for_the_rest_and_the_threshold_never_falls() -> None:
    stream, capacity, until = derive(3, "reservoir", 0), 50, 400
    whole = Reservoir(stream, capacity)
    whole.advance(until)
    floor, order = whole.threshold, np.sort(whole.sequences)
    mask = order % 3 == 0
    part = Earlier(capacity, until, pack_mask(mask))
    numbers = unroll_numbers(stream, np.arange(3000))
    last = floor
    for now in (400, 401, 450, 600, 1500, 3000):
        reservoir, dropped = reservoir_at(stream, capacity, [part], now)
        assert dropped.tolist() == order[mask].tolist()
        assert reservoir.threshold >= last
        last = reservoir.threshold
        remains = np.array([s for s in range(now) if s not in set(dropped.tolist()) and numbers[s] >= np.uint64(floor)])
        kept = remains[np.argsort(numbers[remains])[::-1][:capacity]]
        assert sorted(reservoir.sequences.tolist()) == sorted(kept.tolist()), now
        step, _ = reservoir_at(stream, capacity, [part], 400)
        while step.next_sequence < now:  # one by one as in many at a time
            step.commit(*step.place())
        assert step.sequences.tolist() == reservoir.sequences.tolist()
    with pytest.raises(CorruptFileError, match="cannot go back to sequence 399"):
        reservoir_at(stream, capacity, [part], 399)


def test_every_unroll_that_was_not_dropped_stays_with_the_same_chance() -> None:
    """Chi-square over many streams: position in time of what is kept, without the dropped third, is uniform."""
    capacity, until, now, bins = 20, 200, 240, 7
    counts = np.zeros(bins)
    for seed in range(600):
        stream = derive(seed, "reservoir", 0)
        whole = Reservoir(stream, capacity)
        whole.advance(until)
        order = np.sort(whole.sequences)
        part = Earlier(capacity, until, pack_mask(order < 100))
        reservoir, _ = reservoir_at(stream, capacity, [part], now)
        kept = reservoir.sequences
        assert (kept >= 100).all()
        counts += np.histogram(kept, bins, (100, now))[0]
    expected = counts.sum() / bins
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 22.5, counts  # the 0.999 quantile of 6 degrees of freedom


def test_a_shard_draws_none_of_what_was_dropped(tmp_path: Path) -> None:
    def shard(earlier: list[Earlier]) -> ReplayShard:
        store = DiskStore(tmp_path, segment_nbytes=500)
        return ReplayShard(codec=Codec(TINY), capacity_unrolls=30, seed=1, slot=0, store=store, earlier=earlier)

    one = shard([])
    for sequence in range(100):
        row = TINY.empty(1)
        row.last_action[:] = sequence
        one.insert(row[0], Label("a" if sequence < 60 else "b", sequence, 0.0))
    one.sync()
    one.close()
    mask = np.sort(one._reservoir.sequences) < 60
    two = shard([Earlier(30, 100, pack_mask(mask))])
    two.restore(100)
    for sequence in range(100, 130):
        row = TINY.empty(1)
        row.last_action[:] = sequence
        two.insert(row[0], Label("b", sequence, 0.0))
        sample = two.sample()
        assert sample is not None and int(sample.last_action) >= 60
    assert two.held > (~mask).sum()


def test_replayed_unrolls_that_wait_for_a_batch_are_masked(copy: Path) -> None:
    before = CheckpointStore(copy / "checkpoints").newest()
    assert before is not None
    rows = before.tree["intake"]["rows"]
    assert len(rows["valid"]) > 0, "the batch must not fit the rounds"
    forget(plan_forgetting(copy, "breakout"))
    after = CheckpointStore(copy / "checkpoints").newest()
    assert after is not None
    masked = after.tree["intake"]["rows"]
    replayed = rows["is_replay"].astype(bool)
    assert not masked["valid"][replayed].any()
    assert (masked["valid"][~replayed] == rows["valid"][~replayed]).all()
