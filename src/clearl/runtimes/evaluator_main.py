"""The program of the evaluator process: whole episodes of every task with the weights that the learner left for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import cast

import torch

from clearl.nets.network import PolicyNetwork
from clearl.runtimes.child import Link
from clearl.runtimes.messages import Alive, Close, Evaluate, Evaluated, Ready, Setup
from clearl.runtimes.timing import Stopwatch, TimedNetwork, TimedSuite
from clearl.runtimes.worker_main import WeightReader, heartbeat, make_parts

_NICENESS = 5


def run(link: Link, setup: Setup, descriptors: Sequence[int]) -> None:
    """Evaluate when told to, until told to close."""
    os.nice(_NICENESS)  # training goes first
    torch.set_num_threads(1)
    parts, watch = make_parts(setup), Stopwatch()
    network = parts.network()
    weights = WeightReader(network, descriptors[0])
    evaluator = parts.evaluator(cast(PolicyNetwork, TimedNetwork(network, watch, heartbeat(link))))
    evaluator.suite = TimedSuite(evaluator.suite, watch, lambda: link.send(Alive(building=True)))
    try:
        link.send(Ready((), 0))
        while True:
            with watch("waiting"):
                message = link.receive()
            if isinstance(message, Close):
                return
            assert isinstance(message, Evaluate), message
            version, frames = weights.read()
            for task in setup.tasks:
                with watch("copying"):
                    done = evaluator.evaluate(task, version)
                link.send(Evaluated(task, done.scores, done.steps, done.column, version, frames, watch.take()))
    finally:
        evaluator.close()
