"""EWC and online EWC: the penalty by hand, the recursion by hand, and nothing else than the penalty."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.learning.learner import Learner
from clearl.methods.anchors import OnlineAnchor, TaskAnchors
from clearl.methods.clear import Clear
from clearl.methods.ewc import Ewc, OnlineEwc
from clearl.nets.network import as_module, build_network
from clearl.types import EnvSpec, Visit

SPEC = EnvSpec((4,), "float32", 3)
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
        ("a", named(1.0, 1.0), named(3.0, 4.0)),  # normalised: 0.6, 0.8
        ("b", named(2.0, 0.0), named(0.0, 1000.0)),  # 0, 1
        ("c", named(3.0, -1.0), named(0.001, 0.0)),  # 1, 0
    ):
        online.add(task, anchor, fisher)
    # F* = 0.25 [0.6, 0.8] + 0.5 [0, 1] + [1, 0]
    torch.testing.assert_close(online.tensors()["fisher/theta"], torch.tensor([1.15, 0.7]))
    penalty = online.penalty()
    # 1/2 gamma F* (theta - theta*)^2 with the last anchor only
    expected = 0.5 * gamma * (1.15 * (1.0 - 3.0) ** 2 + 0.7 * (1.0 + 1.0) ** 2)
    assert penalty is not None and penalty(TwoWeights(1.0, 1.0)).item() == pytest.approx(expected)


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
