"""The far side of remote calls: the objects in the processes of workers and evaluators."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clearl import __version__
from clearl.config import to_yaml
from clearl.nets.network import PolicyNetwork
from clearl.nets.weights import FlatWeights
from clearl.records.run_dir import META_FILE
from clearl.registry import load_entry
from clearl.runtimes.host import BACKGROUND_NICENESS, keep_freed_memory
from clearl.runtimes.local.guard import guarded
from clearl.runtimes.messages import Alive, Close, Message, Setup, describe, pack, unpack
from clearl.runtimes.programs import Program, make_factory
from clearl.unroll import Payload, UnrollLayout

if TYPE_CHECKING:  # it names the parts of the learner, which these processes need not import
    from clearl.runtimes.runtime import RunSpec

Packed = tuple[Any, ...]
Answer = tuple[list[Packed], Packed | None, tuple[str, int] | None]
"""Messages; pairs, where there are any; (node, process) in the answer to `begin`."""


@dataclass(frozen=True)
class RunBundle:
    """The files and paths that a machine needs before it can make the parts of a run."""

    meta: bytes
    """The run's `meta.json`: the run directory may be on no other disk than the driver's."""
    path: tuple[str, ...]
    """The driver's `sys.path`: modules of the user's own may lie there."""

    @staticmethod
    def of(run_dir: Path) -> RunBundle:
        return RunBundle((run_dir / META_FILE).read_bytes(), tuple(os.path.abspath(entry) for entry in sys.path))

    def unpack(self, run_dir: Path) -> None:
        """Make this machine's run directory, unless it is there."""
        sys.path.extend(entry for entry in self.path if entry not in sys.path)
        if not (run_dir / META_FILE).exists():
            run_dir.mkdir(parents=True, exist_ok=True)
            temporary = run_dir / f".{META_FILE}.{os.getpid()}"  # several workers may come at the same time
            temporary.write_bytes(self.meta)
            temporary.rename(run_dir / META_FILE)


class CallWeights:
    """Weights that arrive with a call; see `clearl.runtimes.backend.WeightSource`."""

    def __init__(self, network: PolicyNetwork) -> None:
        self._flat, self._version = FlatWeights(network), -1
        self.given: tuple[int, int, np.ndarray | None] = (0, 0, None)

    def forget(self) -> None:
        """Read the next weights in any case: another learner counts its updates from another checkpoint."""
        self._version = -1

    def read(self) -> tuple[int, int]:
        version, frames, flat = self.given
        if version != self._version:
            assert flat is not None
            self._flat.read_from(flat.copy())  # torch takes no memory that cannot be written to
            self._version = version
        return version, frames


class CallPairs:
    """Pairs that leave with the answer to a call; see `clearl.runtimes.backend.PairWriter`."""

    def __init__(self, layout: UnrollLayout, slots: int) -> None:
        self.new, self.sequences = layout.empty(slots), np.zeros(slots, np.int64)
        self.replay: Sequence[Payload | None] = ()

    def put_replay(self, payloads: Sequence[Payload | None]) -> None:
        self.replay = [None if payload is None else bytes(payload) for payload in payloads]


@dataclass
class CallEndpoints:
    """Makes and keeps the objects that a program shares with the learner; an evaluator has no pairs."""

    source: CallWeights | None = None
    writer: CallPairs | None = None

    def weights(self, network: PolicyNetwork) -> CallWeights:
        self.source = CallWeights(network)
        return self.source

    def pairs(self, layout: UnrollLayout, slots: int, draws: int) -> CallPairs:
        self.writer = CallPairs(layout, slots)
        return self.writer


class HostedProgram:
    """Runs a program of `clearl.runtimes.programs`: `begin` once for each learner, then `handle` a message at a time.

    The program outlives a learner, with its replay and its environments: the next one finds all that was acknowledged,
    and what came after the checkpoint as well. Messages that the program sends while it works are only counted;
    `beats`, called in a thread of its own, returns the count. An error is returned as an answer, so that the transport
    never raises it.
    """

    def __init__(self) -> None:
        keep_freed_memory()
        self._beats, self._building = 0, True
        self._endpoints = CallEndpoints()
        self._program: Program | None = None
        self._failure: Packed | None = None

    def begin(self, setup: Packed, bundle: RunBundle) -> Answer:
        """Build the program that `setup` describes, unless it is already running."""
        return [self._begin(setup, bundle)], None, (self.place(), os.getpid())

    def place(self) -> str:
        """Return the node of this process, where the transport knows one."""
        return ""

    def _begin(self, setup: Packed, bundle: RunBundle) -> Packed:
        try:
            if self._program is None:
                request = unpack(setup)
                assert isinstance(request, Setup)
                bundle.unpack(Path(request.run_dir))
                self._program = load_entry(request.program)(self, request, self._endpoints)
        except Exception as error:  # noqa: BLE001 - the learner gets a report of any error
            return pack(describe(error))
        assert self._program is not None
        if self._endpoints.source is not None:
            self._endpoints.source.forget()
        return self._failure or pack(self._program.ready)

    def handle(self, message: Packed, version: int, frames: int, weights: np.ndarray | None) -> Answer:
        """Handle a message; return the answers, and the pairs where there are any."""
        assert self._program is not None
        request, source, writer = unpack(message), self._endpoints.source, self._endpoints.writer
        if isinstance(request, Close):
            self._program.close()
            return [], None, None
        if source is not None:
            source.given = (version, frames, weights)
        try:
            answers = [pack(answer) for answer in self._program.handle(request)]
        except Exception as error:  # noqa: BLE001 - as above
            self._failure = pack(describe(error))
            return [self._failure], None, None
        finally:
            if source is not None:
                source.given = (version, frames, None)
        pairs = (writer.new, writer.replay) if writer is not None and weights is not None else None
        return answers, pairs, None

    def send(self, message: Message) -> None:
        """Count a message of the program, as its `MessageSink`."""
        self._beats, self._building = self._beats + 1, isinstance(message, Alive) and message.building

    def beats(self) -> tuple[int, bool]:
        """Return the number of heartbeats, and whether the program was building environments at the last."""
        return self._beats, self._building


class RayProgram(HostedProgram):
    """A hosted program that knows its node; here and not beside the learner, which workers need not import."""

    def __init__(self, *, background: bool) -> None:
        super().__init__()
        if background:
            os.nice(BACKGROUND_NICENESS)
        self._guard = guarded()
        self._guard.__enter__()  # for the life of the process: it ends by a kill

    def place(self) -> str:
        import ray  # a process of a cluster has it; other transports may not

        return ray.get_runtime_context().get_node_id()


def versions() -> dict[str, str]:
    """Return the versions that must be the same on every machine of a run."""
    python = ".".join(map(str, sys.version_info[:2]))
    return {"clearl": __version__, "python": python, **{name: metadata.version(name) for name in ("torch", "numpy")}}


def probe_request(spec: RunSpec) -> Packed:
    """Pack what `probe_node` needs to know about a run."""
    return pack(Setup("", "", spec.factory_entry, to_yaml(spec.config), str(spec.run_dir.absolute()), 0,
                      tasks=spec.plan.evaluate))  # fmt: skip


def probe_node(probe_request: Packed, bundle: RunBundle, ours: Mapping[str, str]) -> tuple[str, list[int]]:
    """Return what keeps a worker from running on this machine ("" if nothing), and the slots whose replay it holds."""
    theirs = versions()
    others = [f"{name} {theirs[name]} (here {version})" for name, version in ours.items() if theirs[name] != version]
    if others:
        return f"has {', '.join(others)}: install the same versions everywhere", []
    request = unpack(probe_request)  # only now: another version may have other messages
    assert isinstance(request, Setup)
    run_dir = Path(request.run_dir)
    slots = [int(path.name.removeprefix("slot-")) for path in run_dir.glob("replay/slot-*")]
    try:
        bundle.unpack(run_dir)
        factory = make_factory(request)
        suite = factory.evaluator(factory.network()).suite
        suite.make(request.tasks[0], num_envs=1, seed=0).close()  # some packages are imported no earlier than here
    except Exception as error:  # noqa: BLE001 - the reason is the answer
        return f"cannot run a worker: {describe(error).problem}", slots
    return "", slots


def replay_nodes(held: Mapping[str, set[int]], shares: Sequence[Sequence[int]]) -> dict[str, str]:
    """Return the machine that holds most of each worker's replay; none where all see the same disk."""
    found = {}
    for index, slots in enumerate(shares):
        counts = sorted((len(held[node] & set(slots)), node) for node in held)
        if counts[-1][0] > (counts[-2][0] if len(counts) > 1 else 0):
            found[f"worker-{index}"] = counts[-1][1]
    return found
