"""Spaces that grow, a network and unrolls of the smaller ones, and the same after growth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from clearl.growth import Growth
from clearl.nets.growth import NetworkGrowth
from clearl.nets.heads import StdSettings
from clearl.nets.network import ActorCritic, as_module, build_network
from clearl.spaces import MASK_FIELD, ActionSpec, ObservationSpec, PartDtype, PartSpec, TaskSpec, field_name
from clearl.unroll import Unroll, UnrollLayout

STEPS = 6


def part(*shape: int, dtype: PartDtype = "float32") -> PartSpec:
    return PartSpec(shape, dtype)


def spec(
    parts: PartSpec | dict[str, PartSpec], action: ActionSpec, *, stack: int = 1, masked: bool = False
) -> TaskSpec:
    named = {"": parts} if isinstance(parts, PartSpec) else parts
    return TaskSpec(ObservationSpec(named, stack, action.mask_size if masked else 0), action)


@dataclass(frozen=True)
class Case:
    """A step of growth, and the network that makes it."""

    old: TaskSpec
    new: TaskSpec
    torso: str = "auto"
    network: dict[str, Any] = field(default_factory=dict)

    def build(self, spec: TaskSpec, seed: int = 3) -> ActorCritic:
        settings = {"lstm": False, "lstm_size": 8, **self.network}
        return build_network(spec, torso=self.torso, seed=seed, **settings)

    @property
    def spaces(self) -> Growth:
        return Growth(self.old, self.new)


ONE_OF_3, ONE_OF_5 = ActionSpec.discrete(3), ActionSpec.discrete(5)
REALS_2, REALS_4 = ActionSpec((), (True, False)), ActionSpec((), (True, False, True, True))
BOTH, MORE_OF_BOTH = ActionSpec((2, 3), (True,)), ActionSpec((4, 3, 2), (True, False))
SMALL_RECORD = {"eyes": part(3, 5, 5, dtype="uint8"), "pose": part(4), "tags": part(2, dtype="bool")}
LARGE_RECORD = {
    "eyes": part(5, 6, 5, dtype="uint8"), "pose": part(6), "tags": part(3, dtype="bool"), "ears": part(2, 4, 4),
    "speed": part(2),
}  # fmt: skip
LSTM, FREE = {"lstm": True}, {"std": StdSettings("free")}

CASES = {
    "more actions": Case(spec(part(4), ONE_OF_3), spec(part(4), ONE_OF_5)),
    "longer vector": Case(spec(part(4), ONE_OF_3), spec(part(7), ONE_OF_3), network={"layer_norm": True}),
    "both, with a memory": Case(spec(part(4), ONE_OF_3), spec(part(7), ONE_OF_5), network=LSTM),
    "normalised": Case(spec(part(4), ONE_OF_3), spec(part(7), ONE_OF_5), network={"normalise": True}),
    "stacked vector": Case(spec(part(4), ONE_OF_3, stack=3), spec(part(5), ONE_OF_3, stack=3)),
    "channels": Case(spec(part(4, 10, 10, dtype="bool"), ONE_OF_3), spec(part(7, 10, 10, dtype="bool"), ONE_OF_5)),
    "stacked channels, larger": Case(
        spec(part(2, 10, 8, dtype="uint8"), ONE_OF_3, stack=2), spec(part(3, 11, 10, dtype="uint8"), ONE_OF_3, stack=2)
    ),
    "two convolutions": Case(
        spec(part(1, 36, 36, dtype="uint8"), ONE_OF_3, stack=2), spec(part(3, 44, 40, dtype="uint8"), ONE_OF_5, stack=2)
    ),
    "residual": Case(
        spec(part(1, 9, 9, dtype="uint8"), ONE_OF_3), spec(part(2, 9, 9, dtype="uint8"), ONE_OF_3), "impala_deep"
    ),
    "images as numbers": Case(spec(part(2, 4, 4), ONE_OF_3), spec(part(3, 5, 4), ONE_OF_3), "mlp"),
    "reals": Case(spec(part(4), REALS_2), spec(part(6), REALS_4), network=LSTM),
    "reals of free deviation": Case(spec(part(4), REALS_2), spec(part(4), REALS_4), network=FREE),
    "choices and reals": Case(spec(part(4), BOTH), spec(part(4), MORE_OF_BOTH), network=LSTM | FREE),
    "one choice, then several": Case(spec(part(4), ONE_OF_3), spec(part(4), ActionSpec((4, 2))), network=LSTM),
    "record": Case(spec(SMALL_RECORD, ONE_OF_3), spec(LARGE_RECORD, ONE_OF_5), "minatar", LSTM | {"normalise": True}),
    "record without images": Case(
        spec({"pose": part(4), "tags": part(2, dtype="bool")}, ONE_OF_3),
        spec({"pose": part(5), "tags": part(2, dtype="bool"), "speed": part(3)}, ONE_OF_3),
        network={"normalise": True},
    ),
    "a first part beside a vector": Case(
        spec(part(4), ONE_OF_3), spec({"": part(4), "speed": part(2)}, ONE_OF_3), network={"normalise": True}
    ),
    "masks of states": Case(spec(part(4), ONE_OF_3), spec(part(5), ONE_OF_5, masked=True)),
    "more masks of states": Case(
        spec(SMALL_RECORD, ONE_OF_3, masked=True), spec(SMALL_RECORD, ONE_OF_5, masked=True), "minatar"
    ),
}  # fmt: skip


def random_weights(network: torch.nn.Module, seed: int = 0) -> None:
    """As after some training: no zeros, statistics of observations too."""
    rng = torch.Generator().manual_seed(seed)
    for name, tensor in network.state_dict().items():
        drawn = torch.randn(tensor.shape, generator=rng, dtype=torch.float64)
        fan_in = tensor.numel() / max(1, len(tensor)) if tensor.dim() > 1 else 10
        tensor.copy_(drawn.abs() + 0.5 if "variance" in name or "count" in name else drawn / fan_in**0.5)


def grown_network(case: Case, old: ActorCritic) -> tuple[ActorCritic, NetworkGrowth]:
    """A fresh network of the larger spec that took over `old`."""
    new = case.build(case.new, seed=4)
    growth = NetworkGrowth(old, new, case.spaces)
    as_module(new).load_state_dict(growth.state(as_module(old).state_dict()))
    return new, growth


def random_unrolls(spec: TaskSpec, slots: int = 5, core_size: int = 0) -> tuple[Unroll, UnrollLayout]:
    """Unrolls of a task that has all but the last option of the first choice."""
    layout, rng = UnrollLayout(spec, STEPS, core_size), np.random.default_rng(1)
    rows = layout.empty(slots)
    for name, shape in spec.observation.parts.items():
        place = rows.frames[field_name(name)] if spec.observation.is_record else rows.frames
        place[...] = rng.integers(0, 2 if shape.dtype == "bool" else 200, place.shape)
        if shape.dtype == "float32":
            place[...] = rng.normal(size=place.shape)
    rows.mask[:] = True
    if spec.action.choices:
        rows.mask[:, spec.action.choices[0] - 1] = False
    if spec.observation.mask_size:
        rows.frames[MASK_FIELD] = rng.random(rows.frames[MASK_FIELD].shape) < 0.5
        rows.frames[MASK_FIELD][..., 0] = True
    for array in (rows.first, rows.terminated):
        array[:] = rng.random(array.shape) < 0.2
    rows.valid[:] = rng.random(rows.valid.shape) < 0.9
    for array in (rows.reward, rows.value, rows.policy, rows.last_reward, rows.core_state):
        array[...] = 0.5 * rng.normal(size=array.shape)
    for array in (rows.action, rows.last_action):
        array[...] = 0 if spec.observation.mask_size else _actions(spec.action, array.shape, rng)
    return rows, layout


def _actions(action: ActionSpec, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if action.is_discrete:
        return rng.integers(0, action.choices[0] - 1, shape)
    values = rng.normal(size=shape)
    for place, count in enumerate(action.choices):
        values[..., place] = rng.integers(0, max(1, count - 1), shape[:-1])
    return values
