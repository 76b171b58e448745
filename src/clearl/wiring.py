"""Make the parts of a run from its config: the only file that imports all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearl.acting.actor import Actor
from clearl.acting.evaluator import Evaluator
from clearl.acting.worker import Worker
from clearl.config import RunConfig, from_yaml, parse_yaml
from clearl.errors import ConfigError, CorruptFileError, UnknownNameError
from clearl.methods import make_method
from clearl.methods.method import Method
from clearl.nets.heads import StdSettings
from clearl.nets.network import PolicyNetwork, as_module, build_network
from clearl.nets.torsos import torso_doubt
from clearl.plugins import import_plugins, named_modules
from clearl.protocols import make_plans
from clearl.protocols.schedule import schedule_tasks
from clearl.records.run_dir import META_FILE, RunDir
from clearl.records.writer import MetricsWriter, check_position
from clearl.replay.codec import Codec
from clearl.replay.forecast import StoreKind, choose_store, forecast_bytes, human_nbytes, unrolls_within
from clearl.replay.history import earlier_of
from clearl.replay.mixing import BothMixer, EitherMixer, Mixer
from clearl.replay.shard import ReplayShard
from clearl.replay.store import open_store
from clearl.runtimes import RUNTIMES
from clearl.runtimes.host import cores
from clearl.seeding import derive
from clearl.spaces import TaskSpec, spec_from_json
from clearl.storage.files import free_nbytes
from clearl.suites import make_suite
from clearl.tasks.plan import Plan, lengthened
from clearl.tasks.suite import Suite
from clearl.tasks.vectors import allow_env_threads
from clearl.unroll import UnrollLayout

if TYPE_CHECKING:  # workers import this file, too: the learner's side is imported where it is made
    from clearl.learning.batching import Intake
    from clearl.learning.learner import Learner
    from clearl.runtimes.runtime import Factory, RunContext, RunSpec
    from clearl.storage.checkpoints import CheckpointStore

_CHECKPOINTS_AT_ONCE = 3
FACTORY_ENTRY = "clearl.wiring:load_factory"
"""The entry point with which other processes make the factory of a run."""


@dataclass(frozen=True)
class ReplaySize:
    """The replay capacity of each slot, and its store; decided once, when a run is created."""

    capacity_unrolls: int
    store: StoreKind
    earlier: Sequence[Mapping[str, Any]] = ()
    """The capacities that the run had before it was extended; see `clearl.continuation`."""

    @staticmethod
    def of(run_dir: Path) -> ReplaySize:
        """Read it from the meta data of a run."""
        replay = RunDir(run_dir).meta.get("replay")
        if not isinstance(replay, dict) or type(capacity := replay.get("capacity_unrolls")) is not int or capacity < 1:
            raise CorruptFileError(f"{run_dir / META_FILE} does not say how much replay the run holds")
        return ReplaySize(capacity, "disk" if replay.get("store") == "disk" else "ram", replay.get("earlier", ()))


class RunFactory:
    """Makes the parts of one run in one process, from one method and one network; see `Factory`."""

    def __init__(self, config: RunConfig, suite: Suite, run_dir: Path, replay: ReplaySize | None = None) -> None:
        self.config, self.suite, self.run_dir, self._replay = config, suite, run_dir, replay
        self.method = make_method(config)

    @cached_property
    def _network(self) -> PolicyNetwork:
        return make_network(self.config, self.suite.spec, self.method)

    @cached_property
    def _layout(self) -> UnrollLayout:
        return UnrollLayout(self.suite.spec, self.config.unroll_steps, self._network.core_size)

    @property
    def layout(self) -> UnrollLayout:
        """The fields of an unroll of this run."""
        return self._layout

    @property
    def draws(self) -> int:
        """The number of replayed unrolls that a worker sends with each new one."""
        return self.mixer().draws

    @cached_property
    def codec(self) -> Codec:
        """The codec of all shards and the intake of this process; also reads unrolls from before the spaces grew."""
        source, layouts = str(self.run_dir / META_FILE), [self.layout]
        for each in self.replay.earlier:
            spec = spec_from_json(each["spec"], source) if "spec" in each else self.suite.spec
            if (layout := replace(self.layout, spec=spec)) not in layouts:
                layouts.append(layout)
        return Codec(self.layout, layouts[1:])

    @cached_property
    def replay(self) -> ReplaySize:
        """The size as given, else as recorded in the run directory, which must exist by then."""
        return self._replay or ReplaySize.of(self.run_dir)

    @property
    def replay_store(self) -> str:
        """The kind of replay store: `ram` or `disk`."""
        return self.replay.store

    @property
    def doubts(self) -> list[str]:
        """Remarks on slow or strange settings, one line each."""
        shapes = self.suite.spec.observation.shapes.values()
        return list(dict.fromkeys(filter(None, (torso_doubt(self.config.torso, shape) for shape in shapes))))

    def check_room(self) -> None:
        """Refuse a disk without room for the checkpoints of the run: the first one may be written only after hours."""
        parameters = sum(parameter.nbytes for parameter in as_module(self._network).parameters())
        # Each holds the weights, two moments and the unrolls of an incomplete batch; two are kept, a third is written.
        needed = _CHECKPOINTS_AT_ONCE * (3 * parameters + self.config.batch_unrolls * self.layout.nbytes)
        free = free_nbytes(self.run_dir)
        if free is not None and free < needed:
            raise ConfigError(
                f"checkpoints do not fit at {self.run_dir}: they need about {needed / 1e6:,.1f} MB, "
                f"{free / 1e6:,.1f} MB are free; make room, or give an --out on a larger disk"
            )

    def plan_replay(self, plan: Plan) -> dict[str, Any]:
        """Choose the size and the store of replay, for the meta data of a new run."""
        if self.method.replay_fraction == 0:
            return {"store": "ram", "capacity_unrolls": 1, "forecast": "no replay"}
        config, layout = self.config, self.layout
        frames = buffer_size_frames(config, layout, plan.total_frames)
        store, sentence = choose_store(
            config.replay_store, layout=layout, capacity_frames=frames, directory=self.run_dir,
            waste_share=config.replay_waste_share,
        )  # fmt: skip
        if config.replay_budget is not None:
            sentence += f"; {frames:,} frames within the budget of {human_nbytes(config.replay_budget)}"
        per_slot = max(1, round(frames / (layout.frames * config.slots)))
        return {"store": store, "capacity_unrolls": per_slot, "forecast": sentence}

    def network(self) -> PolicyNetwork:
        """Return the network of this process, with the run's initial weights until others are loaded."""
        return self._network

    def mixer(self) -> Mixer:
        """Make the mixer of this run's pairs, in its initial state."""
        seed, fraction = derive(self.config.seed, "mixer"), self.method.replay_fraction
        if self.config.pairs == "both" and fraction > 0:
            return BothMixer(self.config.replay_ratio or 1.0, seed)
        return EitherMixer(fraction, seed)

    def worker(
        self, slots: Sequence[int], network: PolicyNetwork, *, incarnation: int = 0, suite: Suite | None = None
    ) -> Worker:
        seed = self.config.seed if incarnation == 0 else derive(self.config.seed, "incarnation", incarnation)
        actor = Actor(
            suite=suite or self.suite, network=network, layout=self.layout, slots=slots, seed=seed,
            reward_clip=self.config.reward_clip,
        )  # fmt: skip
        shards = [self.shard(slot) for slot in slots] if self.method.replay_fraction > 0 else []
        return Worker(actor, shards, self.draws)

    def shard(self, slot: int) -> ReplayShard:
        """Return the replay shard of one slot, with its contents on disk if there are any."""
        path = self.run_dir / "replay" / f"slot-{slot:05d}"
        store = open_store(self.replay.store, path, waste_share=self.config.replay_waste_share)
        return ReplayShard(
            codec=self.codec, capacity_unrolls=self.replay.capacity_unrolls, seed=self.config.seed, slot=slot,
            store=store, earlier=earlier_of(self.replay.earlier, slot),
        )  # fmt: skip

    def evaluator(self, network: PolicyNetwork, *, suite: Suite | None = None) -> Evaluator:
        config = self.config
        return Evaluator(
            suite=suite or self.suite, network=network, seed=config.seed, episodes=config.eval_episodes,
            max_steps=config.eval_max_steps, reward_clip=config.reward_clip,
            switch_episodes=config.switch_episodes,
        )  # fmt: skip

    def learner(self, plan: Plan) -> Learner:
        """Return the learner, with the network of this process."""
        from clearl.learning.learner import Learner

        batch_frames = self.config.batch_unrolls * self.layout.frames
        return Learner(
            network=self._network, method=self.method, config=self.config, batch_frames=batch_frames,
            total_frames=plan.total_frames,
        )  # fmt: skip

    def intake(self) -> Intake:
        """Make the intake, which batches the pairs of workers."""
        from clearl.learning.batching import Intake

        config = self.config
        return Intake(
            self.codec, config.batch_unrolls, self.mixer(), discount=config.discount, reward_clip=config.reward_clip
        )


def load_factory(config_yaml: str, run_dir: Path) -> RunFactory:
    """Make the factory of the run in `run_dir` in another process."""
    size = ReplaySize.of(run_dir)  # a damaged directory is refused before anything is imported
    import_plugins(named_modules(parse_yaml(config_yaml, "config")))  # plug-ins may declare some of the settings
    config = from_yaml(config_yaml)
    allow_env_threads(cores() // config.workers if config.workers else 1)  # all workers act at the same time
    return RunFactory(config, make_suite(config.suite, config.tasks, config), run_dir, size)


@contextmanager
def open_context(spec: RunSpec, factory: Factory) -> Iterator[RunContext]:
    """Open a run in the process of its learner, from its newest checkpoint on; close its files at the end."""
    from clearl.records.mirrors import open_mirrors
    from clearl.runtimes.recorder import Recorder
    from clearl.runtimes.runtime import RunContext
    from clearl.tasks.schedule import PlanCursor

    assert isinstance(factory, RunFactory)
    config, run_dir = spec.config, RunDir(spec.run_dir)
    assert factory.replay.capacity_unrolls > 0  # refuses damaged meta data before training

    checkpoints = resumable_checkpoints(run_dir, on_first=lambda: run_dir.update_meta(checkpointed=True))
    checkpoints.clean()
    saved = checkpoints.newest()
    position = 0 if saved is None else saved.json["metrics_position"]
    with ExitStack() as stack:
        stack.callback(checkpoints.clean)
        writer = stack.enter_context(MetricsWriter(run_dir.path, position=position))
        listeners = list(spec.listeners)
        for mirror in open_mirrors(run_dir.path, config.mirror_names):
            stack.callback(mirror.close)
            listeners.append(mirror.write)
        yield RunContext(
            config=config,
            plan=spec.plan,
            factory=factory,
            factory_entry=spec.factory_entry,
            learner=factory.learner(spec.plan),
            intake=factory.intake(),
            cursor=PlanCursor(spec.plan, config.slots),
            recorder=Recorder(
                writer, record_every_updates=config.record_every_updates, listeners=listeners, thins=spec.plan.forever
            ),
            checkpoints=checkpoints,
            saved=saved,
            run_dir=run_dir.path,
            stop=spec.stop,
        )


def saved_checkpoints(run_dir: RunDir) -> CheckpointStore:
    """Return the checkpoints of a run, for readers."""
    from clearl.storage.checkpoints import CheckpointStore

    return CheckpointStore(run_dir.checkpoints_path, check=lambda state: check_checkpoint_spec(run_dir, state))


def resumable_checkpoints(run_dir: RunDir, *, on_first: Callable[[], None] = lambda: None) -> CheckpointStore:
    """Return the checkpoints of a run, to resume from: the rows before a checkpoint must exist."""
    from clearl.storage.checkpoints import CheckpointStore

    # If metrics end before a checkpoint's position, a run from an older checkpoint writes the missing rows again.
    def check(state: Mapping[str, Any]) -> None:
        check_checkpoint_spec(run_dir, state)
        check_position(run_dir.path, state.get("metrics_position"))

    return CheckpointStore(run_dir.checkpoints_path, check=check, on_first=on_first)


def check_checkpoint_spec(run_dir: RunDir, state: Mapping[str, Any]) -> None:
    """Reject a checkpoint of a grown network if a crash came before the growth was recorded in the meta data."""
    if "spec" in state and state["spec"] != run_dir.meta.get("spec"):
        raise CorruptFileError("it belongs to an extension of the run that was cut off")


def run_frames(config: RunConfig) -> int:
    """Return the frames that a run will train on, over all its networks; 0 if visits end by episodes."""
    suite = run_suite(config)
    return sum(plan.total_frames or 0 for plan in method_plans(config, suite.tasks))


def run_suite(config: RunConfig) -> Suite:
    """Return the suite of a new run, with the tasks of its settings, else those of its schedule."""
    if config.schedule is None or config.tasks:
        return make_suite(config.suite, config.tasks, config)
    return make_suite(config.suite, schedule_tasks(Path(config.schedule)), config)


def planned(config: RunConfig) -> list[Plan]:
    """Return the plans of a run, one for each network, without starting anything."""
    import_plugins(config.modules)
    RUNTIMES.check(config.runtime)
    return method_plans(config, run_suite(config).tasks)


def planned_remarks(config: RunConfig, out: Path, plan: Plan) -> tuple[str, list[str]]:
    """Describe the size and the store of replay that a run in `out` would have; return doubts about its settings."""
    factory = RunFactory(config, run_suite(config), out)
    return factory.plan_replay(plan)["forecast"], factory.doubts


def method_plans(config: RunConfig, tasks: Sequence[str]) -> list[Plan]:
    """Return the protocol's plans, with the frames that the method needs on top of each visit."""
    method = make_method(config)
    plans = [lengthened(plan, method.extra_frames_share) for plan in make_plans(config, tasks)]
    if method.needs_boundaries and any(not plan.has_boundaries for plan in plans):
        raise ConfigError(
            f"method {config.method} has to be told where a task ends, and protocol {config.protocol} moves from task "
            "to task without a boundary; take a method that needs none, such as clear, or protocol sequential"
        )
    return plans


def buffer_size_frames(config: RunConfig, layout: UnrollLayout, total_frames: int | None) -> int:
    """Return the frames that the replay buffer of a run holds; under a budget in bytes, those sure to fit."""
    if config.replay_budget is None:
        return config.buffer_size_frames(total_frames)
    unrolls = unrolls_within(
        config.replay_budget, layout, config.replay_store, slots=config.slots, waste_share=config.replay_waste_share
    )
    return unrolls * config.slots * layout.frames


def run_replay_bytes(config: RunConfig) -> int:
    """Return the bytes of disk that the replay of a run may take."""
    return replay_bytes(config, run_suite(config).spec, run_frames(config))


def replay_bytes(config: RunConfig, spec: TaskSpec, total_frames: int) -> int:
    """Return the bytes of disk that the replay of a run of `total_frames` on tasks of `spec` may take."""
    method = make_method(config)
    if method.replay_fraction == 0:
        return 0
    layout = UnrollLayout(spec, config.unroll_steps, make_network(config, spec, method).core_size)
    frames = buffer_size_frames(config, layout, total_frames)
    return forecast_bytes(layout, frames, waste_share=config.replay_waste_share).disk_nbytes


def make_network(config: RunConfig, spec: TaskSpec, method: Method) -> PolicyNetwork:
    """Return the network that `method` trains, with its initial weights."""
    std = StdSettings(config.action_std, config.action_std_initial, config.action_std_floor, config.action_std_ceiling)

    def build() -> PolicyNetwork:
        return build_network(
            spec, torso=config.torso, lstm=config.lstm, lstm_size=config.lstm_size, seed=derive(config.seed, "network"),
            std=std, normalise=config.normalise_observations, layer_norm=config.layer_norm,
            scale_returns=config.scale_returns,
        )  # fmt: skip

    return method.build_network(build)


def stored_network(config: RunConfig, spec: TaskSpec, *, source: str, trust: bool) -> PolicyNetwork:
    """Make the network of settings that were read from `source`, which may be untrusted.

    Modules that define its torso or method are imported only if the user names them, or with `trust`.
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
