"""Hosted programs and learners, called directly without a transport."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from clearl.records.run_dir import META_FILE
from clearl.runtimes.cluster.driver import HostedLearner
from clearl.runtimes.cluster.hosted import HostedProgram, RunBundle, probe_node, versions
from clearl.runtimes.messages import Alive, Close, Failed, Message, Produce, Ready, Setup, Sync, Synced, pack, unpack
from clearl.spaces import discrete_spec
from clearl.unroll import UnrollLayout

LAYOUT = UnrollLayout(discrete_spec((2,), "float32", 3), unroll_steps=4)
PRODUCE = Produce(("t",))


class FakeProgram:
    """Fails at every `Sync`; otherwise says which weights it acts with."""

    made = 0

    def __init__(self, sink: Any, setup: Setup, endpoints: Any) -> None:
        if setup.name == "impossible":
            raise ValueError("cannot be made")
        type(self).made += 1
        self.ready, self.sink, self.closed = Ready((1, 2), 0), sink, False
        self.network: Any = nn.Linear(1, 1)
        self.weights, self.pairs = endpoints.weights(self.network), endpoints.pairs(LAYOUT, 2, 1)

    def handle(self, message: Message) -> Iterator[Message]:
        self.sink.send(Alive(building=True))
        if isinstance(message, Sync):
            raise RuntimeError("the disk is full")
        self.pairs.new.reward[:] = self.weights.read()[0]
        self.pairs.put_replay([memoryview(b"packed"), None])
        self.sink.send(Alive(building=False))
        yield Synced()

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def bundle(tmp_path: Path) -> RunBundle:
    affinity = tmp_path / "driver"
    affinity.mkdir()
    (affinity / META_FILE).write_text("{}")
    return RunBundle.of(affinity)


def begin(child: HostedProgram, bundle: RunBundle, run_dir: Path, name: str = "worker-0") -> list[Message]:
    setup = Setup(name, f"{__name__}:FakeProgram", "", "", str(run_dir), 0)
    answers, pairs, (node, pid) = child.begin(pack(setup), bundle)  # pyright: ignore[reportGeneralTypeIssues]
    assert (pairs, node, pid) == (None, "", os.getpid())
    return [unpack(answer) for answer in answers]


def told(child: HostedProgram, message: Message, version: int = 0, weights: Any = None) -> tuple[list[Message], Any]:
    answers, pairs, _ = child.handle(pack(message), version, 0, weights)
    return [unpack(answer) for answer in answers], pairs


def test_a_child_is_made_once_and_begins_anew_with_each_learner(bundle: RunBundle, tmp_path: Path) -> None:
    child, before = HostedProgram(), FakeProgram.made
    for learner in (1, 2):  # the second goes on from a checkpoint: the same number of updates, other weights
        assert begin(child, bundle, tmp_path / "there") == [Ready((1, 2), 0)]
        answers, (new, replay) = told(child, PRODUCE, 5, np.full(2, learner, np.float32))
        assert answers == [Synced()] and (new.reward == 5).all()
        assert replay == [b"packed", None] and isinstance(replay[0], bytes)  # a view could not travel
        program: Any = child._program
        assert program.network.bias.item() == learner
    assert FakeProgram.made == before + 1
    assert (tmp_path / "there" / META_FILE).read_text() == "{}"
    assert child.beats() == (4, False)
    assert told(child, Close()) == ([], None) and program.closed


def test_errors_are_answers_and_a_child_that_failed_stays_so(bundle: RunBundle, tmp_path: Path) -> None:
    (failed,) = begin(HostedProgram(), bundle, tmp_path, "impossible")
    assert isinstance(failed, Failed) and failed.problem == "cannot be made"
    child = HostedProgram()
    begin(child, bundle, tmp_path)
    ((failed,), pairs) = told(child, Sync())
    assert isinstance(failed, Failed) and failed.problem == "the disk is full" and pairs is None
    assert begin(child, bundle, tmp_path) == [failed], "the next learner must not take it for sound"


def test_pairs_leave_only_with_an_answer_to_weights(bundle: RunBundle, tmp_path: Path) -> None:
    child = HostedProgram()
    begin(child, bundle, tmp_path)
    told(child, PRODUCE, 1, np.zeros(2, np.float32))
    assert told(child, PRODUCE, 1)[1] is None


def test_a_bundle_leaves_a_run_directory_that_is_there_alone(bundle: RunBundle, tmp_path: Path) -> None:
    (tmp_path / META_FILE).write_text("mine")
    bundle.unpack(tmp_path)
    assert (tmp_path / META_FILE).read_text() == "mine"


def test_a_machine_with_other_versions_says_so_before_it_reads_what_another_version_sent(bundle: RunBundle) -> None:
    problem, slots = probe_node(("Unknown",), bundle, {**versions(), "torch": "0.1"})
    assert problem.startswith("has torch ") and "(here 0.1): install the same versions" in problem and slots == []


def test_a_learner_waits_for_the_answer_to_its_question_and_hears_of_a_stop() -> None:
    learner, answers = HostedLearner(), list[Any]()
    assert learner.poll(None) is None
    asking = threading.Thread(target=lambda: answers.extend(learner._ask(question) for question in ("one", "two")))
    asking.start()
    assert learner.poll(None) == "one" and not answers
    assert learner.poll(None, "first") == "two" and answers == ["first"]
    assert not learner._stop
    assert learner.poll(15, None) is None
    asking.join(5)
    assert answers == ["first", None] and learner._stop.signal == 15
