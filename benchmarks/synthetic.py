"""Workers without environments: prepared unrolls reach a real learner through the same seams as those of a run.

`serve` trains with light workers within this process, each an object that answers at once or after a given time;
`take_in` reads the pairs of a runtime's own processes, whose workers are made by `load_factory` below. Both run the
distributed loop in real time.
"""

from __future__ import annotations

import heapq
import json
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch

from clearl.acting.evaluator import Evaluation, Evaluator
from clearl.acting.worker import Worker
from clearl.bench.work import noise
from clearl.config import RunConfig, from_yaml, to_yaml
from clearl.learning.batching import Intake
from clearl.learning.learner import Learner, UpdateStats
from clearl.methods import make_method
from clearl.nets.network import PolicyNetwork
from clearl.records.run_dir import META_FILE
from clearl.records.schema import Row
from clearl.records.writer import MetricsWriter
from clearl.replay.codec import Codec
from clearl.replay.mixing import EitherMixer
from clearl.runtimes import RUNTIMES
from clearl.runtimes.backend import Wake
from clearl.runtimes.host import StopFlag, keep_freed_memory
from clearl.runtimes.loop import run_loop
from clearl.runtimes.messages import Close, Evaluate, Evaluated, Message, Produce, Produced, Ready, Setup, Sync, Synced
from clearl.runtimes.recorder import Recorder
from clearl.runtimes.runtime import Factory, RunContext, RunSpec
from clearl.seeding import derive
from clearl.storage.checkpoints import CheckpointStore
from clearl.suites import make_suite
from clearl.tasks.plan import Plan, single
from clearl.tasks.schedule import PlanCursor
from clearl.unroll import Payload, Unroll, UnrollLayout
from clearl.wiring import make_network

FACTORY_ENTRY = "benchmarks.synthetic:load_factory"
OpenContext = Callable[[RunSpec, Factory], AbstractContextManager[RunContext]]
_WARM_UPDATES = 3
_NEVER_ENDS = 10**13


@dataclass(frozen=True)
class Served:
    """The work of the learner between its first updates and its last."""

    seconds: float
    updates: int
    pairs: int
    frames: int
    lag_updates: float
    """Mean age of the weights that acted."""
    pairs_by_worker: tuple[int, ...] = ()
    """Pairs of each worker within this process, over the whole time."""

    @property
    def updates_per_s(self) -> float:
        return self.updates / self.seconds

    @property
    def pairs_per_s(self) -> float:
        return self.pairs / self.seconds

    @property
    def frames_per_s(self) -> float:
        return self.frames / self.seconds


def serve(
    config: RunConfig, *, workers: int, seconds: float, unroll_s: Callable[[int], float] = lambda index: 0.0,
) -> Served:  # fmt: skip
    """Train on prepared unrolls for `seconds`; worker i takes `unroll_s(i)` for each of its unrolls."""
    keep_freed_memory()
    with _spec(config, seconds, open_context) as (spec, taken), spec.open() as context:
        backend = PreparedBackend(context, workers, unroll_s)
        run_loop(backend, context)
        return taken.served(config, tuple(child.produced for child in backend.children if child.setup.slots))


def take_in(runtime: str, config: RunConfig, *, seconds: float) -> Served:
    """Read pairs of a runtime's worker processes as fast as batches can be made of them; nothing is learnt."""
    with _spec(replace(config, runtime=cast(Any, runtime)), seconds, open_idle_context) as (spec, taken):
        RUNTIMES.get(runtime)(spec)
        return taken.served(config)


class PreparedBackend:
    """A place for light workers within this process; see `clearl.runtimes.backend.Backend`."""

    keep_unrolls_after_checkpoint = False

    def __init__(self, context: RunContext, workers: int, unroll_s: Callable[[int], float]) -> None:
        self.workers = workers
        self.evaluators: Sequence[tuple[str, ...]] = [context.plan.evaluate]
        self.children: list[PreparedChild] = []
        self._unroll_s, self._wakes = unroll_s, {}
        self._prepared = prepared(context.intake.codec, context.config.slots)
        self._due: list[tuple[float, int, PreparedChild]] = []
        self._asked = 0

    def take(self, wake: Wake, *, background: bool) -> PreparedChild:
        child = PreparedChild(self, self._unroll_s)
        self.children.append(child)
        self._wakes[child] = wake
        return child

    def prepare(self, *, background: bool) -> None: ...

    def unregister(self, child: PreparedChild) -> None:
        self._wakes.pop(child, None)

    def ask(self, child: PreparedChild, due_at: float) -> None:
        """Note when the child will answer; of those at the same time, the first that was asked comes first."""
        self._asked += 1
        heapq.heappush(self._due, (due_at, self._asked, child))

    def wait(self, wait_s: float) -> list[Wake]:
        now = time.monotonic()
        if wait_s and (not self._due or self._due[0][0] > now):
            time.sleep(min(wait_s, self._due[0][0] - now) if self._due else wait_s)
            now = time.monotonic()
        heard = []
        while self._due and self._due[0][0] <= now:
            child = heapq.heappop(self._due)[2]
            if child in self._wakes:
                heard.append(self._wakes[child])
        return heard

    def pairs(self, layout: UnrollLayout, slots: int, draws: int) -> _Pairs:
        return _Pairs(*self._prepared, slots)

    def weight_store(self, size: int) -> _UnreadWeights:
        return _UnreadWeights(size)


class PreparedChild:
    """A worker that always reports the same pairs, or an evaluator without episodes."""

    pid = None

    def __init__(self, backend: PreparedBackend, unroll_s: Callable[[int], float]) -> None:
        self._site, self._says = backend, []
        self._unroll_s_of, self._unroll_s, self.produced = unroll_s, 0.0, 0

    def begin(self, setup: Setup, shared: Sequence[Any]) -> None:
        self.setup, self._weight_store = setup, shared[-1]
        self._sequences = setup.sequences
        if setup.slots:
            self._unroll_s = self._unroll_s_of(int(setup.name.removeprefix("worker-")))
        self._say(Ready(setup.sequences, 0), 0.0)

    def send(self, message: Message) -> None:
        version, frames = self._weight_store.published
        if isinstance(message, Produce):
            self._sequences = tuple(sequence + 1 for sequence in self._sequences)
            self.produced += len(self.setup.slots)
            self._say(Produced(version, {}, self._sequences, {}, {}), self._unroll_s)
        elif isinstance(message, Evaluate):
            for task in self.setup.tasks:
                self._say(Evaluated(task, (0.0,), 1, "", {}, {}, version, frames, {}), 0.0)
        elif isinstance(message, Sync):
            self._say(Synced(), 0.0)
        else:
            assert isinstance(message, Close), message

    def poll(self) -> list[Message]:
        now = time.monotonic()
        heard = [message for due_at, message in self._says if due_at <= now]
        self._says = [(due_at, message) for due_at, message in self._says if due_at > now]
        return heard

    def end(self, patience_s: float = 0.0) -> int:
        return 0

    def exit_reason(self, code: int | None) -> tuple[str, bool]:
        return "ended", False

    def output(self) -> str:
        return ""

    def _say(self, message: Message, after_s: float) -> None:
        due_at = time.monotonic() + after_s
        self._says.append((due_at, message))
        self._site.ask(self, due_at)


class _Pairs:
    """The prepared unrolls, which are never written to: a hundred workers need no more memory than one."""

    def __init__(self, rows: Unroll, payloads: Sequence[Payload], slots: int) -> None:
        self.new = rows[:slots]
        self.replay = payloads[:slots]

    def close(self) -> None: ...


class _UnreadWeights:
    """A weight store that the learner writes to as always, and no worker reads."""

    def __init__(self, size: int) -> None:
        self._place, self.published = np.zeros(size, np.float32), (0, 0)

    def buffer(self) -> np.ndarray:
        return self._place

    def publish(self, version: int, frames: int) -> None:
        self.published = (version, frames)

    def close(self) -> None: ...


def prepared(codec: Codec, count: int) -> tuple[Unroll, list[bytes]]:
    """Return unrolls of noise, and packed ones that repeat one frame, which packs about as well as a game."""
    rows = noise(codec.layout, count)
    still = replace(rows, frames=np.repeat(rows.frames[:, :1], rows.frames.shape[1], axis=1))
    return rows, list(codec.encode_each(still, range(count)))


class PreparedFactory:
    """Makes workers and evaluators that have no environments; see `clearl.runtimes.runtime.Factory`."""

    draws = EitherMixer.draws

    def __init__(self, config: RunConfig) -> None:
        self._config, self.suite = config, make_suite(config.suite, config.tasks, config)
        self.layout = UnrollLayout(self.suite.spec, config.unroll_steps, self.network().core_size)
        self.codec = Codec(self.layout)

    def network(self) -> PolicyNetwork:
        return make_network(self._config, self.suite.spec, make_method(self._config))

    def worker(self, slots: Sequence[int], network: PolicyNetwork, **_: Any) -> Worker:
        return cast(Worker, _PreparedWorker(self.codec, len(slots)))

    def evaluator(self, network: PolicyNetwork, **_: Any) -> Evaluator:
        return cast(Evaluator, _NoEvaluator(self.suite))


def load_factory(config_yaml: str, run_dir: Path) -> PreparedFactory:
    """Return the factory, in any process."""
    return PreparedFactory(from_yaml(config_yaml))


class _PreparedWorker:
    """Writes its new unrolls once; after that it only hands out packed ones."""

    def __init__(self, codec: Codec, slots: int) -> None:
        self.actor, self.shards = SimpleNamespace(suite=_NO_SUITE), []
        self._rows: Unroll | None
        self._rows, self._payloads = prepared(codec, slots)

    def act(self, tasks: Sequence[str], new: Unroll) -> list[Any]:
        for name, array in ({} if self._rows is None else self._rows.named()).items():
            new.named()[name][:] = array
        self._rows = None
        return []

    def recall(self) -> Sequence[Payload]:
        return self._payloads

    def remember(self, new: Unroll) -> None: ...

    def replay_counters(self) -> dict[str, int]:
        return {}

    def close(self) -> None: ...


class _NoEvaluator:
    """Gives every task a score of 0 at once."""

    def __init__(self, suite: Any) -> None:
        self.suite = suite

    def evaluate(self, tasks: Sequence[str], index: int) -> list[Evaluation]:
        return [Evaluation(task, (0.0,), 1, "") for task in tasks]

    def close(self) -> None: ...


class _NoLearner:
    """Counts the batches and learns nothing."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    def phases(self, batch: Any, visit: Any) -> Generator[str, None, UpdateStats]:
        yield "forward"
        self._learner.updates += 1
        self._learner.frames += self._learner.batch_frames
        return UpdateStats({}, 0.0, 0.0, True)


_NO_SUITE = SimpleNamespace(name="prepared", tasks=(), spec=None)


class _Taken:
    """Listens to the rows of the run and stops it when its time is over."""

    def __init__(self, stop: StopFlag, seconds: float) -> None:
        self._stop, self._seconds = stop, seconds
        self._points: list[tuple[float, int, int]] = []
        self._lags: list[float] = []

    def __call__(self, row: Row) -> None:
        if row["kind"] != "train" or row["updates"] < _WARM_UPDATES:
            return
        self._points.append((time.monotonic(), row["updates"], row["frames"]))
        self._lags.append(row["lag_updates"])
        if self._points[-1][0] - self._points[0][0] >= self._seconds and len(self._points) > 1:
            self._stop.signal = 0

    def served(self, config: RunConfig, by_worker: tuple[int, ...] = ()) -> Served:
        (first_s, first, first_frames), (last_s, last, last_frames) = self._points[0], self._points[-1]
        return Served(
            seconds=last_s - first_s, updates=last - first, pairs=(last - first) * config.batch_unrolls,
            frames=last_frames - first_frames, lag_updates=float(np.mean(self._lags[1:])), pairs_by_worker=by_worker,
        )  # fmt: skip


@contextmanager
def _spec(config: RunConfig, seconds: float, open_run: OpenContext) -> Iterator[tuple[RunSpec, _Taken]]:
    """Make a whole run in a temporary directory, and its listener."""
    config = replace(config, frames_per_visit=_NEVER_ENDS, eval_every_frames=_NEVER_ENDS, anneal=False,
                     checkpoint_every_frames=None, record_every_updates=4)  # fmt: skip
    threads, stop = torch.get_num_threads(), StopFlag()
    taken = _Taken(stop, seconds)
    plan = Plan("prepared", (single(config.tasks[0], frames=_NEVER_ENDS),), config.tasks[:1])
    with tempfile.TemporaryDirectory(prefix="clearl-bench-") as name:
        (Path(name) / META_FILE).write_text(json.dumps({"prepared": to_yaml(config)}))
        yield RunSpec(config, plan, Path(name), open_run, FACTORY_ENTRY, None, stop, [taken]), taken
    torch.set_num_threads(threads)


@contextmanager
def open_context(spec: RunSpec, factory: Factory) -> Iterator[RunContext]:
    """Open a run on prepared unrolls in the process of its learner."""
    config = spec.config
    assert isinstance(factory, PreparedFactory)
    method = make_method(config)
    mixer = EitherMixer(method.replay_fraction, seed=derive(config.seed, "mixer"))
    with MetricsWriter(spec.run_dir, position=0) as writer:
        yield RunContext(
            config=config, plan=spec.plan, factory=factory, factory_entry=spec.factory_entry,
            learner=Learner(
                network=factory.network(), method=method, config=config,
                batch_frames=config.batch_unrolls * factory.layout.frames, total_frames=None,
            ),
            intake=Intake(
                factory.codec, config.batch_unrolls, mixer, discount=config.discount, reward_clip=config.reward_clip
            ),
            cursor=PlanCursor(spec.plan, config.slots),
            recorder=Recorder(writer, record_every_updates=config.record_every_updates, listeners=spec.listeners),
            checkpoints=CheckpointStore(spec.run_dir / "checkpoints"), saved=None, run_dir=spec.run_dir, stop=spec.stop,
        )  # fmt: skip


@contextmanager
def open_idle_context(spec: RunSpec, factory: Factory) -> Iterator[RunContext]:
    """Open the same with a learner that learns nothing."""
    with open_context(spec, factory) as context:
        yield replace(context, learner=cast(Learner, _NoLearner(context.learner)))
