"""The learner: an optimiser step when all is finite, nothing at all when it is not."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
import torch

from clearl.config import RunConfig
from clearl.errors import ConfigError, DivergedError
from clearl.learning.batching import make_batch
from clearl.learning.learner import BAD_UPDATES_IN_A_ROW, Learner
from clearl.methods.clear import Clear
from clearl.methods.method import Method, OptimizerState, Wrapper
from clearl.nets.network import PolicyNetwork, as_module, build_network
from clearl.spaces import discrete_spec
from clearl.types import Batch, Visit
from clearl.unroll import UnrollLayout

SPEC = discrete_spec((4,), "float32", 3)
LAYOUT = UnrollLayout(SPEC, unroll_steps=5)


def a_batch(seed: int = 0, rows: int = 6) -> Batch:
    rng = np.random.default_rng(seed)
    unrolls = LAYOUT.empty(rows)
    unrolls.frames[:] = rng.normal(size=unrolls.frames.shape)
    unrolls.action[:] = rng.integers(3, size=unrolls.action.shape)
    unrolls.reward[:] = rng.normal(size=unrolls.reward.shape)
    unrolls.policy[:] = rng.normal(size=unrolls.policy.shape)
    unrolls.value[:] = rng.normal(size=unrolls.value.shape)
    unrolls.valid[:] = True
    unrolls.mask[:] = True
    return make_batch(unrolls, np.arange(rows) % 2 == 0, LAYOUT, 0.99, "unit")


def a_learner(method: Method | None = None, **settings) -> Learner:
    config = RunConfig(**{"torso": "mlp", **settings})
    network = build_network(SPEC, torso="mlp", lstm=False, lstm_size=8, seed=1)
    return Learner(network=network, method=method or Clear(), config=config, batch_frames=30, total_frames=30 * 100)


def parameters(learner: Learner) -> list[torch.Tensor]:
    return [p.detach().clone() for p in learner.parameters]


def test_an_update_moves_the_parameters_and_counts() -> None:
    learner = a_learner()
    before = parameters(learner)
    stats = learner.update(a_batch(), None)
    assert stats.applied and learner.updates == 1 and learner.frames == 30
    assert any(not torch.equal(a, b) for a, b in zip(before, parameters(learner), strict=True))
    assert stats.loss.keys() == Clear().weights().keys()


def test_repeating_a_batch_lowers_the_loss() -> None:
    learner = a_learner(Clear(policy_gradient_weight=0.0, entropy_weight=0.0, value_weight=0.0), learning_rate=1e-2)
    losses = [learner.update(a_batch(), None).loss["policy_cloning"] for _ in range(60)]
    assert losses[-1] < 0.2 * losses[0]


def test_the_gradient_is_clipped_to_its_norm() -> None:
    learner = a_learner(grad_norm_clip=1e-3)
    stats = learner.update(a_batch(), None)
    clipped = torch.stack([p.grad.norm() for p in learner.parameters if p.grad is not None]).norm()
    assert stats.grad_norm > 1 and clipped.item() == pytest.approx(1e-3, rel=1e-4)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_number_changes_nothing_and_is_counted(bad: float) -> None:
    learner = a_learner()
    learner.update(a_batch(), None)
    before = {name: tensor.clone() for name, tensor in learner.tensors().items()}
    poisoned = a_batch()
    poisoned.reward[0, 0] = bad
    stats = learner.update(poisoned, None)
    assert not stats.applied and learner.bad_updates == 1
    for name, tensor in learner.tensors().items():
        assert torch.equal(tensor, before[name]), name
    assert learner.update(a_batch(), None).applied


def test_ten_bad_updates_in_a_row_stop_the_run() -> None:
    learner = a_learner()
    poisoned = a_batch()
    poisoned.reward[0, 0] = float("nan")
    for _ in range(BAD_UPDATES_IN_A_ROW - 1):
        learner.update(poisoned, None)
    with pytest.raises(DivergedError, match="learning_rate"):
        learner.update(poisoned, None)


def test_a_term_without_a_weight_is_an_error() -> None:
    @dataclasses.dataclass(frozen=True)
    class Forgetful(Clear):
        def weights(self) -> dict[str, float]:
            return {name: weight for name, weight in super().weights().items() if name != "value"}

    with pytest.raises(ConfigError, match="value"):
        a_learner(Forgetful()).update(a_batch(), None)


def test_a_method_is_told_of_the_visit_only_where_one_is_given() -> None:
    told: list[Visit] = []

    class Spy(Clear):
        def visit(self, network, visit: Visit) -> None:
            told.append(visit)

    learner = a_learner(Spy())
    learner.update(a_batch(), None)
    assert told == []
    visit = Visit(0, ("a",), 0, 0, 10)
    learner.update(a_batch(), visit)
    assert told == [visit]


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_a_restored_learner_goes_on_bit_for_bit(optimizer: str) -> None:
    one, two = a_learner(optimizer=optimizer, anneal=True), a_learner(optimizer=optimizer, anneal=True)
    for seed in range(3):
        one.update(a_batch(seed), None)
    two.restore({name: tensor.clone() for name, tensor in one.tensors().items()}, one.state())
    for seed in range(3, 6):
        one.update(a_batch(seed), None)
        two.update(a_batch(seed), None)
    assert one.state() == two.state()
    assert as_module(one.network).state_dict().keys() == as_module(two.network).state_dict().keys()
    for name, tensor in one.tensors().items():
        assert torch.equal(tensor, two.tensors()[name]), name


def test_no_replay_equals_the_baseline_bit_for_bit_over_fifty_updates() -> None:
    # With nothing replayed, the cloning terms are sums over nothing: their weights cannot matter.
    cloning = a_learner(Clear(policy_cloning_weight=0.01, value_cloning_weight=0.005, replay_fraction=0.0))
    plain = a_learner(Clear(policy_cloning_weight=0.0, value_cloning_weight=0.0, replay_fraction=0.0))
    for seed in range(50):
        batch = dataclasses.replace(a_batch(seed), is_replay=torch.zeros(6, dtype=torch.bool))
        cloning.update(batch, None)
        plain.update(batch, None)
    for a, b in zip(cloning.parameters, plain.parameters, strict=True):
        assert torch.equal(a, b)


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a device that is not there")
@pytest.mark.parametrize("device", ["cuda", "cuda:3"])
def test_a_device_that_is_not_there_is_refused(device: str) -> None:
    with pytest.raises(ConfigError, match=f"device '{device}' is not there; torch sees: cpu"):
        a_learner(device=device)


def test_another_device_gets_the_network_and_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """On torch's device without memory, which shows where tensors go, but not what is in them."""
    monkeypatch.setattr("clearl.learning.learner.find_device", lambda name: torch.device("meta"))
    learner = a_learner(optimizer="rmsprop")  # the fused Adam wants a device with memory
    assert {parameter.device.type for parameter in learner.parameters} == {"meta"}
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())  # which knows no such device
    seen: list[Batch] = []

    def losses(network: object, batch: Batch) -> dict[str, torch.Tensor]:
        seen.append(batch)
        raise InterruptedError

    monkeypatch.setattr(Clear, "losses", lambda self, network, batch: losses(network, batch))
    with pytest.raises(InterruptedError):
        learner.update(a_batch(), None)
    assert {tensor.device.type for tensor in seen[0]} == {"meta"}


def test_updates_in_bfloat16_stay_near_those_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without oneDNN: some virtual machines announce AMX but kill the process that uses it.
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    plain, coarse = (a_learner(autocast=autocast).update(a_batch(), None) for autocast in (False, True))
    assert plain.loss != coarse.loss
    assert coarse.loss["value"] == pytest.approx(plain.loss["value"], rel=0.05)


class Hooked(Wrapper):
    """Stops the gradient of one parameter, and writes down when it is called."""

    def __init__(self, base: Method, frozen: str) -> None:
        super().__init__(base)
        self.frozen, self.after = frozen, 0

    def before_step(self, gradients: Mapping[str, torch.Tensor]) -> None:
        super().before_step(gradients)
        gradients[self.frozen].zero_()

    def after_step(self, network: PolicyNetwork, optimizer: OptimizerState) -> None:
        super().after_step(network, optimizer)
        self.after += 1
        with torch.no_grad():
            as_module(network).get_parameter("value.bias").fill_(7.0)


def test_a_method_changes_gradients_before_and_parameters_after_a_step() -> None:
    method = Hooked(Clear(), "policy.weight")
    learner = a_learner(method)
    module = as_module(learner.network)
    held = module.get_parameter("policy.weight").detach().clone()
    moved = module.get_parameter("policy.bias").detach().clone()
    stats = learner.update(a_batch(), None)
    assert torch.equal(module.get_parameter("policy.weight"), held)
    assert not torch.equal(module.get_parameter("policy.bias"), moved)
    assert module.get_parameter("value.bias").item() == 7.0
    assert stats.grad_norm < a_learner().update(a_batch(), None).grad_norm, "the norm is of the changed gradients"


def test_an_update_that_is_not_applied_calls_no_hook_after_it() -> None:
    method = Hooked(Clear(), "policy.weight")
    learner = a_learner(method)
    learner.update(a_batch(), None)
    bad = a_batch()
    learner.update(dataclasses.replace(bad, reward=bad.reward * float("nan")), None)
    assert method.after == 1
