"""Say in words how an environment's observations and actions are read: their shapes decide, and may mislead."""

from __future__ import annotations

from clearl.tasks.actions import TaskActions, describe_actions
from clearl.tasks.calls import close_env
from clearl.tasks.masks import masks_states
from clearl.tasks.observations import IMAGE_CHANNELS, ObservationPart, TaskObservations, describe_observations
from clearl.tasks.single import make_env


def describe_env(task: str) -> list[str]:
    """Return a line for each part of a task's observations, and one for its actions."""
    env = make_env(task)
    try:
        observations = TaskObservations(describe_observations(task, env.observation_space))
        actions = TaskActions(describe_actions(task, env.action_space))
        masked = ", masked by state" if actions.choices and masks_states(task, env) else ""
    finally:
        close_env(task, env)
    observed = [f"{called(part)} {part.shape}: {part_reading(part)}" for part in observations.parts]
    return [*observed, f"actions: {action_reading(actions)}{masked}"]


def called(part: ObservationPart) -> str:
    """Return the name of a part for messages: the keys that lead to it."""
    return f"observation {'/'.join(map(str, part.path))!r}" if part.path else "observation"


def part_reading(part: ObservationPart) -> str:
    """Return what a part is to the network."""
    shape = part.spec.shape
    if len(shape) == 3:
        channels = "1 channel" if shape[0] == 1 else f"{shape[0]} channels"
        return f"image, {channels}, {shape[1]} x {shape[2]} pixels"
    kind = {"one_hot": "options, one-hot", "flags": "bits"}.get(part.kind, "numbers")
    return f"vector, {shape[0]:_} {kind}"


def action_reading(actions: TaskActions) -> str:
    """Return what actions are to the network."""
    choices = [f"{' x '.join(map(str, actions.choices))} options"] if actions.choices else []
    bounded = sum(real.bounded for real in actions.reals)
    kinds = [(bounded, "within bounds"), (len(actions.reals) - bounded, "without bounds, clipped")]
    return ", ".join([*choices, *(f"{count} real number{'s' * (count > 1)} {kind}" for count, kind in kinds if count)])


def doubt(part: ObservationPart) -> tuple[str, str] | None:
    """Return what is probably misread of a part, and the remedy; None if nothing is."""
    shape, problem = part.shape, f"{called(part)} of shape {part.shape} is read as {part_reading(part)}"
    if part.kind != "box":
        return None
    if len(shape) == 3 and part.channel_axis == 2 and shape[2] not in IMAGE_CHANNELS and shape[0] < min(shape[1:]):
        return problem, "if the first axis holds the channels, move it to the end; --frame-stack stacks frames"
    if len(shape) >= 4 and part.dtype == "uint8":
        return problem, "join all axes but height and width into channels, at the end; --frame-stack stacks frames"
    if len(shape) == 2 and part.dtype == "float32":
        return problem, "if it is no picture, flatten it: --wrappers FlattenObservation"
    return None
