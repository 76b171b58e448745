"""Extend a run, in place or as a copy, when the next tasks arrive.

    extension = plan_extension(Path("runs/a"), {"tasks": ("asterix",), "frames_per_visit": 500_000})
    fork_run(extension, Path("runs/b"))        # continue a copy; or
    extend_run(extension)                      # continue the run itself

Weights, optimiser, the method's state and the replay buffer are kept. The plan grows by further segments, so everything
that reads a run (resume, report, live page) sees one longer run. Nothing is changed before everything is checked.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from clearl import __version__
from clearl.acting.agent_tasks import agent_tasks, tasks_to_json
from clearl.config import RunConfig, diff, from_yaml, settings, to_yaml, with_alternatives_unset
from clearl.continuation.copying import copy_run, empty
from clearl.continuation.tree import next_tree, sequences_of
from clearl.errors import ConfigError, CorruptFileError, RunDirectoryError, UnknownNameError
from clearl.growth import Growth
from clearl.methods.method import method_meta
from clearl.records.run_dir import RunDir, claimed_directory, holds_run, refuse_foreign
from clearl.runtimes import RUNTIMES
from clearl.spaces import spec_from_json, spec_to_json
from clearl.storage.checkpoints import Saved
from clearl.storage.files import storage_errors
from clearl.suites import make_suite
from clearl.tasks.makers import with_makers
from clearl.tasks.plan import Plan, Segment, plan_from_json
from clearl.tasks.suite import Suite
from clearl.wiring import ReplaySize, RunFactory, method_plans, resumable_checkpoints, saved_checkpoints

_FIXED = {
    "seed": "every random number of the run follows from it",
    "slots": "each slot has its own share of the replay buffer",
    "torso": "the network would be another one",
    "lstm": "the network would be another one",
    "lstm_size": "the network would be another one",
    "layer_norm": "the network would be another one",
    "normalise_observations": "the network would be another one",
    "scale_returns": "the network would be another one",
    "action_std": "the network would be another one",
    "frame_stack": "observations would be others",
    "unroll_steps": "unrolls in the replay buffer have another length",
    "action_repeat": "a step would be another number of frames",
}
"""Settings that cannot change when a run is extended, with the reason."""


@dataclass(frozen=True)
class Extension:
    """The plan, settings and replay that a run will continue with; made and checked by `plan_extension`."""

    source: Path
    seen: dict[str, Any]
    """The meta data of the run when this was planned."""
    saved: Saved
    before: RunConfig
    config: RunConfig
    plan: Plan
    kept_segments: int
    """The number of segments of the plan that are over."""
    replay: dict[str, Any]
    """The replay store from now on, and how many unrolls it holds for each slot."""
    replay_lost: bool
    """True if the run had a replay buffer whose files are missing."""
    flags: dict[str, Any]
    growth: Growth | None
    """The growth of the agent's spaces; None if the next tasks fit into the present ones."""
    tree: dict[str, Any]
    """The checkpoint from which the next segments begin."""
    meta: dict[str, Any]
    """The meta data of the agent's spaces, tasks and method from now on."""

    @property
    def changes(self) -> dict[str, tuple[Any, Any]]:
        """The settings that change: name -> (old, new)."""
        return diff(self.before, self.config)

    @property
    def revisited(self) -> tuple[str, ...]:
        """Tasks of the next segments that the agent was trained on before."""
        past, coming = (
            dict.fromkeys(task for segment in part for task in segment.tasks)
            for part in (self.plan.segments[: self.kept_segments], self.plan.segments[self.kept_segments :])
        )
        return tuple(task for task in coming if task in past)

    @property
    def frames(self) -> int:
        """Frames that the agent has been trained on."""
        return int(self.saved.json["learner"]["state"]["counters"]["frames"])


def plan_extension(source: Path, flags: Mapping[str, Any]) -> Extension:
    """Check that the run in `source` can be extended with the settings in `flags`; reads only."""
    run_dir = RunDir.open(Path(source).absolute())
    before = from_yaml(run_dir.config_text, str(run_dir.path))
    seen = _check_source(run_dir, before)
    saved = resumable_checkpoints(run_dir).newest()
    if saved is None:
        raise RunDirectoryError(f"{source} holds no checkpoint, so there is no agent to go on with")
    config, next_tasks = _next_config(before, dict(flags))
    RUNTIMES.check(config.runtime)
    suite = make_suite(config.suite, config.tasks, config)
    spec = spec_from_json(run_dir.meta.get("spec"), str(run_dir.path))
    growth = Growth(spec, suite.spec) if suite.spec != spec else None
    old = plan_from_json(seen["plan"])
    past = _past(old, saved.json["cursor"])
    new = _next_plan(replace(config, tasks=next_tasks), next_tasks)
    evaluate = tuple(dict.fromkeys((*old.evaluate, *new.evaluate)))
    plan = Plan(
        new.name, (*past, *new.segments), evaluate, new.frames_scale, new.forever, len(past) if new.forever else 0
    )
    replay = _replay(run_dir, config, suite, plan, flags)
    had = run_dir.meta.get("replay", {}).get("forecast") != "no replay"
    lost = had and not (run_dir.replay_path.is_dir() and any(run_dir.replay_path.iterdir()))
    factory = RunFactory(config, suite, run_dir.path, _size(run_dir, replay))
    tree = next_tree(saved, before, factory, plan, len(past), sequences_of(saved.tree, run_dir.meta, config), growth)
    meta = {
        "spec": spec_to_json(suite.spec), "tasks": tasks_to_json(agent_tasks(suite)), **method_meta(factory.method),
    }  # fmt: skip
    return Extension(
        run_dir.path, seen, saved, before, config, plan, len(past), replay, lost, dict(flags), growth, tree, meta
    )


def extend_run(extension: Extension) -> None:
    """Extend the run itself. A kill at any moment leaves it as it was, or ready to resume."""
    run_dir = RunDir(extension.source)
    with run_dir.locked():
        _check_unchanged(extension, run_dir)
        _apply(extension, run_dir)


def fork_run(extension: Extension, out: Path) -> int:
    """Make an extended copy of the run in `out`; return the bytes of replay that were copied, not linked.

    The copy is made beside `out` under another name and renamed at the end, so that `out` is complete or absent.
    """
    out = Path(out).absolute()
    if holds_run(out):
        raise RunDirectoryError(f"{out} holds a run already; give another --out")
    refuse_foreign(out)
    making = out.with_name(f".{out.name}.making")
    source = RunDir(extension.source)
    with claimed_directory(making), source.locked():
        _check_unchanged(extension, source)
        try:
            with storage_errors(making):
                empty(making)
                copied = copy_run(source, making, extension.saved)
                _apply(extension, RunDir(making), source=extension.source)
                if out.exists():
                    out.rmdir()  # empty, or it would have been refused
                making.rename(out)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)  # it may have filled the disk
            raise
    return copied


def go_on(source: Path, out: Path | None, flags: Mapping[str, Any]) -> RunConfig:
    """Extend `source` itself (`out` None) or a copy of it in `out`, unless that is done; return its settings."""
    target = Path(source if out is None else out)
    if not unfinished_extension(target, None if out is None else source, flags):
        extension = plan_extension(source, flags)
        for note in extension.saved.notes:
            warnings.warn(f"{source}: {note}", stacklevel=3)
        if out is None:
            extend_run(extension)
        else:
            fork_run(extension, out)
    return from_yaml(RunDir.open(target).config_text, str(target))


def unfinished_extension(out: Path, source: Path | None, flags: Mapping[str, Any]) -> bool:
    """Return whether `out` holds exactly this extension, made before and not yet at its end.

    The same command resumes it.
    """
    if not holds_run(out):
        return False
    extensions = RunDir(out).meta.get("extensions") or [{}]
    last = extensions[-1]
    same_source = source is None or last.get("source") == str(Path(source).absolute())
    return (
        same_source and last.get("flags") == _plain(flags) and (source is not None or RunDir(out).status != "finished")
    )


def _check_source(run_dir: RunDir, config: RunConfig) -> dict[str, Any]:
    """Return the meta data of the run, if it is at rest and has one agent, however it ended."""
    if run_dir.status == "running":
        with run_dir.locked():  # raises if it is really running; a crash leaves the status behind
            pass
    path, meta = run_dir.path, run_dir.meta
    if "parts" in meta or config.protocol == "separate":
        raise RunDirectoryError(f"{path} trains a network for each task: there is no one agent to go on with")
    if not isinstance(meta.get("plan"), dict):
        raise CorruptFileError(f"{path}: meta.json has no plan, so the past of the run is not known")
    return meta


def _check_unchanged(extension: Extension, run_dir: RunDir) -> None:
    """Refuse a run that has trained on or changed since the extension was planned; the caller holds its lock."""
    newest = resumable_checkpoints(run_dir).newest()
    if newest is None or newest.path != extension.saved.path or run_dir.meta != extension.seen:
        raise RunDirectoryError(f"{run_dir.path} has changed meanwhile; nothing was done, try again")


def _next_config(before: RunConfig, flags: dict[str, Any]) -> tuple[RunConfig, tuple[str, ...]]:
    """Return the settings from now on, and the tasks that come next.

    The settings name the tasks of the past as well.
    """
    for name in flags:
        if name not in settings():
            raise UnknownNameError("setting", name, settings())
    suite = str(flags.pop("suite", before.suite))
    kind, _, listed = suite.partition(":")
    if kind != before.suite.partition(":")[0]:
        raise ConfigError(f"the run is of suite {before.suite}; it cannot go on with suite {suite}")
    next_tasks = tuple(flags.pop("tasks", ()) or filter(None, listed.split(","))) or before.tasks
    tasks = tuple(dict.fromkeys((*before.tasks, *next_tasks)))
    joined = f"{kind}:{','.join(tasks)}" if ":" in before.suite else kind
    for name, why in _FIXED.items():
        if name in flags and flags[name] != getattr(before, name):
            raise ConfigError(f"{name} is {getattr(before, name)!r} in this run and cannot change: {why}")
    changed = {**with_alternatives_unset(flags), "suite": joined, "tasks": tasks}
    changed["environments"] = with_makers(before.environments, flags.get("environments", ()))
    return replace(before, **changed), next_tasks


def _next_plan(config: RunConfig, tasks: Sequence[str]) -> Plan:
    plans = method_plans(config, tasks)
    if len(plans) > 1:
        raise ConfigError(f"protocol {config.protocol} trains several networks; one agent cannot go on as several")
    return plans[0]


def _past(plan: Plan, cursor: Mapping[str, Any]) -> tuple[Segment, ...]:
    """Return the segments trained on so far; an unfinished one ends at the last frame trained on."""
    index, granted, start = (int(cursor[name]) for name in ("segment", "granted_frames", "segment_start"))
    if plan.is_over(index):
        return plan.segments
    done, current = tuple(plan.segment(each) for each in range(index)), plan.segment(index)
    if current.frames is not None and granted >= start + current.frames:
        return (*done, current)
    if granted <= start:
        return done
    return (*done, replace(current, frames=granted - start, episodes=None, extra_frames=0))


def _replay(run_dir: RunDir, config: RunConfig, suite: Suite, plan: Plan, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Choose the store and size of replay: as before, unless the user sets others or there was no replay."""
    before = run_dir.meta.get("replay", {})
    now = RunFactory(config, suite, run_dir.path).plan_replay(plan)
    if before.get("forecast") == "no replay":
        return now
    asked = {"buffer_frames", "buffer_share", "replay_budget"} & flags.keys()
    capacity = now if asked or config.replay_budget is not None else before
    store = before["store"] if before.get("store") == "disk" else now["store"]
    return {**now, "store": store, "capacity_unrolls": int(capacity["capacity_unrolls"])}


def _apply(extension: Extension, run_dir: RunDir, source: Path | None = None) -> None:
    """Write the checkpoint to resume from, then settings and plan: without those, the checkpoint has no effect."""
    meta = run_dir.meta
    store = saved_checkpoints(run_dir)
    store.drop_after(run_dir.checkpoints_path / extension.saved.path.name)  # left by an interrupted extension
    store.save(extension.tree)
    sequences = sequences_of(extension.saved.tree, meta, extension.config)
    # Kept in the meta data as well: a method without replay writes no sequences into its checkpoints.
    replay = {**extension.replay, "sequences": sequences, "earlier": _earlier(meta, sequences)}
    entry = {
        "source": None if source is None else str(source), "frames": extension.frames, "clearl": __version__,
        "segments": extension.kept_segments, "flags": _plain(extension.flags),
    }  # fmt: skip
    config = extension.config
    run_dir.change_config(
        to_yaml(config),
        status="interrupted", metrics_bytes=None, plan=asdict(extension.plan), replay=replay, method=config.method,
        suite=config.suite, protocol=config.protocol, extensions=[*meta.get("extensions", []), entry],
        **extension.meta,
    )  # fmt: skip


def _earlier(meta: Mapping[str, Any], sequences: Sequence[int]) -> list[dict[str, Any]]:
    """Return the earlier capacities and spaces of the replay buffer, each with the sequences at which it ended."""
    before = meta.get("replay", {})
    ended = {"capacity_unrolls": before.get("capacity_unrolls", 1), "sequences": sequences, "spec": meta.get("spec")}
    return [*before.get("earlier", []), ended]


def _size(run_dir: RunDir, replay: Mapping[str, Any]) -> ReplaySize:
    return ReplaySize(replay["capacity_unrolls"], replay["store"], _earlier(run_dir.meta, []))


def _plain(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in flags.items()}
