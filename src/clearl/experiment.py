"""The only file that knows every layer: from a config to a finished run."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from clearl import __version__
from clearl.acting.actor import Actor
from clearl.acting.agent import Agent, Origin
from clearl.acting.evaluator import Evaluator
from clearl.acting.worker import Worker
from clearl.config import MAY_CHANGE, RunConfig, diff, from_yaml, parse_yaml, to_yaml
from clearl.errors import (
    ConfigError,
    CorruptFileError,
    DivergedError,
    MissingExtraError,
    RunDirectoryError,
    StorageError,
    UnknownNameError,
)
from clearl.learning.batching import Intake
from clearl.learning.learner import Learner, find_device
from clearl.methods import make_method
from clearl.methods.method import Method, full_label
from clearl.nets.network import PolicyNetwork, as_module, build_network
from clearl.plugins import import_plugins, named_modules
from clearl.protocols import make_plans
from clearl.protocols.schedule import schedule_tasks
from clearl.records.collapse import CollapseWatch
from clearl.records.mirrors import check_mirrors, open_mirrors
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
from clearl.records.writer import MetricsWriter, check_position
from clearl.registry import load_entry
from clearl.replay.codec import Codec
from clearl.replay.forecast import StoreKind, choose_store, forecast_bytes
from clearl.replay.mixing import BothMixer, EitherMixer, Mixer
from clearl.replay.shard import ReplayShard
from clearl.replay.store import open_store
from clearl.runtimes import RUNTIMES
from clearl.runtimes.host import StopFlag, check_autocast, stop_on_signals
from clearl.runtimes.recorder import Recorder
from clearl.runtimes.runtime import RunContext, RunSpec
from clearl.runtimes.state import fitting
from clearl.seeding import derive
from clearl.spaces import TaskSpec, spec_from_json, spec_to_json
from clearl.storage.checkpoints import CheckpointStore
from clearl.suites import make_suite
from clearl.tasks.plan import Plan, lengthened, plan_from_json
from clearl.tasks.schedule import PlanCursor
from clearl.tasks.suite import Suite
from clearl.unroll import UnrollLayout

PARTS_ENTRY = "clearl.experiment:load_factory"
JOB_ENTRY = "clearl.experiment:open_job"


class RunFactory:
    """Makes workers, evaluators and networks of one run; see `clearl.runtimes.runtime.Factory`."""

    def __init__(
        self, config: RunConfig, run_dir: Path, capacity_unrolls: int, store_kind: StoreKind,
        earlier: Sequence[Mapping[str, Any]] = (),
    ) -> None:  # fmt: skip
        """`earlier`: the capacities of replay that the run had before it was extended, see `continuation`."""
        self.config, self.run_dir, self.earlier = config, run_dir, earlier
        self.suite = make_suite(config.suite, config.tasks, config)
        self.method = make_method(config)
        self.capacity_unrolls = capacity_unrolls
        self.store_kind: StoreKind = store_kind
        core_size = self.network().core_size
        self.layout = UnrollLayout(self.suite.spec, config.unroll_steps, core_size)
        self.draws = self.mixer().draws

    @cached_property
    def codec(self) -> Codec:
        """Of all shards and of the intake of this process."""
        return Codec(self.layout)

    def network(self) -> PolicyNetwork:
        """A network to act with."""
        return make_network(self.config, self.suite.spec, make_method(self.config))

    def trained_network(self) -> PolicyNetwork:
        """The network that `method` trains: built by this very instance, which may remember what it built."""
        return make_network(self.config, self.suite.spec, self.method)

    def mixer(self) -> Mixer:
        """What picks from the pairs of this run, as at its start."""
        seed, fraction = derive(self.config.seed, "mixer"), self.method.replay_fraction
        if self.config.pairs == "both" and fraction > 0:
            return BothMixer(self.config.replay_ratio or 1.0, seed)
        return EitherMixer(fraction, seed)

    def learner(self, plan: Plan) -> Learner:
        """The learner of a run by `plan`, as at its start."""
        return Learner(
            network=self.trained_network(), method=self.method, config=self.config,
            batch_frames=self.config.batch_unrolls * self.layout.frames, total_frames=plan.total_frames,
        )  # fmt: skip

    def intake(self) -> Intake:
        """The intake of the learner, empty."""
        return Intake(
            self.codec, self.config.batch_unrolls, self.mixer(), discount=self.config.discount,
            reward_clip=self.config.reward_clip,
        )  # fmt: skip

    def worker(self, slots: Sequence[int], network: PolicyNetwork, *, incarnation: int = 0) -> Worker:
        seed = self.config.seed if incarnation == 0 else derive(self.config.seed, "incarnation", incarnation)
        actor = Actor(
            suite=self.suite, network=network, layout=self.layout, slots=slots, seed=seed,
            reward_clip=self.config.reward_clip,
        )  # fmt: skip
        shards = [self.shard(slot) for slot in slots] if self.method.replay_fraction > 0 else []
        return Worker(actor, shards, self.draws)

    def shard(self, slot: int) -> ReplayShard:
        """The replay shard of one slot, as the disk holds it or empty."""
        store = open_store(
            self.store_kind, self.run_dir / "replay" / f"slot-{slot:05d}", waste_share=self.config.replay_waste_share
        )
        earlier = [(int(each["capacity_unrolls"]), int(each["sequences"][slot])) for each in self.earlier]
        return ReplayShard(
            codec=self.codec, capacity_unrolls=self.capacity_unrolls, seed=self.config.seed, slot=slot, store=store,
            earlier=earlier,
        )  # fmt: skip

    def evaluator(self, network: PolicyNetwork) -> Evaluator:
        config = self.config
        return Evaluator(
            suite=self.suite, network=network, seed=config.seed, episodes=config.eval_episodes,
            max_steps=config.eval_max_steps, reward_clip=config.reward_clip,
            switch_episodes=config.switch_episodes,
        )  # fmt: skip


def load_factory(config_yaml: str, run_dir: Path) -> RunFactory:
    """The parts of the run in `run_dir`, made again in another process."""
    replay = RunDir(run_dir).meta.get("replay")
    if not isinstance(replay, dict) or type(capacity := replay.get("capacity_unrolls")) is not int or capacity < 1:
        raise CorruptFileError(f"{run_dir / META_FILE} does not say how much replay the run holds")
    store = "disk" if replay.get("store") == "disk" else "ram"
    import_plugins(named_modules(parse_yaml(config_yaml, "config")))  # they may declare some of the settings
    return RunFactory(from_yaml(config_yaml), run_dir, capacity, store, replay.get("earlier", ()))


@dataclass(frozen=True)
class RunResult:
    """A run that has ended: its directory, its metrics and what it trained."""

    path: Path
    status: str
    parts: tuple[RunResult, ...] = ()
    """The runs of the single tasks, where the protocol trains them separately."""
    trained: bool = True
    """False where the directory held the finished run already, and nothing was done."""

    @property
    def metrics(self) -> MetricsTable:
        """Every row that was recorded."""
        return MetricsTable.read(self.path)

    @property
    def agent(self) -> Agent:
        """The trained agent, from the newest checkpoint."""
        return load_agent(self.path)

    def extend(self, *, console: bool = False, **settings: Any) -> RunResult:
        """Go on in the same directory with what comes next: `result.extend(tasks=("asterix",))`."""
        go_on = load_entry("clearl.continuation:go_on")  # it stands on this module
        return run(go_on(self.path, None, settings), self.path, console=console)


def run(
    config: RunConfig, out: Path, *, console: bool = True, arm: str | None = None, overwrite: bool = False,
    listeners: Sequence[Callable[[Row], None]] = (),
) -> RunResult:  # fmt: skip
    """Train what `config` says into the directory `out`; a directory that holds the same run goes on from there.

    With `overwrite` a run that `out` holds is deleted first, once everything that can be checked has been.
    """
    out = Path(out).absolute()  # an environment may change the working directory
    refuse_foreign(out)
    import_plugins(named_modules(vars(config)))
    _check_machine(config)
    suite = _suite(config)
    config = replace(config, tasks=suite.tasks)
    plans = _recorded_plans(out) or method_plans(config, suite.tasks)
    with stop_on_signals() as stop:
        options = RunOptions(console, arm, overwrite, tuple(listeners))
        if len(plans) == 1:
            return _run_plan(config, plans[0], out, suite.spec, stop, options)
        with _claimed(config, out, lambda: _separate_meta(config, plans, arm), options) as whole:
            parts = []
            for plan in plans:
                if not stop:
                    parts.append(_run_plan(config, plan, out / _directory_name(plan), suite.spec, stop, options))
            status = "interrupted" if stop else "finished"
            whole.set_status(status)
        return RunResult(out, status, tuple(parts))


@dataclass(frozen=True)
class RunOptions:
    """What a call of `run` asks for beside the settings of the run."""

    console: bool
    arm: str | None
    overwrite: bool
    listeners: tuple[Callable[[Row], None], ...]


def _check_machine(config: RunConfig) -> None:
    """Raise where this machine lacks what the run asks for, before a directory is made."""
    check_autocast(config)
    if config.runtime == "ray" and find_spec("ray") is None:
        raise MissingExtraError("runtime ray", "ray", "install it with: pip install 'clearl[ray]'")
    if config.runtime != "ray":  # there the learner may be on another machine
        find_device(config.device)
    check_mirrors(config.mirror_names)


def load_agent(path: Path, *, trust: bool = False) -> Agent:
    """Load the agent that the run in `path` trained, from its newest good checkpoint."""
    run_dir = RunDir.open(Path(path))
    if parts := run_dir.meta.get("parts"):
        listed = ", ".join(str(run_dir.path / str(part)) for part in parts)
        raise RunDirectoryError(f"{path} holds one agent for each task; say which with task=, or load one of: {listed}")
    saved = CheckpointStore(run_dir.checkpoints_path).newest()
    if saved is None:
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
    return Agent(network, spec, reward_clip=config.reward_clip, seed=config.seed, origin=origin)


def run_frames(config: RunConfig) -> int:
    """Environment frames that a run will train on, over all its networks; 0 where visits end by episodes."""
    suite = _suite(config)
    return sum(plan.total_frames or 0 for plan in method_plans(config, suite.tasks))


def _recorded_plans(out: Path) -> list[Plan]:
    """The plan of a run that was extended: its settings know only of the last part of it."""
    if not holds_run(out) or not RunDir(out).meta.get("extensions"):
        return []
    return [plan_from_json(RunDir(out).meta["plan"])]


def _suite(config: RunConfig) -> Suite:
    """The suite of a run that is about to begin; where nobody named tasks, with those of its schedule."""
    if config.schedule is None or config.tasks:
        return make_suite(config.suite, config.tasks, config)
    return make_suite(config.suite, schedule_tasks(Path(config.schedule)), config)


def planned(config: RunConfig) -> list[Plan]:
    """The plans of a run, one for each network, without starting anything."""
    import_plugins(named_modules(vars(config)))
    return method_plans(config, _suite(config).tasks)


def method_plans(config: RunConfig, tasks: Sequence[str]) -> list[Plan]:
    """The protocol's plans, with the frames that the method needs on top of each visit."""
    method = make_method(config)
    plans = [lengthened(plan, method.extra_frames_share) for plan in make_plans(config, tasks)]
    if method.needs_boundaries and any(not plan.has_boundaries for plan in plans):
        raise ConfigError(
            f"method {config.method} has to be told where a task ends, and protocol {config.protocol} moves from task "
            "to task without a boundary; take a method that needs none, such as clear, or protocol sequential"
        )
    return plans


def run_replay_bytes(config: RunConfig) -> int:
    """Bytes of disk that the replay of a run may take."""
    suite = _suite(config)
    return replay_bytes(config, suite.spec, run_frames(config))


def replay_bytes(config: RunConfig, spec: TaskSpec, total_frames: int) -> int:
    """Bytes of disk that the replay of a run of `total_frames` on tasks of `spec` may take."""
    method = make_method(config)
    if method.replay_fraction == 0:
        return 0
    layout = UnrollLayout(spec, config.unroll_steps, make_network(config, spec, method).core_size)
    frames = config.buffer_size_frames(total_frames)
    return forecast_bytes(layout, frames, waste_share=config.replay_waste_share).disk_nbytes


def _check_schedule(config: RunConfig, plan: Plan, run_dir: RunDir) -> None:
    """Refuse to go on with another plan than the run began with: the schedule is a file, which may have changed."""
    if config.schedule is not None and run_dir.meta.get("plan") != json.loads(json.dumps(asdict(plan))):
        raise RunDirectoryError(
            f"{config.schedule} is not the schedule that {run_dir.path} began with; put that back, or use another --out"
        )


def _run_plan(
    config: RunConfig, plan: Plan, out: Path, spec: TaskSpec, stop: StopFlag, options: RunOptions
) -> RunResult:
    with _claimed(config, out, lambda: _meta(config, plan, out, spec, options.arm), options) as run_dir:
        if run_dir.status == "finished":
            return RunResult(out, "finished", trained=False)
        _check_schedule(config, plan, run_dir)
        if config.learner_threads is not None:
            torch.set_num_threads(config.learner_threads)
        run_dir.set_status("running")
        try:
            with ExitStack() as stack:
                watchers = [*options.listeners, _collapse_watch(config)]
                if options.console:
                    watchers.append(_open_console(config, plan, run_dir, stack))
                RUNTIMES.get(config.runtime)(RunSpec(config, plan, out, JOB_ENTRY, PARTS_ENTRY, stop, watchers))
        except BaseException as error:
            with suppress(StorageError):  # a full disk must not hide what went wrong
                run_dir.set_status("failed")
            if isinstance(error, DivergedError):
                raise _with_checkpoint(error, run_dir) from error
            raise
        status = "interrupted" if stop else "finished"
        # What is finished no longer changes: from now on a metrics file that has lost its end can be told.
        run_dir.set_status(status, metrics_bytes=None if stop else run_dir.metrics_path.stat().st_size)
        if status == "finished" and not config.keep_replay:
            shutil.rmtree(run_dir.replay_path, ignore_errors=True)
    return RunResult(out, status)


def _collapse_watch(config: RunConfig) -> Callable[[Row], None]:
    """A listener that warns once of a collapsed policy, and never ends the training."""
    watch = CollapseWatch(config.unroll_steps * config.batch_unrolls)
    return partial(Shield("the watch for collapse").call, watch.update)


def _open_console(config: RunConfig, plan: Plan, run_dir: RunDir, stack: ExitStack) -> Callable[[Row], None]:
    """Open the live view for the life of `stack`; the listener that feeds it."""
    from clearl.records.console import Console  # Rich, which a child process can do without

    names = dict.fromkeys([run_dir.meta.get("arm") or config.method, plan.name])
    title = f"{', '.join(names)} on {config.suite}"
    view = Console(title=title, tasks=plan.evaluate, total_frames=plan.total_frames)
    for row in scan_rows(run_dir.metrics_path, thin="train").rows:  # what a resumed run did before
        view.view.update(row)
    shield = Shield("the live view")
    shield.call(view.open)
    stack.callback(shield.call, view.close)
    return partial(shield.call, view.update)


def _with_checkpoint(error: DivergedError, run_dir: RunDir) -> DivergedError:
    saved = CheckpointStore(run_dir.checkpoints_path).newest()
    where = "there is no checkpoint yet" if saved is None else f"the last good checkpoint is {saved.path}"
    return DivergedError(f"{error}; {where}")


@contextmanager
def open_job(order: RunSpec) -> Iterator[RunContext]:
    """The parts of a run, in the process of its learner; see `clearl.runtimes.runtime.RunSpec`."""
    config, plan, run_dir = order.config, order.plan, RunDir(order.run_dir)
    parts = load_factory(to_yaml(config), run_dir.path)
    # Where the metrics end before a checkpoint's position, the older one can write the missing rows again.
    checkpoints = CheckpointStore(
        run_dir.checkpoints_path,
        check=lambda state: check_position(run_dir.path, state.get("metrics_position")),
        on_first=lambda: run_dir.update_meta(checkpointed=True),
    )
    checkpoints.clean()
    saved = checkpoints.newest()
    position = 0 if saved is None else saved.json["metrics_position"]
    with ExitStack() as stack:
        writer = stack.enter_context(MetricsWriter(run_dir.path, position=position))
        watchers = list(order.listeners)
        for mirror in open_mirrors(run_dir.path, config.mirror_names):
            stack.callback(mirror.close)
            watchers.append(mirror.write)
        yield RunContext(
            config=config,
            plan=plan,
            factory=parts,
            factory_entry=order.factory_entry,
            learner=parts.learner(plan),
            intake=parts.intake(),
            cursor=PlanCursor(plan, config.slots),
            recorder=Recorder(
                writer, record_every_updates=config.record_every_updates, listeners=watchers, thins=plan.forever
            ),
            checkpoints=checkpoints,
            run_dir=run_dir.path,
            stop=order.stop,
        )  # fmt: skip


@contextmanager
def _claimed(
    config: RunConfig, out: Path, make_meta: Callable[[], dict[str, Any]], options: RunOptions
) -> Iterator[RunDir]:
    """Hold the directory of a run, which is made, or opened to go on with; nobody else trains into it meanwhile."""
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
    """Open a run to go on with; settings that do not touch learning become those of `config`."""
    run_dir = RunDir.open(out)
    before = from_yaml(run_dir.config_text, str(out / CONFIG_FILE))
    changes = diff(before, config)
    if refused := {key: values for key, values in changes.items() if key not in MAY_CHANGE}:
        listed = "; ".join(f"{key}: {old!r} there, {new!r} now" for key, (old, new) in refused.items())
        raise RunDirectoryError(
            f"{out} holds a run with other settings ({listed}); give another --out, the same settings, "
            f"or --overwrite to start anew; clearl resume {shlex.quote(str(out))} goes on with its own"
        )
    _check_checkpoints(run_dir)
    if run_dir.status != "finished":
        if changes:
            run_dir.change_config(to_yaml(config))
        if arm is not None and arm != run_dir.meta.get("arm"):
            run_dir.update_meta(arm=arm)
    return run_dir


def _check_checkpoints(run_dir: RunDir) -> None:
    """Refuse a run that had checkpoints and lost them: a fresh start would drop what it recorded."""
    had = run_dir.status == "interrupted" or run_dir.meta.get("checkpointed")
    if had and "parts" not in run_dir.meta and not CheckpointStore(run_dir.checkpoints_path).paths():
        raise RunDirectoryError(
            f"{run_dir.path} has lost its checkpoints ({run_dir.checkpoints_path} is missing or empty); "
            "put them back from a copy, or start anew with --overwrite, or with another --out"
        )


def _meta(config: RunConfig, plan: Plan, out: Path, spec: TaskSpec, arm: str | None) -> dict[str, Any]:
    """All that describes one network's training and cannot be read off its config."""
    return {
        **_common_meta(config, arm),
        "plan": asdict(plan),
        "frames_scale": plan.frames_scale,
        "probe_position": config.probe_position if config.protocol == "probe" else None,
        "spec": spec_to_json(spec),
        "replay": replay_meta(config, plan, out, spec),
    }


def replay_meta(config: RunConfig, plan: Plan, out: Path, spec: TaskSpec) -> dict[str, Any]:
    """Where the replay of a run is kept, and how much of it a slot holds."""
    method = make_method(config)
    if method.replay_fraction == 0:
        return {"store": "ram", "capacity_unrolls": 1, "forecast": "no replay"}
    layout = UnrollLayout(spec, config.unroll_steps, make_network(config, spec, method).core_size)
    frames = config.buffer_size_frames(plan.total_frames)
    store, sentence = choose_store(config.replay_store, layout=layout, capacity_frames=frames, directory=out)
    per_slot = max(1, round(frames / (layout.frames * config.slots)))
    return {"store": store, "capacity_unrolls": per_slot, "forecast": sentence}


def _separate_meta(config: RunConfig, plans: Sequence[Plan], arm: str | None) -> dict[str, Any]:
    return {**_common_meta(config, arm), "parts": [_directory_name(plan) for plan in plans]}


def _directory_name(plan: Plan) -> str:
    return file_name(plan.name)


def _common_meta(config: RunConfig, arm: str | None) -> dict[str, Any]:
    method = make_method(config)
    return {
        "clearl": __version__,
        "argv": sys.argv[1:],
        "seed": config.seed,
        "method": config.method,
        "label": full_label(method),
        "colour": method.colour,
        "needs_boundaries": method.needs_boundaries,
        "suite": config.suite,
        "protocol": config.protocol,
        "arm": arm,
        "machine": describe_machine(),
        "versions": describe_versions("torch", "numpy", "gymnasium", "minatar", "ale-py", "envpool", "vizdoom", "ray"),
    }


def make_network(config: RunConfig, spec: TaskSpec, method: Method) -> PolicyNetwork:
    """The network that `method` trains, with its initial weights."""
    seed = derive(config.seed, "network")
    shape = {"torso": config.torso, "lstm": config.lstm, "lstm_size": config.lstm_size}
    return method.build_network(lambda: build_network(spec, **shape, seed=seed))


def stored_network(config: RunConfig, spec: TaskSpec, *, source: str, trust: bool) -> PolicyNetwork:
    """Make the network of settings that were read from `source`, which may be a stranger's.

    Its torso or method may come from a module that only the user can ask to import, or all of them with `trust`.
    """
    if trust:
        import_plugins(config.imports)
    try:
        return make_network(config, spec, make_method(config))
    except UnknownNameError as error:
        if not config.imports:
            raise
        listed = ",".join(config.imports)
        raise ConfigError(
            f"{error}; {source} was trained with --imports {listed}: give the same, or trust it"
        ) from error
