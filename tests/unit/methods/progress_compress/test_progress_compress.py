"""Progress & Compress: the right column moves in each phase, and the right thing is distilled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.learning.learner import Learner
from clearl.methods import make_method
from clearl.methods.baseline import Baseline
from clearl.methods.clear import Clear
from clearl.methods.method import Wrapper
from clearl.methods.progress_compress import ProgressCompress
from clearl.methods.progress_compress.two_columns import KNOWLEDGE_BASE, TwoColumns
from clearl.nets.heads.categorical import MaskedCategorical
from clearl.nets.network import StepInput, as_module, build_network
from clearl.spaces import discrete_spec
from clearl.types import Visit

SPEC = discrete_spec((4,), "float32", 3)
BATCH_FRAMES, VISIT_UPDATES = 30, 8
"""With a quarter of the visit to compress, updates 6 and 7 of each visit compress."""


def a_learner(method, *, lstm: bool = False, **settings) -> Learner:
    config = RunConfig(torso="mlp", **settings)
    network = method.build_network(lambda: build_network(SPEC, torso="mlp", lstm=lstm, lstm_size=8, seed=1))
    return Learner(network=network, method=method, config=config, batch_frames=BATCH_FRAMES, total_frames=None)


def a_visit(update: int) -> Visit:
    index, frames = update // VISIT_UPDATES, VISIT_UPDATES * BATCH_FRAMES
    return Visit(index, ("ab"[index % 2],), update * BATCH_FRAMES, index * frames, (index + 1) * frames)


def train(learner: Learner, a_batch, updates: range) -> None:
    for update in updates:
        batch = a_batch(SPEC, core_size=learner.network.core_size, seed=update)
        learner.update(batch, a_visit(update) if learner.method.needs_boundaries else None)


def snapshot(learner: Learner) -> dict[str, torch.Tensor]:
    columns = learner.network
    assert isinstance(columns, TwoColumns)
    return {name: p.detach().clone() for name, p in columns.named_parameters()}


def changed(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    """Return the parts that moved: "active", "knowledge_base" or one of the adaptors."""
    return {name.split(".")[0] for name, tensor in before.items() if not torch.equal(tensor, after[name])}


ADAPTORS = {"adaptors", "policy_adaptor", "value_adaptor"}


@pytest.mark.parametrize("base", [Clear(), Baseline()], ids=["clear", "baseline"])
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_in_each_phase_exactly_the_right_column_moves(base: Clear, optimizer: str, a_batch) -> None:
    learner = a_learner(ProgressCompress(base, fisher_batches=3), optimizer=optimizer)
    moved = []
    for update in range(2 * VISIT_UPDATES):
        before = snapshot(learner)
        train(learner, a_batch, range(update, update + 1))
        moved.append(changed(before, snapshot(learner)))
    assert moved[:6] == [{"active"}] * 6
    assert moved[6:8] == [{"knowledge_base"}] * 2
    assert moved[8:14] == [{"active"} | ADAPTORS] * 6
    assert moved[14:] == [{"knowledge_base"}] * 2


def test_the_first_task_is_learnt_as_the_base_learns_it(a_batch) -> None:
    base, wrapped = a_learner(Clear()), a_learner(ProgressCompress(Clear()))
    for learner in (base, wrapped):
        train(learner, a_batch, range(6))
    assert isinstance(wrapped.network, TwoColumns)
    for ours, theirs in zip(wrapped.network.active.parameters(), base.parameters, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("reset_active", [True, False])
def test_the_active_column_is_renewed_for_the_next_task(reset_active: bool, a_batch) -> None:
    learner = a_learner(ProgressCompress(Clear(), reset_active=reset_active))
    train(learner, a_batch, range(VISIT_UPDATES))
    train(learner, a_batch, range(VISIT_UPDATES, VISIT_UPDATES + 1))
    fresh = a_learner(ProgressCompress(Clear(), reset_active=reset_active))
    assert isinstance(learner.network, TwoColumns) and isinstance(fresh.network, TwoColumns)
    assert bool(learner.network.connected)
    fresh.network.restart_active(visit=1)
    differing = changed(snapshot(learner), snapshot(fresh)) - {KNOWLEDGE_BASE}
    assert differing == (set() if reset_active else {"active"} | ADAPTORS)


@pytest.mark.parametrize("reset_active", [True, False])
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_a_new_active_column_has_new_moments_and_the_knowledge_base_keeps_its_own(
    reset_active: bool, optimizer: str, a_batch
) -> None:
    learner = a_learner(ProgressCompress(Clear(), reset_active=reset_active), optimizer=optimizer)
    train(learner, a_batch, range(VISIT_UPDATES + 1))
    names = [name for name, _ in as_module(learner.network).named_parameters()]
    with_moments = {names[int(key.partition("/")[0])].split(".")[0] for key in learner.optimizer.tensors()}
    kept = {KNOWLEDGE_BASE} if reset_active else {KNOWLEDGE_BASE, "active"} | ADAPTORS
    assert with_moments == kept
    train(learner, a_batch, range(VISIT_UPDATES + 1, VISIT_UPDATES + 3))
    steps = {names[int(k.partition("/")[0])]: int(t) for k, t in learner.optimizer.tensors().items() if "/step" in k}
    if optimizer == "adam":
        assert steps["active.policy.weight"] == (2 if reset_active else 9)
        assert steps["knowledge_base.policy.weight"] == 2


@pytest.mark.parametrize("lstm", [False, True])
@pytest.mark.parametrize("updates", [5, 7, 12, 15])
def test_restored_in_either_phase_it_goes_on_bit_for_bit(updates: int, lstm: bool, a_batch) -> None:
    one, two = (
        a_learner(ProgressCompress(Clear(), fisher_batches=3, fisher_steps=4, seed=1), lstm=lstm) for _ in range(2)
    )
    train(one, a_batch, range(updates))
    two.restore({name: tensor.clone() for name, tensor in one.tensors().items()}, one.state())
    assert one.method.weights() == two.method.weights()
    for learner in (one, two):
        train(learner, a_batch, range(updates, 2 * VISIT_UPDATES + 2))
    assert one.state() == two.state()
    assert one.tensors().keys() == two.tensors().keys()
    for name, tensor in one.tensors().items():
        assert torch.equal(tensor, two.tensors()[name]), name


def compressing(method: ProgressCompress, network: TwoColumns) -> None:
    method.visit(network, a_visit(VISIT_UPDATES - 1))
    assert method.compressing


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_distillation_is_the_divergence_from_the_active_column(temperature: float, a_batch) -> None:
    method = ProgressCompress(Clear(), temperature=temperature)
    network = method.build_network(lambda: build_network(SPEC, torso="mlp", lstm=False, lstm_size=0, seed=1))
    assert isinstance(network, TwoColumns)
    with torch.no_grad():
        network.active.policy.weight.mul_(300)
        network.knowledge_base.policy.weight.mul_(300)
    compressing(method, network)
    batch = a_batch(SPEC)
    losses = method.losses(network, batch)
    inputs = StepInput(batch.observation, batch.last_action, batch.last_reward, batch.first)
    with torch.no_grad():
        active = network.active.unroll(inputs, batch.core_state)
        knowledge = network.knowledge_base.unroll(inputs, batch.core_state)
    total = 0.0
    for t in range(5):
        for b in range(6):
            if batch.valid[t, b]:
                p = (active.policy[t, b, :2] / temperature).softmax(0)
                q = (knowledge.policy[t, b, :2] / temperature).softmax(0)
                total += temperature**2 * float((p * (p / q).log()).sum())
    assert total > 0.1
    assert losses["distillation"].item() == pytest.approx(total, rel=1e-4)
    assert losses.keys() == method.weights().keys()


@pytest.mark.parametrize("lstm", [False, True])
def test_compression_makes_the_knowledge_base_act_like_the_active_column(lstm: bool, a_batch) -> None:
    method = ProgressCompress(Clear())
    learner = a_learner(method, lstm=lstm, learning_rate=3e-3)
    network = learner.network
    assert isinstance(network, TwoColumns)
    with torch.no_grad():
        network.active.policy.weight.mul_(300)
    batch = a_batch(SPEC, core_size=network.core_size)
    losses = [learner.update(batch, a_visit(VISIT_UPDATES - 1)).loss for _ in range(150)]
    assert losses[-1]["distillation"] < 0.03 * losses[0]["distillation"]
    inputs = StepInput(batch.observation, batch.last_action, batch.last_reward, batch.first)
    active, knowledge = network.unroll_both(inputs, batch.core_state)
    gap = MaskedCategorical(active.policy, batch.mask).probs - MaskedCategorical(knowledge.policy, batch.mask).probs
    assert gap[:-1][batch.valid].abs().max() < 0.15


def test_the_knowledge_base_is_held_by_its_own_fisher(a_batch) -> None:
    learner = a_learner(ProgressCompress(Clear(), fisher_batches=3))
    train(learner, a_batch, range(VISIT_UPDATES))
    assert isinstance(learner.network, TwoColumns)
    end = {name: p.detach().clone() for name, p in learner.network.knowledge_base.named_parameters()}
    train(learner, a_batch, range(VISIT_UPDATES, VISIT_UPDATES + 1))
    tensors = learner.method.tensors()
    anchor = {n.rsplit("/", 1)[-1]: t for n, t in tensors.items() if n.startswith("ewc/anchors/anchor/")}
    fisher = {n.rsplit("/", 1)[-1]: t for n, t in tensors.items() if n.startswith("ewc/anchors/fisher/")}
    assert anchor.keys() == end.keys() == fisher.keys()
    assert all(torch.equal(anchor[name], tensor) for name, tensor in end.items())
    assert not fisher["value.weight"].any() and not fisher["value.bias"].any()
    assert fisher["policy.weight"].any()
    assert torch.cat([part.flatten() for part in fisher.values()]).mean().item() == pytest.approx(1.0)


def test_on_top_of_a_visit_exactly_its_extra_frames_compress() -> None:
    config = RunConfig(method="progress-compress", frames_per_visit=500)
    method = make_method(config)
    assert isinstance(method, ProgressCompress) and method.extra_frames_share == 1.0, "as its authors did"
    network = method.build_network(lambda: build_network(SPEC, torso="mlp", lstm=False, lstm_size=0, seed=1))
    for frames, expected in ((1000, False), (1499, False), (1500, True), (1999, True)):
        method.visit(network, Visit(2, ("a",), frames, 1000, 2000, extra_frames=500))
        assert method.compressing == expected
    shares = [
        make_method(replace(config, compress_frames=250)).extra_frames_share,
        make_method(replace(config, method="progress-compress+clear")).extra_frames_share,
        make_method(replace(config, compress_frames=250, compress_on_top=False)).extra_frames_share,
        make_method(replace(config, method="online-ewc")).extra_frames_share,
    ]
    assert shares == [0.5, 1.0, 0.0, 0.0]


def test_phases_begin_at_their_frames() -> None:
    visit = Visit(2, ("a",), 0, 1000, 2000)
    for frames, given, expected in ((1749, None, False), (1750, None, True), (1899, 100, False), (1900, 100, True)):
        method = ProgressCompress(Clear(), compress_frames=given)
        network = method.build_network(lambda: build_network(SPEC, torso="mlp", lstm=False, lstm_size=0, seed=1))
        method.visit(network, Visit(visit.index, visit.tasks, frames, visit.start_frames, visit.end_frames))
        assert method.compressing == expected
        assert network.evaluated_columns(in_training=False) == ("knowledge_base" if expected else "active",)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"compress_frames": 0}, "compress_frames"),
        ({"temperature": 0.0}, "compress_temperature"),
        ({"gamma": 1.5}, "ewc_gamma"),
        ({"lam": float("nan")}, "lambda"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        ProgressCompress(Clear(), **settings)


def test_visits_and_bases_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="replay_fraction below 1"):
        ProgressCompress(Clear(replay_fraction=1.0))
    method = ProgressCompress(Clear(), compress_frames=500)
    network = method.build_network(lambda: build_network(SPEC, torso="mlp", lstm=False, lstm_size=0, seed=1))
    with pytest.raises(ConfigError, match="frames_per_visit"):
        method.visit(network, Visit(0, ("a",), 0, 0, None))
    with pytest.raises(ConfigError, match="leave frames"):
        method.visit(network, Visit(0, ("a",), 0, 0, 500))
    with pytest.raises(ConfigError, match="both add the loss term"):
        ProgressCompress(ProgressCompress(Clear()))
    with pytest.raises(ConfigError, match="innermost wrapper"):
        ProgressCompress(Wrapper(Clear()))
