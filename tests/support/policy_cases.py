"""Agents with every kind of observation, action and memory, their weights drawn at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from clearl.acting.agent import Agent
from clearl.acting.agent_tasks import AgentTask
from clearl.nets.network import ActorCritic, PolicyNetwork, build_network
from clearl.spaces import ActionSpec, ObservationSpec, PartSpec, TaskSpec, discrete_spec

VECTOR = ObservationSpec({"": PartSpec((3,), "float32")})
PARTS = {
    "eyes/left": PartSpec((3, 12, 12), "uint8"),
    "speed": PartSpec((4,), "float32"),
    "doors": PartSpec((5,), "bool"),
}
CASES: dict[str, tuple[TaskSpec, dict[str, Any]]] = {
    "vector": (discrete_spec((4,), "float32", 3), {"normalise": True, "layer_norm": True}),
    "minatar image": (discrete_spec((4, 10, 10), "uint8", 6), {}),
    "flags, stacked": (discrete_spec((2, 10, 10), "bool", 6, stack=2), {}),
    "nature, stacked": (discrete_spec((1, 84, 84), "uint8", 6, stack=4), {"torso": "nature"}),
    "impala_shallow": (discrete_spec((3, 72, 96), "uint8", 6), {"torso": "impala_shallow", "lstm": True}),
    "impala_deep": (discrete_spec((3, 16, 16), "uint8", 6), {"torso": "impala_deep"}),
    "lstm": (discrete_spec((4,), "float32", 3), {"lstm": True}),
    "state mask": (TaskSpec(ObservationSpec({"": PartSpec((3,), "float32")}, 1, 4), ActionSpec((4,))), {}),
    "box": (TaskSpec(VECTOR, ActionSpec((), (True, False))), {"lstm": True, "scale_returns": True}),
    "multi_discrete": (TaskSpec(VECTOR, ActionSpec((2, 5))), {"lstm": True}),
    "choices and reals": (TaskSpec(VECTOR, ActionSpec((2, 5), (True,))), {}),
    "dict": (TaskSpec(ObservationSpec(PARTS, stack=2), ActionSpec((4,))), {"lstm": True, "normalise": True}),
}  # fmt: skip


def make_network(spec: TaskSpec, **changes: Any) -> ActorCritic:
    settings = {"torso": "auto", "lstm": False, "lstm_size": 16, "seed": 1, **changes}
    network = build_network(spec, **settings)
    rng = torch.Generator().manual_seed(2)
    with torch.no_grad():  # heads begin near 0, where all that is wrong looks right
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=rng))
    return network


def make_agent(network: PolicyNetwork, spec: TaskSpec, reward_clip: str = "unit") -> Agent:
    mask = np.arange(spec.action.mask_size) != 1
    return Agent(network, spec, reward_clip=reward_clip, tasks={"some": AgentTask(mask, None)})
