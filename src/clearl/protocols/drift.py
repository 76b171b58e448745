"""One network in an environment that changes gradually: tasks are values of a parameter, in order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.protocols.visits import is_forever, planned_cycles, visits_frames
from clearl.seeding import generator
from clearl.tasks.plan import Plan, Segment, single


def drift(tasks: Sequence[str], config: RunConfig) -> list[Plan]:
    """Plan a path through the tasks, in equal segments from each to the next, as long in total as `sequential`.

    `drift_shape` selects the path. linear: from the first to the last, and back in the next cycle. periodic: there and
    back in each cycle. random-walk: to a random neighbour, drawn from the seed. steps: from the first to the last, but
    in jumps instead of gradually. All values are evaluated throughout.
    """
    if len(tasks) < 2:
        raise ConfigError("protocol drift needs two tasks or more, or a range such as gym:CartPole-v1?length=0.5..2.0")
    order = _way(list(tasks), config)
    if config.drift_shape == "steps":
        segments = [single(task, frames=visits_frames(config)) for task in order]
    else:
        total = visits_frames(config, len(tasks) * planned_cycles(config))
        ends = [round(total * (i + 1) / (len(order) - 1)) for i in range(len(order) - 1)]
        lengths = [end - start for start, end in pairwise([0, *ends])]
        segments = [
            Segment((here, there), (1.0, 0.0), frames=frames, end_weights=(0.0, 1.0))
            for (here, there), frames in zip(pairwise(order), lengths, strict=True)
        ]
    return [Plan("drift", tuple(segments), evaluate=tuple(tasks), forever=is_forever(config))]


def _way(tasks: list[str], config: RunConfig) -> list[str]:
    cycles, last = planned_cycles(config), len(tasks) - 1
    if config.drift_shape == "steps":
        return tasks * cycles
    there_and_back = [*tasks, *tasks[-2:0:-1]]
    if config.drift_shape == "periodic":
        return [*there_and_back * cycles, tasks[0]]
    if config.drift_shape == "linear":
        # A path without an end must return to its start.
        return [*there_and_back, tasks[0]] if is_forever(config) else _repeated(tasks, cycles)
    rng, place, way = generator(config.seed, "drift"), 0, [tasks[0]]
    for _ in range(last * cycles):
        place = min(last, max(0, place + (1 if rng.random() < 0.5 else -1))) if 0 < place < last else abs(place - 1)
        way.append(tasks[place])
    return way


def _repeated(tasks: list[str], cycles: int) -> list[str]:
    """Repeat the path from the first to the last, backwards in every second cycle: the parameter never jumps."""
    way = list(tasks)
    for number in range(1, cycles):
        way += tasks[-2::-1] if number % 2 else tasks[1:]
    return way
