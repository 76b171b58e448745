"""The life cycle of a run: claim its directory, train or resume, finish; wiring.py makes its parts."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from clearl import __version__
from clearl.acting.agent import Agent, Origin
from clearl.acting.agent_tasks import agent_tasks, tasks_from_json, tasks_to_json
from clearl.config import RunConfig, diff, from_yaml, may_change, parse_yaml, to_yaml, used_settings
from clearl.continuation import go_on
from clearl.errors import (
    DivergedError,
    MissingExtraError,
    RunDirectoryError,
    StorageError,
)
from clearl.forgetting import finish_forgetting
from clearl.learning.learner import find_device
from clearl.methods import make_method
from clearl.methods.method import Method, method_meta
from clearl.nets.network import as_module
from clearl.plugins import import_plugins, named_modules
from clearl.records.collapse import LEAST_ENTROPY, CollapseWatch
from clearl.records.mirrors import check_mirrors
from clearl.records.parts import rows_nbytes
from clearl.records.reader import scan_rows
from clearl.records.run_dir import (
    CONFIG_FILE,
    META_FILE,
    RunDir,
    claimed_directory,
    describe_machine,
    describe_versions,
    file_name,
    holds_run,
    refuse_foreign,
)
from clearl.records.schema import Row
from clearl.records.shield import Shield
from clearl.records.table import MetricsTable
from clearl.runtimes import RUNTIMES
from clearl.runtimes.host import StopFlag, check_autocast, stop_on_signals
from clearl.runtimes.runtime import RunSpec
from clearl.spaces import ActionSpec, spec_from_json, spec_to_json
from clearl.storage.checkpoints import CheckpointStore, fitting
from clearl.storage.files import storage_errors
from clearl.tasks.makers import check_reachable, named_tasks
from clearl.tasks.plan import Plan, plan_from_json
from clearl.tasks.suite import Suite
from clearl.wiring import (
    FACTORY_ENTRY,
    RunFactory,
    method_plans,
    open_context,
    run_suite,
    saved_checkpoints,
    stored_network,
)


@dataclass(frozen=True)
class RunResult:
    """A run that has ended: its directory, its metrics and its agent."""

    path: Path
    status: str
    parts: tuple[RunResult, ...] = ()
    """The runs of the single tasks, if the protocol trains them separately."""
    trained: bool = True
    """False if the directory already held the finished run, and nothing was done."""

    @property
    def metrics(self) -> MetricsTable:
        """Every row that was recorded."""
        return MetricsTable.read(self.path)

    @property
    def agent(self) -> Agent:
        """The trained agent, from the newest checkpoint."""
        return agent_of_run(self.path)

    def extend(
        self, *, console: bool = False, arm: str | None = None, listeners: Sequence[Callable[[Row], None]] = (),
        **settings: Any,
    ) -> RunResult:  # fmt: skip
        """Continue training in the same directory on further tasks: `result.extend(tasks=("asterix",))`.

        Tasks may be functions that make an environment; `arm` and `listeners` are those of `clearl.run`, too.
        """
        settings, unreachable = named_tasks(settings)
        import_plugins(named_modules(settings))
        config = go_on(self.path, None, settings)
        check_reachable(unreachable, config.runtime)
        return run(config, self.path, console=console, arm=arm, listeners=listeners)


def run(
    config: RunConfig, out: Path, *, console: bool = True, arm: str | None = None, overwrite: bool = False,
    listeners: Sequence[Callable[[Row], None]] = (),
) -> RunResult:  # fmt: skip
    """Train the run of `config` into the directory `out`; if that holds the same run, resume it.

    With `overwrite`, a run in `out` is deleted first, after all checks that can be made beforehand.
    """
    out = Path(out).absolute()  # an environment may change the working directory
    refuse_foreign(out)
    import_plugins(config.modules)
    _check_machine(config)
    suite = run_suite(config)
    config = replace(config, tasks=suite.tasks)
    plans = _recorded_plans(out) or method_plans(config, suite.tasks)
    with stop_on_signals() as stop:
        options = RunOptions(console, arm, overwrite, tuple(listeners))
        if len(plans) == 1:
            return _run_plan(config, plans[0], out, suite, stop, options)
        with _claimed(config, out, lambda: _separate_meta(config, plans, arm), options) as whole:
            parts = []
            for plan in plans:
                if not stop:
                    parts.append(_run_plan(config, plan, out / _directory_name(plan), suite, stop, options))
            status = "interrupted" if stop else "finished"
            whole.set_status(status)
        return RunResult(out, status, tuple(parts))


@dataclass(frozen=True)
class RunOptions:
    """The options of a call of `run` that are not settings of the run."""

    console: bool
    arm: str | None
    overwrite: bool
    listeners: tuple[Callable[[Row], None], ...]


def _check_machine(config: RunConfig) -> None:
    """Raise, before a directory is made, if this machine lacks what the run needs."""
    RUNTIMES.check(config.runtime)
    check_autocast(config)
    if config.runtime == "ray" and find_spec("ray") is None:
        raise MissingExtraError("runtime ray", "ray", "install it with: pip install 'clearl[ray]'")
    if config.runtime != "ray":  # with Ray, the learner may be on another machine
        find_device(config.device)
    check_mirrors(config.mirror_names)


def agent_of_run(path: Path, *, trust: bool = False) -> Agent:
    """Load the agent that the run in `path` trained, from its newest good checkpoint."""
    run_dir = RunDir.open(Path(path))
    if parts := run_dir.meta.get("parts"):
        listed = ", ".join(str(run_dir.path / str(part)) for part in parts)
        raise RunDirectoryError(f"{path} holds one agent for each task; say which with task=, or load one of: {listed}")
    saved = saved_checkpoints(run_dir).newest()
    if saved is None:
        _check_checkpoints(run_dir)
        raise RunDirectoryError(f"{path} holds no checkpoint yet; let the run go on, or stop it with Ctrl-C")
    if trust:
        import_plugins(named_modules(parse_yaml(run_dir.config_text, "config.yaml")))
    config = from_yaml(run_dir.config_text)
    meta = run_dir.meta
    spec = spec_from_json(meta.get("spec"), str(run_dir.path / META_FILE))
    network = stored_network(config, spec, source=str(path), trust=trust)
    with fitting(saved.path):
        named = saved.tree["learner"]["tensors"].items()
        weights = {name.removeprefix("network/"): tensor for name, tensor in named if name.startswith("network/")}
        as_module(network).load_state_dict(weights)
        origin = Origin(saved.path, int(saved.tree["learner"]["state"]["counters"]["frames"]), saved.notes)
    tasks = tasks_from_json(run_dir.meta.get("tasks"), spec, str(run_dir.path / META_FILE))
    return Agent(network, spec, reward_clip=config.reward_clip, seed=config.seed, tasks=tasks, origin=origin)


def _recorded_plans(out: Path) -> list[Plan]:
    """Return the recorded plan of an extended run: its settings describe only the last part."""
    if not holds_run(out) or not RunDir(out).meta.get("extensions"):
        return []
    return [plan_from_json(RunDir(out).meta["plan"])]


def _check_schedule(config: RunConfig, plan: Plan, run_dir: RunDir) -> None:
    """Refuse to resume with another plan than the run began with: the schedule is a file, which may have changed."""
    if config.schedule is not None and run_dir.meta.get("plan") != json.loads(json.dumps(asdict(plan))):
        raise RunDirectoryError(
            f"{config.schedule} is not the schedule that {run_dir.path} began with; put that back, or use another --out"
        )


def _run_plan(config: RunConfig, plan: Plan, out: Path, suite: Suite, stop: StopFlag, options: RunOptions) -> RunResult:
    factory = RunFactory(config, suite, out)
    with _claimed(config, out, lambda: _meta(factory, plan, options.arm), options) as run_dir:
        if run_dir.status == "finished":
            return RunResult(out, "finished", trained=False)
        _check_schedule(config, plan, run_dir)
        finish_forgetting(run_dir)
        run_dir.set_status("running")
        try:
            with ExitStack() as stack:
                watchers = [*options.listeners, _collapse_watch(config, suite.spec.action), _tell_of_damage]
                if options.console:
                    watchers.append(_open_console(config, plan, run_dir, stack))
                spec = RunSpec(config, plan, out, open_context, FACTORY_ENTRY, factory, stop, watchers)
                RUNTIMES.get(config.runtime)(spec)
        except BaseException as error:
            with suppress(StorageError):  # a full disk must not hide the original error
                run_dir.set_status("failed")
            if isinstance(error, DivergedError):
                raise _with_remedy(error, run_dir, config) from error
            raise
        status = "interrupted" if stop else "finished"
        # A finished file no longer changes: with its length recorded, a lost end can be detected.
        with storage_errors(run_dir.metrics_path):
            metrics_bytes = None if stop else rows_nbytes(run_dir.metrics_path)
        run_dir.set_status(status, metrics_bytes=metrics_bytes)
        if status == "finished" and not config.keep_replay:
            shutil.rmtree(run_dir.replay_path, ignore_errors=True)
    return RunResult(out, status)


def _collapse_watch(config: RunConfig, action: ActionSpec) -> Callable[[Row], None]:
    """Return a listener that warns once of a collapsed policy and never stops training."""
    watch = CollapseWatch(
        config.unroll_steps * config.batch_unrolls, least_entropy=None if action.bounded else LEAST_ENTROPY
    )
    return partial(Shield("the watch for collapse").call, watch.update)


def _tell_of_damage(row: Row) -> None:
    """Say which checkpoints a resume passed over."""
    if row["kind"] == "fault" and row["worker"] == "checkpoint":
        Shield("the note on damaged checkpoints").call(partial(print, f"clearl: {row['problem']}", file=sys.stderr))


def _open_console(config: RunConfig, plan: Plan, run_dir: RunDir, stack: ExitStack) -> Callable[[Row], None]:
    """Open the live view for the life of `stack`; return the listener that feeds it."""
    from clearl.records.console import Console  # imports Rich, which child processes do not need

    names = dict.fromkeys([run_dir.meta.get("arm") or config.method, plan.name])
    title = f"{', '.join(names)} on {config.suite}"
    view = Console(title=title, tasks=plan.evaluate, total_frames=plan.total_frames, forever=plan.forever)
    shield = Shield("the live view")

    def show_past() -> None:
        for row in scan_rows(run_dir.metrics_path, thin="train").rows:  # rows from before a resume
            view.view.update(row)

    shield.call(show_past)
    if (forecast := run_dir.meta.get("replay", {}).get("forecast", "no replay")) != "no replay":
        shield.call(lambda: view.say(str(forecast)))
    shield.call(view.open)
    stack.callback(shield.call, view.close)
    return partial(shield.call, view.update)


def _with_remedy(error: DivergedError, run_dir: RunDir, config: RunConfig) -> DivergedError:
    """Add the last good checkpoint, and the command that goes on from it: a resume takes no other learning rate."""
    saved = saved_checkpoints(run_dir).newest()
    if saved is None:
        return DivergedError(f"{error}; there is no checkpoint yet, so start anew with --overwrite")
    text = f"{error}; the last good checkpoint is {saved.path}"
    if config.protocol != "separate":
        slower = f"--learning-rate {config.learning_rate / 10:g}"
        text += f"; clearl run --extend {shlex.quote(str(run_dir.path))} {slower} plays the tasks anew from there"
    return DivergedError(text)


@contextmanager
def _claimed(
    config: RunConfig, out: Path, make_meta: Callable[[], dict[str, Any]], options: RunOptions
) -> Iterator[RunDir]:
    """Lock the directory of a run, created or opened to resume, so that no other process trains into it."""
    meta = None if holds_run(out) else make_meta()  # fails before anything is made
    with claimed_directory(out):
        if options.overwrite and holds_run(out):
            meta = make_meta()
            RunDir(out).remove_run()
            yield RunDir.begin(out, config_text=to_yaml(config), meta=meta)
        elif holds_run(out):
            yield _reopened(config, out, options.arm)
        else:
            yield RunDir.create(out, config_text=to_yaml(config), meta=meta or make_meta())


def _reopened(config: RunConfig, out: Path, arm: str | None) -> RunDir:
    """Open a run to resume; take settings that do not affect learning from `config`."""
    run_dir = RunDir.open(out)
    before = from_yaml(run_dir.config_text, str(out / CONFIG_FILE))
    changes = diff(before, config)
    if refused := {key: values for key, values in changes.items() if key not in may_change()}:
        listed = "; ".join(f"{key}: {old!r} there, {new!r} now" for key, (old, new) in refused.items())
        raise RunDirectoryError(
            f"{out} holds a run with other settings ({listed}); give another --out, the same settings, "
            f"or --overwrite to start anew; clearl resume {shlex.quote(str(out))} goes on with its own"
        )
    _check_checkpoints(run_dir)
    if changes and run_dir.status != "finished":
        run_dir.change_config(to_yaml(config))
    if arm is not None and arm != run_dir.meta.get("arm"):
        run_dir.update_meta(arm=arm)
    return run_dir


def _check_checkpoints(run_dir: RunDir) -> None:
    """Refuse a run that had checkpoints and lost them: a fresh start would drop its recorded rows."""
    had = run_dir.status == "interrupted" or run_dir.meta.get("checkpointed")
    if had and "parts" not in run_dir.meta and not CheckpointStore(run_dir.checkpoints_path).paths():
        raise RunDirectoryError(
            f"{run_dir.path} has lost its checkpoints ({run_dir.checkpoints_path} is missing or empty); "
            "put them back from a copy, or start anew with --overwrite, or with another --out"
        )


def _meta(factory: RunFactory, plan: Plan, arm: str | None) -> dict[str, Any]:
    """Return the meta data of one network's training: everything that is not in its config."""
    config = factory.config
    factory.check_room()
    for doubt in factory.doubts:
        Shield("the remark on settings").call(partial(print, f"clearl: {doubt}", file=sys.stderr))
    return {
        **_common_meta(config, factory.method, arm),
        "plan": asdict(plan),
        "frames_scale": plan.frames_scale,
        "probe_position": config.probe_position if "probe_position" in used_settings(config) else None,
        "spec": spec_to_json(factory.suite.spec),
        "tasks": tasks_to_json(agent_tasks(factory.suite)),
        "replay": factory.plan_replay(plan),
    }


def _separate_meta(config: RunConfig, plans: Sequence[Plan], arm: str | None) -> dict[str, Any]:
    return {**_common_meta(config, make_method(config), arm), "parts": [_directory_name(plan) for plan in plans]}


def _directory_name(plan: Plan) -> str:
    return file_name(plan.name)


def _common_meta(config: RunConfig, method: Method, arm: str | None) -> dict[str, Any]:
    return {
        "clearl": __version__,
        "argv": sys.argv[1:],
        "began_unix_s": round(time.time()),
        "seed": config.seed,
        "method": config.method,
        **method_meta(method),
        "suite": config.suite,
        "protocol": config.protocol,
        "arm": arm,
        "machine": describe_machine(),
        "versions": describe_versions("torch", "numpy", "gymnasium", "minatar", "ale-py", "envpool", "vizdoom", "ray"),
    }
