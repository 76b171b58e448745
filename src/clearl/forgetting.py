"""Forget on purpose: drop a task's unrolls from the replay buffer of a run at rest.

    plan = plan_forgetting(Path("runs/a"), "breakout", older_than_frames=None)
    forget(plan)

`meta.json` alone decides: once it records what was dropped, no shard returns those unrolls again, and the next process
that opens the run erases what a kill has left of them (`finish_forgetting`). Before that, nothing has changed.
The weights stay as they are; only replay, and with it cloning, no longer has the unrolls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clearl.errors import RunDirectoryError, UnknownNameError
from clearl.memory import read_shards, replay_of
from clearl.records.run_dir import RunDir
from clearl.replay.contents import shard_directories
from clearl.replay.disk import DiskStore
from clearl.replay.framing import ShardKey
from clearl.replay.history import earlier_of, pack_mask, reservoir_at
from clearl.replay.labels import stored_name, task_name, task_number
from clearl.seeding import derive
from clearl.storage.checkpoints import GENERATIONS, Saved
from clearl.wiring import resumable_checkpoints

_MAX_RECORD_NBYTES = 1 << 31


@dataclass(frozen=True)
class Forgetting:
    """The unrolls to drop; made and checked by `plan_forgetting`, which changes nothing."""

    path: Path
    task: str
    older_than_frames: int | None
    now_frames: int
    sequences: tuple[int, ...]
    """The number of unrolls that each slot has offered to replay."""
    forgotten: tuple[str, ...]
    """The unrolls to drop from each slot, as packed masks; see `clearl.replay.history.pack_mask`."""
    unrolls: int
    nbytes: int
    left: int
    """The number of unrolls that stay."""
    notes: tuple[str, ...] = ()
    """Newer checkpoints that are damaged and were passed over."""


def plan_forgetting(path: Path, task: str, *, older_than_frames: int | None = None) -> Forgetting:
    """Find the unrolls of `task` in the run in `path`, all or those above an age; reads only."""
    run_dir = RunDir.open(path)
    with _at_rest(run_dir):
        return _plan(run_dir, task, older_than_frames)


@contextmanager
def _at_rest(run_dir: RunDir) -> Iterator[None]:
    """Lock the run; refuse one that is running."""
    with ExitStack() as stack:
        try:
            stack.enter_context(run_dir.locked())
        except RunDirectoryError:
            raise RunDirectoryError(
                f"{run_dir.path} is running; stop it with Ctrl-C or let it end, then it can forget"
            ) from None
        yield


def _plan(run_dir: RunDir, task: str, older_than_frames: int | None) -> Forgetting:
    saved = _checked(run_dir)
    replay, seed = replay_of(run_dir), int(run_dir.meta["seed"])
    sequences = [int(n) for n in saved.json["shards"] or replay.get("sequences") or ()]
    now = int(saved.json["learner"]["state"]["counters"]["frames"])
    shards = {shard.slot: shard for shard in read_shards(run_dir, sequences)}
    _check_task(run_dir, task, {task_name(n) for s in shards.values() for n in np.unique(s.held["label"]["task"])})
    wanted, masks, unrolls, nbytes, left = task_number(stored_name(task)), [], 0, 0, 0
    for slot, sequence in enumerate(sequences):
        stream, earlier = derive(seed, "reservoir", slot), earlier_of(replay.get("earlier", ()), slot)
        reservoir, _ = reservoir_at(stream, replay["capacity_unrolls"], earlier, sequence)
        held = shards[slot].held if slot in shards else np.empty(0, [("sequence", np.int64)])
        chosen = _chosen(held, wanted, now, older_than_frames) if slot in shards else np.zeros(0, np.bool_)
        masks.append(pack_mask(np.isin(np.sort(reservoir.sequences), held["sequence"][chosen])))
        unrolls += int(chosen.sum())
        left += int((~chosen).sum())
        nbytes += int(held["length"][chosen].sum(dtype=np.int64)) if chosen.any() else 0
    return Forgetting(
        run_dir.path, task, older_than_frames, now, tuple(sequences), tuple(masks), unrolls, nbytes, left, saved.notes
    )  # fmt: skip


def forget(plan: Forgetting) -> None:
    """Drop the unrolls of `plan`. A kill at any moment leaves the run unchanged, or with all of them dropped."""
    run_dir = RunDir(plan.path)
    with _at_rest(run_dir):
        if _plan(run_dir, plan.task, plan.older_than_frames) != plan:
            raise RunDirectoryError(f"{plan.path} has changed meanwhile; nothing was dropped, try again")
        if not plan.unrolls:
            return
        replay = replay_of(run_dir)
        part = {
            "capacity_unrolls": replay["capacity_unrolls"], "sequences": list(plan.sequences),
            "forgotten": list(plan.forgotten),
        }  # fmt: skip
        entry = {
            "task": plan.task, "older_than_frames": plan.older_than_frames, "frames": plan.now_frames,
            "unrolls": plan.unrolls, "left": plan.left,
        }  # fmt: skip
        run_dir.update_meta(
            replay={**replay, "earlier": [*replay.get("earlier", ()), part], "unfinished": True},
            forgotten=[*run_dir.meta.get("forgotten", ()), entry],
        )
        finish_forgetting(run_dir)


def finish_forgetting(run_dir: RunDir) -> None:
    """Erase the dropped unrolls from disk, unless that is done; the caller holds the lock of the run.

    Both generations of checkpoints become the newest one: an older one would go back to before the unrolls were
    dropped. Replayed unrolls that wait in it for a full batch are masked, as their task is not recorded.
    """
    replay = run_dir.meta.get("replay") or {}
    if not replay.get("unfinished"):
        return
    checkpoints = resumable_checkpoints(run_dir)
    saved = checkpoints.newest()
    if saved is None:
        raise RunDirectoryError(f"{run_dir.path} has lost its checkpoints, so that forgetting cannot be finished")
    tree = _without_waiting_replay(saved.tree)
    for _ in range(GENERATIONS):
        checkpoints.save(tree)
    for slot, directory in shard_directories(run_dir.replay_path).items():
        _erase(run_dir, replay, slot, directory)
    run_dir.update_meta(replay={name: value for name, value in replay.items() if name != "unfinished"})


def _checked(run_dir: RunDir) -> Saved:
    replay = replay_of(run_dir)
    if replay.get("forecast") == "no replay":
        raise RunDirectoryError(f"{run_dir.path} has no replay: its method keeps no unrolls")
    if replay.get("store") != "disk" or not shard_directories(run_dir.replay_path):
        raise RunDirectoryError(
            f"the replay buffer of {run_dir.path} is gone (kept in RAM, or keep_replay was off): nothing to forget"
        )
    saved = resumable_checkpoints(run_dir).newest()
    if saved is None:
        raise RunDirectoryError(
            f"{run_dir.path} holds no checkpoint yet, so there is nothing that would be gone on with"
        )
    return saved


def _check_task(run_dir: RunDir, task: str, held: set[str]) -> None:
    known = sorted({*held, *map(str, run_dir.meta.get("plan", {}).get("evaluate", ()))})
    if stored_name(task) not in known and task not in known:
        raise UnknownNameError("task of this run", task, known)


def _chosen(held: np.ndarray, wanted: int, now: int, older_than_frames: int | None) -> np.ndarray:
    chosen = held["label"]["task"] == wanted
    if older_than_frames is not None:
        played = held["label"]["frames"]
        chosen &= (played >= 0) & (now - played > older_than_frames)
    return chosen


def _without_waiting_replay(tree: Mapping[str, Any]) -> dict[str, Any]:
    rows = dict(tree["intake"]["rows"])
    if len(rows.get("valid", ())):
        rows["valid"] = rows["valid"] & ~rows["is_replay"].astype(np.bool_)[:, None]
    return {**tree, "intake": {**tree["intake"], "rows": rows}}


def _erase(run_dir: RunDir, replay: Mapping[str, Any], slot: int, directory: Path) -> None:
    """Rewrite a shard's segments with the unrolls that it still holds."""
    part = replay["earlier"][-1]
    stream, sequence = derive(int(run_dir.meta["seed"]), "reservoir", slot), int(part["sequences"][slot])
    reservoir, _ = reservoir_at(stream, replay["capacity_unrolls"], earlier_of(replay["earlier"], slot), sequence)
    # Everything that is not held goes, too: displaced unrolls of the task lie in the files as waste.
    dropped = np.setdiff1d(np.arange(sequence), reservoir.sequences)
    store = DiskStore(directory)
    store.open(ShardKey(slot, stream, replay["capacity_unrolls"], _MAX_RECORD_NBYTES))
    store.restore(reservoir.sequences, sequence, dropped)
    store.sync()
    store.close()
