"""Two columns of Progress & Compress: a knowledge base, and an active column that it feeds through adaptors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from clearl.errors import ConfigError
from clearl.growth import Growth
from clearl.nets.growth import Places, below, column_places, corner_places
from clearl.nets.heads import Head
from clearl.nets.network import ActorCritic, StepInput, StepOutput, initialise
from clearl.nets.stages import Dense
from clearl.nets.torsos import Torso
from clearl.seeding import derive

ACTIVE, KNOWLEDGE_BASE = "active", "knowledge_base"
_COMPRESSED, _COMPRESSING = 1, 2
"""Values of `TwoColumns.compressed`, which is 0 until something was compressed: before this moment, and now."""


class Adaptor(nn.Module):
    """gate * U relu(V h + c): the input of the knowledge base to one layer of the active column.

    V halves the width, as the adaptors of progressive networks do; U has the geometry of the layer that it joins.
    """

    def __init__(self, in_shape: tuple[int, ...], narrow: int, lift: nn.Module, out_size: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(in_shape[0], narrow, 1) if len(in_shape) == 3 else nn.Linear(in_shape[0], narrow)
        self.lift = lift
        self.gate = nn.Parameter(torch.empty(out_size))

    def forward(self, knowledge: Tensor) -> Tensor:
        lifted = self.lift(self.project(knowledge).relu())
        return lifted * (self.gate.view(-1, 1, 1) if lifted.dim() == 4 else self.gate)


class Knowledge(NamedTuple):
    """The knowledge base's activations for some inputs."""

    activations: list[Tensor]
    """The output of every stage of its torso, [T*B, ...]."""
    features: Tensor
    """The inputs of its heads, [T, B, feature_size]."""
    state: Tensor
    """Its own part of the recurrent state."""


class TwoColumns(nn.Module):
    """Acts and learns with the active column; evaluates the knowledge base once something was compressed into it."""

    connected: Tensor
    compressed: Tensor

    def __init__(self, active: ActorCritic, knowledge_base: ActorCritic, *, seed: int) -> None:
        super().__init__()
        self.active, self.knowledge_base, self.seed = active, knowledge_base, seed
        with torch.random.fork_rng(devices=[]):  # `initialise` replaces what constructors draw
            self.adaptors = nn.ModuleList(_torso_adaptors(active))
            self.policy_adaptor = _head_adaptor(active.feature_size, active.policy)
            self.value_adaptor = _head_adaptor(active.feature_size, active.value)
        # In the state dict, so that they travel with the weights and stand in checkpoints.
        self.register_buffer("connected", torch.zeros(()))
        self.register_buffer("compressed", torch.zeros(()))
        self.core_size = active.core_size + knowledge_base.core_size
        knowledge_base.initialise(derive(seed, "knowledge base"))
        self._initialise_adaptors(derive(seed, "adaptors"))
        self.train_column(ACTIVE)

    def observe(self, observation: Tensor) -> None:
        """Take in the statistics of more observations, in both columns alike."""
        self.active.observe(observation)
        self.knowledge_base.observe(observation)

    def numbers(self, observation: Tensor) -> Tensor:
        return self.active.numbers(observation)

    def observe_returns(self, returns: Tensor) -> None:
        """Take in more discounted returns, in both columns alike."""
        self.active.observe_returns(returns)
        self.knowledge_base.observe_returns(returns)

    def return_scale(self) -> Tensor:
        return self.active.return_scale()

    @property
    def head(self) -> Head:
        """The active column's head; both columns have equal ones."""
        return self.active.head

    def train_column(self, column: str) -> None:
        """Give gradients to the parameters of `column` only; the adaptors belong to the active column."""
        for name, part in self.named_children():
            part.requires_grad_((name == "knowledge_base") == (column == KNOWLEDGE_BASE))
        if column == KNOWLEDGE_BASE:
            self.compressed.fill_(_COMPRESSING)
        elif bool(self.compressed):
            self.compressed.fill_(_COMPRESSED)

    def restart_active(self, visit: int) -> None:
        """Initialise the active column and its adaptors anew, for another task."""
        self.active.initialise(derive(self.seed, "active", visit))
        self._initialise_adaptors(derive(self.seed, "adaptors", visit))

    def connect(self) -> None:
        """Switch the adaptors on: before the first compression the knowledge base holds nothing."""
        self.connected.fill_(1)

    def act(self, inputs: StepInput, state: Tensor, *, column: str = "act") -> StepOutput:
        steps = inputs.map(lambda part: part.unsqueeze(0))
        knowing = column == KNOWLEDGE_BASE or (column == "evaluate" and bool(self.compressed))
        output = (self._unroll_knowledge_base if knowing else self.unroll)(steps, state)
        return self.active.unscaled(StepOutput(output.policy[0], output.value[0], output.state))

    def unroll(self, inputs: StepInput, state: Tensor) -> StepOutput:
        """Unroll the active column; no gradient reaches the knowledge base."""
        prepared = _torso(self.active).prepare(inputs.observation.flatten(0, 1))
        # Without a recurrent core the knowledge base has no state to update, and until it is connected it has no
        # effect.
        if not bool(self.connected) and not self.core_size:
            return self._active(prepared, inputs, state, None)
        with torch.no_grad():
            knowledge = self._know(prepared, inputs, self.knowledge_state(state))
        return self._active(prepared, inputs, state, knowledge)

    def unroll_both(self, inputs: StepInput, state: Tensor) -> tuple[StepOutput, StepOutput]:
        """Unroll the active column without gradients, and the knowledge base with them."""
        prepared = _torso(self.active).prepare(inputs.observation.flatten(0, 1))
        knowledge = self._know(prepared, inputs, self.knowledge_state(state))
        with torch.no_grad():
            active = self._active(prepared, inputs, state, knowledge)
        return active, self._answer(knowledge, active.state)

    def evaluated_columns(self, *, in_training: bool) -> tuple[str, ...]:
        """Return both columns for a task in training, the one being trained first; the knowledge base for another."""
        if not bool(self.compressed):
            return (ACTIVE,)
        if not in_training:
            return (KNOWLEDGE_BASE,)
        return (KNOWLEDGE_BASE, ACTIVE) if int(self.compressed) == _COMPRESSING else (ACTIVE, KNOWLEDGE_BASE)

    def knowledge_state(self, state: Tensor) -> Tensor:
        """Return the knowledge base's part of a recurrent state [B, core_size]."""
        return state[:, self.active.core_size :]

    def grown_places(self, larger: TwoColumns, spaces: Growth) -> Iterator[tuple[str, Places]]:
        """Return the places of the parameters of both columns and of the adaptors in a larger network."""
        for column in (ACTIVE, KNOWLEDGE_BASE):
            yield from below(column, column_places(getattr(self, column), getattr(larger, column), spaces))
        rows = self.head.places_in(spaces).raw
        yield from below("policy_adaptor", iter([("lift.weight", (rows,)), ("gate", (rows,))]))
        chains = _torso(self.active).chain, _torso(larger.active).chain
        for index, (before, after) in enumerate(zip(*(chain[:-1] for chain in chains), strict=False)):
            if isinstance(chains[0][index + 1], Dense):  # it is fed from every place of the image before it
                narrow = max(1, before.out_shape[0] // 2)
                shapes = (narrow, *before.out_shape[1:]), (narrow, *after.out_shape[1:])
                yield f"adaptors.{index}.lift.1.weight", (None, corner_places(*shapes))

    def _unroll_knowledge_base(self, inputs: StepInput, state: Tensor) -> StepOutput:
        prepared = _torso(self.knowledge_base).prepare(inputs.observation.flatten(0, 1))
        knowledge = self._know(prepared, inputs, self.knowledge_state(state))
        unused = state[:, : self.active.core_size]
        return self._answer(knowledge, torch.cat([unused, knowledge.state], 1))

    def _know(self, prepared: Tensor, inputs: StepInput, state: Tensor) -> Knowledge:
        activations = _torso(self.knowledge_base).activations(prepared)
        return Knowledge(activations, *self.knowledge_base.remember(activations[-1], inputs, state))

    def _answer(self, knowledge: Knowledge, state: Tensor) -> StepOutput:
        policy = self.knowledge_base.head.policy(self.knowledge_base.policy(knowledge.features).float())
        # Only the policy is compressed. The value head is never trained, so its output must not be used.
        return StepOutput(policy, torch.full_like(policy[..., 0], torch.nan), state)

    def _active(self, prepared: Tensor, inputs: StepInput, state: Tensor, knowledge: Knowledge | None) -> StepOutput:
        laterals: list[Tensor | None] = [None] * len(_torso(self.active).stages)
        joined = knowledge if bool(self.connected) else None
        if joined is not None:
            outputs = zip(self.adaptors, joined.activations[:-1], strict=True)
            laterals = [None, *(adaptor(output) for adaptor, output in outputs)]
        features = _torso(self.active).activations(prepared, laterals)[-1]
        features, end = self.active.remember(features, inputs, state[:, : self.active.core_size])
        raw, value = self.active.policy(features), self.active.value(features)
        if joined is not None:
            raw = raw + self.policy_adaptor(joined.features)
            value = value + self.value_adaptor(joined.features)
        if knowledge is not None:
            end = torch.cat([end, knowledge.state], 1)
        return StepOutput(self.active.head.policy(raw.float()), value.squeeze(-1).float(), end)

    def _initialise_adaptors(self, seed: int) -> None:
        for index, adaptor in enumerate(part for part in self.modules() if isinstance(part, Adaptor)):
            generator = initialise(adaptor, derive(seed, index))
            nn.init.uniform_(adaptor.gate, 0.0, 0.1, generator=generator)  # Schwarz 2018


def _torso(column: ActorCritic) -> Torso:
    if not isinstance(column.torso, Torso):
        raise ConfigError("Progress & Compress joins the stages of two torsos: register a function that gives a list")
    return column.torso


def _torso_adaptors(column: ActorCritic) -> list[Adaptor]:
    """Build an adaptor into every stage but the first, whose input is that of the knowledge base."""
    adaptors = []
    for before, stage in pairwise(_torso(column).chain):
        narrow = max(1, before.out_shape[0] // 2)
        adaptors.append(Adaptor(before.out_shape, narrow, stage.lateral(narrow), stage.out_shape[0]))
    return adaptors


def _head_adaptor(feature_size: int, head: nn.Linear) -> Adaptor:
    narrow = max(1, feature_size // 2)
    return Adaptor((feature_size,), narrow, nn.Linear(narrow, head.out_features, bias=False), head.out_features)
