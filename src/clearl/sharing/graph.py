"""The policy of an agent as one pure function of named tensors, for formats that need no clearl."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from clearl.acting.agent import Agent
from clearl.methods.progress_compress.two_columns import TwoColumns
from clearl.nets.network import PolicyNetwork, StepInput, as_module
from clearl.nets.records import RecordInput
from clearl.spaces import ActionSpec, TaskSpec

# Strangers read these texts in policy.json; docs/export.md has the same.
_OBSERVATION = (
    "the environment's observation; images are (channels, height, width); pad smaller tasks with zeros at the end of "
    "each axis"
)
_PART = (
    "one part of the environment's observation, named by its keys; images are (channels, height, width), discrete "
    "parts one-hot; pad smaller tasks with zeros at the end of each axis"
)
_MASK = (
    "actions that the task has and the state allows: one flag for each option of each choice, then one for each real "
    "number"
)
_LAST_ACTION = "the output `action` of the previous step, or the action actually taken"
_FIRST = "whether an episode begins with this step; last action, last reward and state are then ignored"
_STATE = "the output `next_state` of the previous step; zeros at the very first"
_ACTION = "the most likely action: the number of each choice, then real numbers before tanh"

_DTYPES = {"uint8": torch.uint8, "bool": torch.bool, "float32": torch.float32, "int64": torch.int64}


@dataclass(frozen=True)
class Port:
    """An input or output of the graph: a tensor [batch, *shape]."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    about: str

    def zeros(self, batch: int) -> Tensor:
        return torch.zeros(batch, *self.shape, dtype=_DTYPES[self.dtype])


class PolicyGraph(nn.Module):
    """From a dictionary of inputs to a dictionary of outputs, each [batch, ...]; as `Agent` acts when evaluated.

        outputs = graph({"observation": observation, "mask": mask})
        outputs["action"]

    Without a memory, a network takes neither the last action and reward nor a state.
    """

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        network = _alone(copy.deepcopy(agent.network))
        self._network, self._column = network, network.evaluated_columns(in_training=False)[0]
        self.network = as_module(network)
        self._spec, self._reward_clip = agent.spec, agent.reward_clip
        for part in self.network.modules():
            if isinstance(part, RecordInput):
                part.take_values()
        self.inputs = tuple(_inputs(agent.spec, network.core_size))
        self.outputs = tuple(_outputs(agent.spec.action, network))
        with torch.no_grad():
            value = self({port.name: port.zeros(1) for port in self.inputs})["value"]
        if bool(value.isnan().any()):  # the knowledge base of Progress & Compress has no value
            self.outputs = tuple(port for port in self.outputs if port.name != "value")

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        mask, head = inputs["mask"], self._network.head
        step, state = self._step(inputs)
        output = self._network.act(step, state, column=self._column)
        made = {
            "action": head.distribution(output.policy, mask).mode(),
            **{name: numbers.values for name, numbers in head.described(output.policy, mask).items()},
            "value": output.value,
            "next_state": output.state,
        }
        return {port.name: made[port.name].to(_DTYPES[port.dtype]) for port in self.outputs}

    def _step(self, inputs: dict[str, Tensor]) -> tuple[StepInput, Tensor]:
        mask = inputs["mask"]
        observation = _as_floats(inputs, self._spec)
        none = mask.new_zeros(mask.shape[0], dtype=torch.float32)
        if not self._network.core_size:
            return StepInput(observation, none, none, none), none.unsqueeze(1)[:, :0]
        last_reward = _clipped(inputs["last_reward"], self._reward_clip)
        first = inputs["first"]
        # As the stepper does it: before an episode there was neither action nor reward.
        spread = first.reshape(-1, *[1] * (inputs["last_action"].dim() - 1))
        last_action = torch.where(spread, torch.zeros_like(inputs["last_action"]), inputs["last_action"])
        return StepInput(observation, last_action, torch.where(first, 0.0, last_reward), first), inputs["state"]


def _alone(network: PolicyNetwork) -> PolicyNetwork:
    """Return the part of a network that acts: until the first compression, the active column alone."""
    if isinstance(network, TwoColumns) and not bool(network.compressed) and not bool(network.connected):
        return network.active
    return network


def _inputs(spec: TaskSpec, core_size: int) -> Iterator[Port]:
    shapes = spec.observation.shapes
    for name, part in spec.observation.parts.items():
        stack = spec.observation.stack_of(name)
        about = _OBSERVATION if not name else _PART
        stacked = f"; {stack} frames, the newest last; at the start of an episode, repeat the first frame"
        yield Port(port_name(name), part.dtype, shapes[name], about + stacked * (stack > 1))
    yield Port("mask", "bool", (spec.action.mask_size,), _MASK)
    if core_size:
        yield Port("last_action", spec.action.dtype, spec.action.shape, _LAST_ACTION)
        yield Port("last_reward", "float32", (), "the reward it brought, unclipped: the graph clips as in training")
        yield Port("first", "bool", (), _FIRST)
        yield Port("state", "float32", (core_size,), _STATE)


def _outputs(action: ActionSpec, network: PolicyNetwork) -> Iterator[Port]:
    yield Port("action", action.dtype, action.shape, _ACTION)
    policy, mask = torch.zeros(1, action.policy_size), torch.ones(1, action.mask_size, dtype=torch.bool)
    for name, numbers in network.head.described(policy, mask).items():
        yield Port(name, "float32", tuple(numbers.values.shape[1:]), numbers.about)
    yield Port("value", "float32", (), "the expected discounted return, with rewards clipped as in training")
    if network.core_size:
        yield Port("next_state", "float32", (network.core_size,), "the next step's `state`")


def port_name(part: str) -> str:
    """Return the input of a part of an observation."""
    return f"observation/{part}" if part else "observation"


def _as_floats(inputs: dict[str, Tensor], spec: TaskSpec) -> Tensor:
    """Return the observation as float32, bytes scaled to [0, 1]: as it is, or the values of all parts in one row."""
    floats = []
    for name, part in spec.observation.parts.items():
        given = inputs[port_name(name)].float()
        floats.append(given * (1 / 255) if part.dtype == "uint8" else given)
    if not spec.observation.is_record:
        return floats[0]
    return torch.cat([part.flatten(1) for part in floats], 1)


def _clipped(reward: Tensor, kind: str) -> Tensor:
    """Clip as `clearl.acting.preprocess.clip_reward` does, in torch."""
    if kind == "unit":
        return reward.clamp(-1, 1)
    if kind == "soft_asymmetric":
        squeezed = 5.0 * torch.tanh(reward / 5.0)
        return torch.where(reward < 0, 0.3 * squeezed, squeezed)
    return reward


def export_program(graph: PolicyGraph) -> torch.export.ExportedProgram:
    """Trace the graph with any number of observations at a time."""
    examples = {port.name: port.zeros(3) for port in graph.inputs}
    batch = torch.export.Dim("batch")
    free = {name: {0: batch} for name in examples}
    with torch.no_grad():
        return torch.export.export(graph, (cast(dict[str, Tensor], examples),), dynamic_shapes=(free,), strict=False)
