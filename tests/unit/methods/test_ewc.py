"""EWC and online EWC: the penalty by hand, the recursion by hand, and nothing else than the penalty."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.learning.learner import Learner
from clearl.methods import make_method
from clearl.methods.anchors import OnlineAnchor, TaskAnchors
from clearl.methods.clear import Clear
from clearl.methods.ewc import Ewc, OnlineEwc
from clearl.nets.network import as_module, build_network
from clearl.spaces import discrete_spec
from clearl.types import Visit

SPEC = discrete_spec((4,), "float32", 3)
BATCH_FRAMES = 30


class TwoWeights(nn.Module):
    def __init__(self, first: float, second: float) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor([first, second]))


def named(first: float, second: float) -> dict[str, torch.Tensor]:
    return {"theta": torch.tensor([first, second])}


def test_penalty_and_gradient_by_hand_on_two_weights() -> None:
    anchors = TaskAnchors()
    anchors.add("a", anchor=named(1.0, 2.0), fisher=named(3.0, 0.0))
    anchors.add("b", anchor=named(-1.0, 0.5), fisher=named(1.0, 2.0))
    penalty, module = anchors.penalty(), TwoWeights(2.0, 1.0)
    assert penalty is not None
    value = penalty(module)
    # 1/2 [3 (2-1)^2 + 0 (1-2)^2 + 1 (2+1)^2 + 2 (1-0.5)^2] = 1/2 [3 + 0 + 9 + 0.5]
    assert value.item() == pytest.approx(6.25)
    value.backward()
    # 3 (2-1) + 1 (2+1), 0 + 2 (1-0.5)
    assert module.theta.grad is not None and module.theta.grad.tolist() == pytest.approx([6.0, 1.0])


def test_penalty_is_exact_next_to_its_anchor() -> None:
    anchors = TaskAnchors()
    anchors.add("a", anchor=named(1000.0, -7.0), fisher=named(1e4, 1e-12))
    penalty = anchors.penalty()
    assert penalty is not None and penalty(TwoWeights(1000.0, -7.0)).item() == 0.0
    assert penalty(TwoWeights(1000.0 + 2**-10, -7.0)).item() == pytest.approx(0.5e4 * 2**-20)


def test_a_task_that_returns_updates_its_own_anchor() -> None:
    anchors = TaskAnchors()
    anchors.add("a", anchor=named(1.0, 2.0), fisher=named(3.0, 1.0))
    anchors.add("b", anchor=named(-1.0, 0.5), fisher=named(1.0, 2.0))
    anchors.add("a", anchor=named(0.0, 0.0), fisher=named(2.0, 2.0))
    assert anchors.state() == {"tasks": ["a", "b"]}
    penalty = anchors.penalty()
    # 1/2 [2 (1-0)^2 + 2 (1-0)^2 + 1 (1+1)^2 + 2 (1-0.5)^2]
    assert penalty is not None and penalty(TwoWeights(1.0, 1.0)).item() == pytest.approx(0.5 * (2 + 2 + 4 + 0.5))


def test_online_recursion_by_hand_over_three_tasks() -> None:
    online, gamma = OnlineAnchor(0.5), 0.5
    for task, anchor, fisher in (
        ("a", named(1.0, 1.0), named(1.0, 3.0)),  # scaled to a mean of 1: 0.5, 1.5
        ("b", named(2.0, 0.0), named(0.0, 1000.0)),  # 0, 2
        ("c", named(3.0, -1.0), named(0.001, 0.0)),  # 2, 0
    ):
        online.add(task, anchor, fisher)
    # F* = 0.25 [0.5, 1.5] + 0.5 [0, 2] + [2, 0]
    torch.testing.assert_close(online.tensors()["fisher/theta"], torch.tensor([2.125, 1.375]))
    penalty = online.penalty()
    # 1/2 gamma F* (theta - theta*)^2 with the last anchor only
    expected = 0.5 * gamma * (2.125 * (1.0 - 3.0) ** 2 + 1.375 * (1.0 + 1.0) ** 2)
    assert penalty is not None and penalty(TwoWeights(1.0, 1.0)).item() == pytest.approx(expected)


@pytest.mark.parametrize("size", [10, 10_000])
def test_a_lambda_holds_a_parameter_as_firmly_in_a_large_network_as_in_a_small_one(size: int) -> None:
    online = OnlineAnchor(1.0)
    online.add("a", {"theta": torch.zeros(size)}, {"theta": torch.full((size,), 1e-6)})
    penalty = online.penalty()
    assert penalty is not None
    torch.testing.assert_close(penalty.importance["theta"], torch.ones(size))


def test_the_anchor_of_the_task_that_is_on_can_be_left_out() -> None:
    anchors, module = TaskAnchors(omit_current=True), TwoWeights(2.0, 1.0)
    anchors.enter("a")
    anchors.add("a", anchor=named(1.0, 2.0), fisher=named(3.0, 0.0))
    anchors.enter("b")
    anchors.add("b", anchor=named(-1.0, 0.5), fisher=named(1.0, 2.0))
    values = {}
    for task in "abc":
        anchors.enter(task)
        penalty = anchors.penalty()
        assert penalty is not None
        values[task] = penalty(module).item()
    # a alone: 1/2 3 (2-1)^2; b alone: 1/2 [(2+1)^2 + 2 (1-0.5)^2]
    assert values == pytest.approx({"b": 1.5, "a": 4.75, "c": 6.25})
    restored = TaskAnchors(omit_current=True)
    restored.restore(anchors.tensors(), anchors.state())
    restored.enter("b")
    penalty = restored.penalty()
    assert penalty is not None and penalty(module).item() == pytest.approx(1.5)


def test_alone_its_own_anchor_holds_a_task_only_where_it_is_not_left_out() -> None:
    for omit in (False, True):
        anchors = TaskAnchors(omit_current=omit)
        anchors.add("a", anchor=named(1.0, 2.0), fisher=named(3.0, 0.0))
        anchors.enter("a")
        assert (anchors.penalty() is None) == omit


def test_a_policy_without_a_fisher_is_not_held() -> None:
    online = OnlineAnchor(0.9)
    online.add("a", named(1.0, 1.0), named(0.0, 0.0))
    penalty = online.penalty()
    assert penalty is not None and penalty(TwoWeights(5.0, 5.0)).item() == 0.0


def a_learner(method, **settings) -> Learner:
    config = RunConfig(torso="mlp", **settings)
    network = method.build_network(lambda: build_network(SPEC, torso="mlp", lstm=False, lstm_size=8, seed=1))
    return Learner(network=network, method=method, config=config, batch_frames=BATCH_FRAMES, total_frames=None)


def train(learner: Learner, a_batch, updates: range, *, visit_updates: int = 4) -> None:
    """`visit_updates` updates a visit, on tasks a, b, a, b, ..."""
    for update in updates:
        index, frames = update // visit_updates, visit_updates * BATCH_FRAMES
        visit = Visit(index, ("ab"[index % 2],), update * BATCH_FRAMES, index * frames, (index + 1) * frames)
        batch = a_batch(SPEC, seed=update)
        learner.update(batch, visit if learner.method.needs_boundaries else None)


METHODS = {"ewc": Ewc, "online-ewc": OnlineEwc}


@pytest.mark.parametrize("wrap", METHODS.values(), ids=METHODS)
def test_lambda_zero_equals_the_base_bit_for_bit(wrap, a_batch) -> None:
    base, wrapped = a_learner(Clear()), a_learner(wrap(Clear(), lam=0.0, fisher_batches=2))
    held = a_learner(wrap(Clear(), lam=100.0, fisher_batches=2))
    for learner in (base, wrapped, held):
        train(learner, a_batch, range(12))
    assert all(torch.equal(a, b) for a, b in zip(base.parameters, wrapped.parameters, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(base.parameters, held.parameters, strict=True))


@pytest.mark.parametrize("wrap", METHODS.values(), ids=METHODS)
def test_restored_in_the_middle_of_a_visit_it_goes_on_bit_for_bit(wrap, a_batch) -> None:
    one, two = (a_learner(wrap(Clear(), fisher_batches=3, fisher_steps=4)) for _ in range(2))
    train(one, a_batch, range(10))
    two.restore({name: tensor.clone() for name, tensor in one.tensors().items()}, one.state())
    for learner in (one, two):
        train(learner, a_batch, range(10, 18))
    assert one.state() == two.state()
    assert one.tensors().keys() == two.tensors().keys()
    for name, tensor in one.tensors().items():
        assert torch.equal(tensor, two.tensors()[name]), name


@pytest.mark.parametrize("wrap", METHODS.values(), ids=METHODS)
def test_the_penalty_begins_with_the_second_visit_and_stays(wrap, a_batch) -> None:
    learner = a_learner(wrap(Clear(), fisher_batches=2))
    penalties = []
    for update in range(12):
        train(learner, a_batch, range(update, update + 1))
        with torch.no_grad():
            penalties.append(float(learner.method.losses(learner.network, a_batch(SPEC))["ewc"]))
    assert penalties[:4] == [0.0] * 4
    assert all(penalty > 0 for penalty in penalties[4:])


@pytest.mark.parametrize("wrap", METHODS.values(), ids=METHODS)
def test_the_penaltys_share_of_the_gradient_is_reported(wrap, a_batch) -> None:
    learner = a_learner(wrap(Clear(), lam=10.0, fisher_batches=2))
    train(learner, a_batch, range(4))
    assert learner.method.diagnostics() == {}
    for update in (4, 5, 6):
        train(learner, a_batch, range(update, update + 1))
    first = learner.method.diagnostics()["ewc_gradient_ratio"]
    assert first == 0.0, "the visit begins at the anchor"
    train(learner, a_batch, range(7, 9))
    # The first update of the third visit, by hand: the gradients of the terms apart, at the parameters before it.
    twin = a_learner(wrap(Clear(), lam=10.0, fisher_batches=2))
    train(twin, a_batch, range(8))
    index, frames = 2, 4 * BATCH_FRAMES
    twin.method.visit(twin.network, Visit(index, ("a",), index * frames, index * frames, (index + 1) * frames))
    losses = twin.method.losses(twin.network, a_batch(SPEC, seed=8))
    norms = {}
    for kind in ("ewc", "rest"):
        terms = [twin.method.weights()[n] * loss for n, loss in losses.items() if (n == "ewc") == (kind == "ewc")]
        grads = torch.autograd.grad(torch.stack(terms).sum(), twin.parameters, retain_graph=True)
        norms[kind] = torch.nn.utils.get_total_norm(grads).item()
    assert learner.method.diagnostics()["ewc_gradient_ratio"] == pytest.approx(norms["ewc"] / norms["rest"], rel=1e-4)


def test_a_config_leaves_out_the_anchor_of_the_task_that_is_on(a_batch) -> None:
    penalties = {}
    for omit in (False, True):
        learner = a_learner(make_method(RunConfig(method="ewc", ewc_omit_current=omit, fisher_batches=2)))
        train(learner, a_batch, range(9))  # a, b, and a again
        penalties[omit] = learner.method.losses(learner.network, a_batch(SPEC))["ewc"].item()
    assert 0 < penalties[True] < penalties[False]


def test_a_large_lambda_holds_what_the_policy_rests_on(a_batch) -> None:
    """The parameters that the Fisher calls important move less, and the others are free."""
    moved = {}
    for lam in (0.0, 1e5):
        learner = a_learner(Ewc(Clear(entropy_weight=0.0), lam=lam, fisher_batches=4), learning_rate=1e-3)
        train(learner, a_batch, range(5))
        anchor, fisher = (
            {name.rsplit("/", 1)[-1]: t for name, t in learner.method.tensors().items() if f"/0/{kind}/" in name}
            for kind in ("anchor", "fisher")
        )
        train(learner, a_batch, range(5, 8))
        now = as_module(learner.network).state_dict()
        moved[lam] = sum(float((fisher[n] * (now[n] - anchor[n]).square()).sum()) for n in anchor)
        assert not fisher["value.weight"].any()
    assert moved[1e5] < 0.2 * moved[0.0]


def test_the_fisher_is_from_the_finished_task(a_batch) -> None:
    """Each task lights one input of its own: the weights of the other task's input do not matter to it."""
    learner = a_learner(Ewc(Clear(), fisher_batches=10))
    for update in range(9):
        batch, index = a_batch(SPEC, seed=update), update // 4
        batch.observation[:] = 0
        batch.observation[..., index % 2] = 1
        learner.update(batch, Visit(index, ("ab"[index % 2],), update * 30, index * 120, (index + 1) * 120))
    tensors = learner.method.tensors()
    for i, lit in ((0, 0), (1, 1)):
        by_input = tensors[f"ewc/anchors/{i}/fisher/torso.stages.0.linear.weight"].sum(0)
        assert by_input[lit] > 0
        assert not by_input[torch.arange(4) != lit].any()


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="lambda"):
        Ewc(Clear(), lam=-1.0)
    with pytest.raises(ConfigError, match="ewc_gamma"):
        OnlineEwc(Clear(), gamma=0.0)
    with pytest.raises(ConfigError, match="replay_fraction below 1"):
        Ewc(Clear(replay_fraction=1.0))
