"""What runs on the nodes of a Ray cluster: a worker or an evaluator within an actor, and the probe of a node."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import ray

from clearl import __version__
from clearl.nets.network import PolicyNetwork
from clearl.nets.weights import FlatWeights
from clearl.records.run_dir import META_FILE
from clearl.registry import load_entry
from clearl.runtimes.allocator import keep_freed_memory
from clearl.runtimes.child import describe
from clearl.runtimes.messages import Alive, Close, Message, Setup, pack, unpack
from clearl.runtimes.program import Program, make_parts
from clearl.types import Rows, UnrollLayout

Packed = tuple[Any, ...]


@dataclass(frozen=True)
class Luggage:
    """What a node needs before it can make the parts of a run."""

    meta: bytes
    """The run's `meta.json`: the run directory may be on no other disk than the driver's."""
    path: tuple[str, ...]
    """Where the driver imports modules from; those of the user may lie there."""

    @staticmethod
    def of(run_dir: Path) -> Luggage:
        return Luggage((run_dir / META_FILE).read_bytes(), tuple(os.path.abspath(entry) for entry in sys.path))

    def unpack(self, run_dir: Path) -> None:
        """Make this node's run directory, unless it is there."""
        sys.path.extend(entry for entry in self.path if entry not in sys.path)
        if not (run_dir / META_FILE).exists():
            run_dir.mkdir(parents=True, exist_ok=True)
            temporary = run_dir / f".{META_FILE}.{os.getpid()}"  # several workers may come at the same time
            temporary.write_bytes(self.meta)
            temporary.rename(run_dir / META_FILE)


@dataclass
class Carrier:
    """The actor's end of what it shares with the learner: weights come with the call, pairs leave with the answer."""

    given: tuple[int, int, np.ndarray | None] = (0, 0, None)
    new: Rows | None = None
    replay: Rows | None = None
    has_replay: np.ndarray | None = None

    def weights(self, network: PolicyNetwork) -> Carrier:
        self._flat = FlatWeights(network)
        return self

    def forget(self) -> None:
        """Another learner counts its updates from another checkpoint on."""
        self._read = -1

    def read(self) -> tuple[int, int]:
        version, frames, flat = self.given
        if version != self._read:
            assert flat is not None
            self._flat.read_from(flat.copy())  # torch takes no memory that cannot be written to
            self._read = version
        return version, frames

    def pairs(self, layout: UnrollLayout, slots: int) -> Any:
        self.new, self.replay, self.has_replay = layout.empty(slots), layout.empty(slots), np.zeros(slots, bool)
        return self

    def close(self) -> None: ...


class ChildActor:
    """Runs a program of `clearl.runtimes.program`: `begin` once for each learner, then `handle` a message at a time.

    The program outlives a learner, with its replay and its environments: the next one finds all that was acknowledged,
    and what came after the checkpoint as well.

    What the program says in the midst of work is only counted; `beats`, in a thread of its own, tells how often it
    was. An error is an answer like any other, so that Ray has nothing to say about it.
    """

    def __init__(self) -> None:
        keep_freed_memory()
        self._beats, self._building = 0, True
        self._carrier = Carrier()
        self._program: Program | None = None
        self._failure: Packed | None = None

    def begin(self, setup: Packed, luggage: Luggage) -> tuple[list[Packed], str, int]:
        """Be what `setup` says, or still be it; the answer, and where it happens: the node and the process."""
        node, pid = ray.get_runtime_context().get_node_id(), os.getpid()
        try:
            if self._program is None:
                wanted = unpack(setup)
                assert isinstance(wanted, Setup)
                luggage.unpack(Path(wanted.run_dir))
                self._program = load_entry(f"{wanted.program}:PROGRAM")(self, wanted, self._carrier)
        except Exception as error:  # noqa: BLE001 - whatever it is, the learner must hear of it
            return [pack(describe(error))], node, pid
        assert self._program is not None
        self._carrier.forget()
        return [self._failure or pack(self._program.ready)], node, pid

    def handle(self, message: Packed, version: int, frames: int, weights: np.ndarray | None) -> tuple[Any, ...]:
        """Do as told; the answers, and the pairs where there are any."""
        assert self._program is not None
        told, carrier = unpack(message), self._carrier
        if isinstance(told, Close):
            self._program.close()
            return [], None
        carrier.given = (version, frames, weights)
        try:
            answers = [pack(answer) for answer in self._program.handle(told)]
        except Exception as error:  # noqa: BLE001 - as above
            self._failure = pack(describe(error))
            return [self._failure], None
        finally:
            carrier.given = (version, frames, None)
        with_pairs = weights is not None and carrier.new is not None
        return answers, (carrier.new, carrier.replay, carrier.has_replay) if with_pairs else None

    def send(self, message: Message) -> None:
        """As the program's outlet."""
        self._beats, self._building = self._beats + 1, isinstance(message, Alive) and message.building

    @ray.method(concurrency_group="watch")
    def beats(self) -> tuple[int, bool]:
        """How often the program gave a sign of life, and whether it was building environments at the last."""
        return self._beats, self._building


def versions() -> dict[str, str]:
    """What has to be the same on every node."""
    python = ".".join(map(str, sys.version_info[:2]))
    return {"clearl": __version__, "python": python, **{name: metadata.version(name) for name in ("torch", "numpy")}}


def probe(setup: Packed, luggage: Luggage) -> tuple[dict[str, str], str, list[int]]:
    """Of this node: its versions, why a worker cannot run here ("" if it can), and the slots whose replay it holds."""
    found, wanted = versions(), unpack(setup)
    assert isinstance(wanted, Setup)
    run_dir = Path(wanted.run_dir)
    slots = [int(path.name.removeprefix("slot-")) for path in run_dir.glob("replay/slot-*")]
    try:
        luggage.unpack(run_dir)
        parts = make_parts(wanted)
        suite = parts.evaluator(parts.network()).suite
        suite.make(wanted.tasks[0], num_envs=1, seed=0).close()  # some packages are not missed before
    except Exception as error:  # noqa: BLE001 - the reason is the answer
        return found, describe(error).problem, slots
    return found, "", slots
