"""The program of a process that does one stage of training and nothing else, repeatedly, on request. It reads its task
on stdin (one JSON line), reports that it is ready, and answers each number of seconds on stdin with the work done in
them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from clearl.acting.preprocess import as_tensor, observe
from clearl.config import RunConfig, from_yaml
from clearl.learning.batching import make_batch
from clearl.learning.learner import Learner
from clearl.methods import make_method
from clearl.nets.network import PolicyNetwork, StepInput
from clearl.nets.weights import FlatWeights
from clearl.runtimes.host import cores
from clearl.runtimes.timing import Stopwatch
from clearl.seeding import generator
from clearl.spaces import MASK_FIELD, field_name
from clearl.suites import make_suite
from clearl.tasks.suite import Suite
from clearl.types import Batch
from clearl.unroll import Unroll, UnrollLayout
from clearl.wiring import make_network

_WARM_UP = 3
_MATMUL_SIZE = 1536


@dataclass(frozen=True)
class Work:
    """Do one piece of work; return how many frames (or operations) it was."""

    once: Callable[[], int]
    flops_per_frame: float = 0.0
    watch: Stopwatch | None = None


def environment(config: RunConfig, processes: int) -> Work:
    """Step this process's share of the slots with random actions, one unroll of each task in turn."""
    suite = make_suite(config.suite, config.tasks, config)
    count, rng = max(1, config.slots // processes), generator(config.seed, "bench")
    played = []
    for task in suite.tasks:
        envs = suite.make(task, num_envs=count, seed=config.seed)
        envs.reset()
        played.append(
            (envs, _random_actions(suite, task, (config.unroll_steps, count), rng, config.action_std_initial))
        )

    def once() -> int:
        for envs, actions in played:
            for step_actions in actions:
                envs.step(step_actions)
        return len(played) * config.unroll_steps * count * suite.spec.frames_per_step

    return Work(once)


def _random_actions(
    suite: Suite, task: str, shape: tuple[int, int], rng: np.random.Generator, std: float
) -> np.ndarray:
    """Draw single choices, or real numbers before squashing, as the network does before its first update.

    A robot that moves as little as its untrained policy takes a tenth longer to simulate than one that leaps about.
    """
    action, mask = suite.spec.action, suite.mask(task)
    if action.is_discrete:
        return rng.choice(np.flatnonzero(mask), shape)
    assert not action.choices, "workloads have single choices or real numbers"
    return rng.standard_normal((*shape, action.reals), np.float32) * np.float32(std)


def inference(config: RunConfig, processes: int) -> Work:
    """Run the network on one observation of each of this process's slots."""
    torch.set_num_threads(1)
    spec = make_suite(config.suite, config.tasks, config).spec
    network = make_network(config, spec, make_method(config))
    FlatWeights(network).read_from(_flat(network))  # as in a worker
    count, stack = max(1, config.slots // processes), spec.observation.stack
    rows = noise(UnrollLayout(spec, stack, network.core_size), count)
    observation = observe(rows.frames[:, :stack], rows.first[:, :stack], spec.observation)[:, 0]
    inputs = StepInput(
        as_tensor(observation), torch.from_numpy(rows.last_action), torch.zeros(count),
        torch.zeros(count, dtype=torch.bool),
    )  # fmt: skip
    state = torch.zeros(count, network.core_size)

    @torch.inference_mode()
    def once() -> int:
        for _ in range(config.unroll_steps):
            network.act(inputs, state)
        return config.unroll_steps * count * spec.frames_per_step

    return Work(once)


def learner(config: RunConfig, processes: int) -> Work:
    """Make one optimiser step on a batch of noise, half of it replay, with all cores as threads."""
    torch.set_num_threads(cores())
    spec = make_suite(config.suite, config.tasks, config).spec
    method = make_method(config)
    network = make_network(config, spec, method)
    layout = UnrollLayout(spec, config.unroll_steps, network.core_size)
    frames = config.batch_unrolls * layout.frames
    trained = Learner(network=network, method=method, config=config, batch_frames=frames, total_frames=None)
    batch = noise_batch(layout, config)
    watch = Stopwatch()

    def once() -> int:
        phases, phase = trained.phases(batch, None), "learner"
        while phase is not None:
            with watch(phase):
                phase = next(phases, None)
        return frames

    return Work(once, _flops(once) / frames, watch)


def matmul(config: RunConfig, processes: int) -> Work:
    """Multiply matrices of a size that no cache holds: the peak that a learner could reach. Counts operations."""
    torch.set_num_threads(cores())
    left, right = torch.rand(_MATMUL_SIZE, _MATMUL_SIZE), torch.rand(_MATMUL_SIZE, _MATMUL_SIZE)
    result = torch.empty(_MATMUL_SIZE, _MATMUL_SIZE)

    def once() -> int:
        torch.mm(left, right, out=result)
        return 2 * _MATMUL_SIZE**3

    return Work(once)


STAGES = {"environment": environment, "inference": inference, "learner": learner, "matmul": matmul}


def noise(layout: UnrollLayout, count: int) -> Unroll:
    """Make unrolls of noise in the shapes of experience."""
    rng, rows = generator(0, "noise"), layout.empty(count)
    observation = layout.spec.observation
    for name, part in observation.parts.items():
        frames = rows.frames[field_name(name)] if observation.is_record else rows.frames
        high = {"bool": 2, "uint8": 256}.get(part.dtype)
        frames[:] = rng.random(frames.shape) if high is None else rng.integers(0, high, frames.shape)
    if observation.mask_size:
        rows.frames[MASK_FIELD] = True
    rows.first[:] = rng.random(rows.first.shape) < 0.02
    action = layout.spec.action
    choices = [rng.integers(0, count, rows.reward.shape) for count in action.choices]
    reals = [rng.standard_normal(rows.reward.shape) for _ in action.bounded]
    rows.action[:] = np.stack([*choices, *reals], -1).reshape(rows.action.shape)
    for array in (rows.reward, rows.policy, rows.value):
        array[:] = rng.standard_normal(array.shape)
    rows.valid[:] = rows.mask[:] = True
    return rows


def noise_batch(layout: UnrollLayout, config: RunConfig) -> Batch:
    """Return a batch of noise, half of it replay; with pairs both as much of it as `replay_ratio` says, on top."""
    is_replay = np.arange(config.batch_unrolls) % 2 == 0
    if config.pairs == "both":
        on_top = round((config.replay_ratio or 1.0) * config.batch_unrolls)
        is_replay = np.arange(config.batch_unrolls + on_top) >= config.batch_unrolls
    rows = noise(layout, len(is_replay))
    return make_batch(rows, is_replay, layout, config.discount, config.reward_clip)


def _flat(network: PolicyNetwork) -> np.ndarray:
    weights = FlatWeights(network)
    vector = np.zeros(weights.size, np.float32)
    weights.write_to(vector)
    return vector


def _flops(once: Callable[[], int]) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        once()
    return counter.get_total_flops()


def main() -> None:
    """Serve the parent until it closes stdin."""
    # Environments print what they like: the answers go through a channel of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    task = json.loads(sys.stdin.readline())
    work = STAGES[task["stage"]](from_yaml(task["config"]), task["processes"])
    for _ in range(_WARM_UP):
        work.once()
    answers.write(json.dumps({"flops_per_frame": work.flops_per_frame}) + "\n")
    for line in sys.stdin:
        answers.write(json.dumps(_answer(work, float(line))) + "\n")


def _answer(work: Work, seconds: float) -> dict[str, object]:
    if work.watch is not None:
        work.watch.take()
    done, started, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - started < seconds:
        done += work.once()
    spent = time.perf_counter() - started
    split = {} if work.watch is None else work.watch.take()
    return {"frames": done, "seconds": spent, "cpu_seconds": time.process_time() - cpu, "split": split}


if __name__ == "__main__":
    main()
