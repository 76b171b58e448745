"""The program of an evaluator process: whole episodes of its tasks with the weights that the learner left for it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import cast

import torch

from clearl.nets.network import PolicyNetwork
from clearl.runtimes.child import Link
from clearl.runtimes.messages import Alive, Evaluate, Evaluated, Message, Ready, Setup
from clearl.runtimes.program import Outlet, Places, heartbeat, make_parts, serve
from clearl.runtimes.timing import Stopwatch, TimedNetwork, TimedSuite
from clearl.runtimes.worker_main import SharedPlaces

_NICENESS = 5


def run(link: Link, setup: Setup, descriptors: Sequence[int]) -> None:
    """Evaluate when told to, until told to close."""
    serve(link, PROGRAM(link, setup, SharedPlaces(descriptors)))


class EvaluatorProgram:
    """See `clearl.runtimes.program.Program`."""

    def __init__(self, outlet: Outlet, setup: Setup, places: Places) -> None:
        os.nice(_NICENESS)  # training goes first
        torch.set_num_threads(1)
        self.tasks, self.watch, self.ready = setup.tasks, Stopwatch(), Ready((), 0)
        parts = make_parts(setup)
        network = parts.network()
        self.weights = places.weights(network)
        self.evaluator = parts.evaluator(cast(PolicyNetwork, TimedNetwork(network, self.watch, heartbeat(outlet))))
        building = Alive(building=True)
        self.evaluator.suite = TimedSuite(self.evaluator.suite, self.watch, lambda: outlet.send(building))

    def handle(self, message: Message) -> Iterator[Message]:
        assert isinstance(message, Evaluate), message
        version, frames = self.weights.read()
        with self.watch("copying"):
            evaluations = self.evaluator.evaluate(self.tasks, version)
        for done in evaluations:
            yield Evaluated(done.task, done.scores, done.steps, done.column, version, frames, self.watch.take())

    def close(self) -> None:
        self.evaluator.close()


PROGRAM = EvaluatorProgram
