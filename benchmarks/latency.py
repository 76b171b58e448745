"""Measure the time of `agent.act` for one observation and for a batch, with an exported agent.

    python -m benchmarks.latency [--calls 2000] [--json FILE]

Prints the median and the 99th percentile over the calls, after a warm-up. Torch computes with one thread in `act`,
whatever it is told elsewhere.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from clearl.acting.agent import Agent
from clearl.acting.agent_tasks import agent_tasks
from clearl.config import RunConfig
from clearl.nets.network import build_network
from clearl.suites import make_suite

CASES = {
    "CartPole, mlp": RunConfig(suite="gym:CartPole-v1", torso="mlp"),
    "MinAtar's Breakout, minatar": RunConfig(suite="minatar", tasks=("breakout",), torso="minatar"),
    "MinAtar's Breakout, minatar and LSTM": RunConfig(suite="minatar", tasks=("breakout",), torso="minatar", lstm=True),
    "84x84 grey image, impala_shallow": RunConfig(suite="atari", tasks=("pong",), torso="impala_shallow"),
}
BATCH = 64
_WARM = 50


def agent_of(config: RunConfig) -> Agent:
    """Return an agent with the network that a run of these settings begins with."""
    suite = make_suite(config.suite, config.tasks, config)
    network = build_network(
        suite.spec, torso=config.torso, lstm=config.lstm, lstm_size=config.lstm_size, seed=config.seed
    )
    return Agent(network, suite.spec, reward_clip=config.reward_clip, tasks=agent_tasks(suite))


def an_observation(agent: Agent) -> np.ndarray:
    """Return an observation that the only task of the agent may show."""
    (task,) = agent.tasks.values()
    spec = agent.spec.observation
    shape = spec.frame_shape if task.observations is None else task.observations.parts[0].shape
    return np.random.default_rng(0).random(shape).round().astype(spec.frame_dtype)


def seconds(agent: Agent, observation: np.ndarray, calls: int) -> Iterator[float]:
    """Return the seconds of each call."""
    agent.reset()
    for call in range(_WARM + calls):
        started = time.perf_counter()
        agent.act(observation)
        if call >= _WARM:
            yield time.perf_counter() - started


def measure(calls: int) -> list[dict[str, object]]:
    """Measure every case with one observation and with a batch, in microseconds."""
    rows = []
    for name, config in CASES.items():
        agent = agent_of(config)
        one = an_observation(agent)
        for count, given in ((1, one), (BATCH, np.stack([one] * BATCH))):
            spent = 1e6 * np.array(list(seconds(agent, given, calls if count == 1 else calls // 10)))
            median, late = np.median(spent), np.percentile(spent, 99)
            rows.append({"case": name, "observations": count, "median_us": float(median), "p99_us": float(late)})
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = measure(arguments.calls)
    for row in rows:
        print(f"{row['case']:<40}{row['observations']:>4}{row['median_us']:>10.0f} us{row['p99_us']:>10.0f} us (99 %)")
    if arguments.json:
        arguments.json.write_text(json.dumps({"v": 1, "figures": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
