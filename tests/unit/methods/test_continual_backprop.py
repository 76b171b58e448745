"""Continual backprop: units are really replaced, as many as are due, and the optimiser forgets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch

from clearl.acting.preprocess import as_tensor
from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.learning.learner import Learner
from clearl.methods import make_method
from clearl.methods.clear import Clear
from clearl.methods.continual_backprop import ContinualBackprop
from clearl.methods.ewc import Ewc
from clearl.methods.method import Method
from clearl.methods.progress_compress import ProgressCompress
from clearl.nets.network import ActorCritic, as_module, build_network
from clearl.nets.torsos import Torso
from clearl.spaces import ObservationSpec, PartSpec, TaskSpec, discrete_spec
from clearl.types import Batch, Visit

VECTORS = discrete_spec((4,), "float32", 3)
IMAGES = discrete_spec((4, 10, 10), "bool", 3)
UNITS = {"mlp": [128, 128], "minatar": [16, 128]}


def a_learner(method: Method, torso: str = "mlp", *, lstm: bool = False, **settings: Any) -> Learner:
    spec = VECTORS if torso == "mlp" else IMAGES
    network = method.build_network(lambda: build_network(spec, torso=torso, lstm=lstm, lstm_size=8, seed=1))
    config = RunConfig(torso=torso, lstm=lstm, **settings)
    return Learner(network=network, method=method, config=config, batch_frames=30, total_frames=None)


def train(learner: Learner, a_batch: Callable[..., Batch], updates: int, visit: Visit | None = None) -> None:
    spec = IMAGES if learner.config.torso == "minatar" else VECTORS
    for seed in range(updates):
        learner.update(a_batch(spec, core_size=learner.network.core_size, seed=seed), visit)


def due_of(units: int, rate: float, updates: int) -> int:
    """Units of a layer that are replaced in so many updates, if all are mature at first and new ones stay young."""
    replaced, owed = 0, 0.0
    for _ in range(updates):
        owed += rate * (units - replaced)
        replaced, owed = replaced + int(owed), owed - int(owed)
    return replaced


@pytest.mark.parametrize("torso", UNITS)
@pytest.mark.parametrize("lstm", [False, True])
def test_as_many_units_are_replaced_as_are_due(a_batch: Callable[..., Batch], torso: str, lstm: bool) -> None:
    method = ContinualBackprop(Clear(), rate=0.01, maturity_updates=20)
    learner = a_learner(method, torso, lstm=lstm)
    train(learner, a_batch, 20)
    assert method.replaced == 0, "no unit is old enough"
    train(learner, a_batch, 10)
    for layer, units in zip(method.layers, UNITS[torso], strict=True):
        assert int((layer.age < 30).sum()) == due_of(units, 0.01, 10)
    assert method.replaced == sum(due_of(units, 0.01, 10) for units in UNITS[torso]) > 8
    assert method.diagnostics() == {"replaced_units": float(method.replaced)}


@pytest.mark.parametrize("torso", UNITS)
@pytest.mark.parametrize("lstm", [False, True])
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_a_replaced_unit_is_new_and_its_optimiser_state_too(
    a_batch: Callable[..., Batch], torso: str, lstm: bool, optimizer: str
) -> None:
    method = ContinualBackprop(Clear(), rate=0.0)
    learner = a_learner(method, torso, lstm=lstm, optimizer=optimizer, rmsprop_momentum=0.9)
    train(learner, a_batch, 3)
    network = learner.network
    assert isinstance(network, ActorCritic)
    for layer in method.layers:
        before = {name: p.detach().clone() for name, p in as_module(network).named_parameters()}
        method._replace(layer, 5, learner.optimizer)
        changed = {name for name, p in as_module(network).named_parameters() if not torch.equal(p, before[name])}
        names = {id(p): name for name, p in as_module(network).named_parameters()}
        incoming, bias = layer.stage.linear.weight, cast(torch.Tensor, layer.stage.linear.bias)
        assert changed <= {names[id(incoming)], names[id(bias)], *(names[id(p)] for p in layer.outgoing)}
        assert not torch.equal(incoming[5], before[names[id(incoming)]][5])
        assert torch.equal(incoming[6], before[names[id(incoming)]][6]) and bias[5] == 0
        assert incoming[5].abs().max() <= (3 / incoming[5].numel()) ** 0.5
        for parameter in layer.outgoing:
            assert (parameter[layer.columns(5)] == 0).all()
            assert torch.equal(parameter[layer.columns(6)], before[names[id(parameter)]][layer.columns(6)])
            _assert_reset(learner, parameter, layer.columns(5), layer.columns(6))
        _assert_reset(learner, incoming, 5, 6)


def _assert_reset(learner: Learner, parameter: torch.Tensor, new: Any, old: Any) -> None:
    state = learner.optimizer._state_of(parameter)
    for name, tensor in state.items():
        assert torch.all(tensor[new] == (1.0 if name == "mean_square" else 0.0)), name
    assert any(torch.any(tensor[old] != 0) for name, tensor in state.items() if name != "mean_square")


def test_a_new_unit_changes_nothing_until_it_has_learnt(a_batch: Callable[..., Batch]) -> None:
    method = ContinualBackprop(Clear(), rate=0.0)
    learner = a_learner(method, "minatar")
    train(learner, a_batch, 2)
    network = learner.network
    assert isinstance(network, ActorCritic)
    layer = method.layers[0]
    method._replace(layer, 3, learner.optimizer)
    batch = a_batch(IMAGES)
    features = network.torso(batch.observation.flatten(0, 1))
    with torch.no_grad():
        layer.stage.linear.weight[3] = 7.0
    assert torch.equal(network.torso(batch.observation.flatten(0, 1)), features)


PARTS = ObservationSpec(
    {
        "left": PartSpec((2, 10, 10), "bool"),
        "pose": PartSpec((4,), "float32"),
        "right": PartSpec((1, 10, 10), "uint8"),
    }
)


def records(seed: int) -> torch.Tensor:
    rng, made = np.random.default_rng(seed), np.zeros(30, PARTS.record_dtype)
    made["left"], made["right"] = (rng.integers(0, 2, made[name].shape) for name in ("left", "right"))
    made["pose"] = rng.normal(size=(30, 4))
    return as_tensor(made)


@pytest.mark.parametrize("unit", [0, 5])
def test_units_of_all_encoders_are_replaced(unit: int) -> None:
    """A unit's columns are found where the features of several parts are joined: with other ones, outputs change."""
    spec, method = TaskSpec(PARTS, VECTORS.action), ContinualBackprop(Clear(), rate=0.0)
    network = method.build_network(lambda: build_network(spec, torso="auto", lstm=False, lstm_size=1, seed=1))
    learner = Learner(network=network, method=method, config=RunConfig(), batch_frames=30, total_frames=None)
    assert [layer.units for layer in method.layers] == [16, 128, 16, 128, 128, 256]
    assert isinstance(network, ActorCritic)
    for layer in method.layers:
        joined = layer.outgoing[0]
        before = joined.detach().clone()
        reach = layer.reach()
        assert reach.shape == (layer.units,)
        expected = sum(float(weight[layer.columns(unit)].detach().abs().sum()) for weight in layer.outgoing)
        assert float(reach[unit]) == pytest.approx(expected, rel=1e-4)
        method._replace(layer, unit, learner.optimizer)
        assert int((joined != before).any(0).sum()) == layer.inputs_per_unit or joined.dim() == 4
        with torch.no_grad():
            one = network.torso(records(0))
            layer.stage.linear.weight[unit] = 7.0
            two = network.torso(records(0))
        if layer is not method.layers[-1]:  # whose units are the features
            assert torch.equal(one, two)
        else:
            assert torch.equal(network.policy(one), network.policy(two))


def test_a_replaced_unit_has_a_fresh_gain_and_bias(a_batch: Callable[..., Batch]) -> None:
    method = ContinualBackprop(Clear(), rate=0.0)
    network = method.build_network(
        lambda: build_network(VECTORS, torso="mlp", lstm=False, lstm_size=1, seed=1, layer_norm=True)
    )
    learner = Learner(network=network, method=method, config=RunConfig(), batch_frames=30, total_frames=None)
    learner.update(a_batch(VECTORS), None)
    norm = getattr(method.layers[0].stage, "norm")  # noqa: B009 - a convolution has none
    with torch.no_grad():
        norm.weight[:], norm.bias[:] = 3.0, 2.0
    method._replace(method.layers[0], 5, learner.optimizer)
    assert (norm.weight[5].item(), norm.bias[5].item()) == (1, 0)
    assert (norm.weight[6:] == 3).all() and (norm.bias[6:] == 2).all()
    for parameter in norm.parameters():
        _assert_reset(learner, parameter, 5, 6)


def test_utility_is_activity_times_outgoing_weights(a_batch: Callable[..., Batch]) -> None:
    method = ContinualBackprop(Clear(), rate=0.0, decay=0.9)
    learner = a_learner(method, "minatar", learning_rate=0.0)
    network, batch = learner.network, a_batch(IMAGES)
    assert isinstance(network, ActorCritic) and isinstance(network.torso, Torso)
    learner.update(batch, None)
    images, features = network.torso.activations(network.torso.prepare(batch.observation.flatten(0, 1)))
    reader = method.layers[1].stage.linear.weight.unflatten(1, images.shape[1:])
    readers = (network.policy.weight, network.value.weight)
    for unit in (0, 9):
        expected = images[:, unit].abs().mean() * reader[:, unit].abs().sum()
        assert method.layers[0].utility[unit].item() == pytest.approx(0.1 * expected.item(), rel=1e-4)
        expected = features[:, unit].abs().mean() * sum(weight[:, unit].abs().sum() for weight in readers)
        assert method.layers[1].utility[unit].item() == pytest.approx(0.1 * expected.item(), rel=1e-4)


def test_the_least_useful_of_the_mature_units_go_first() -> None:
    method = ContinualBackprop(Clear(), rate=2 / 126, maturity_updates=10)
    a_learner(method)
    layer = method.layers[1]
    layer.utility, layer.age = torch.arange(1.0, 129.0), torch.full((128,), 11.0)
    layer.utility[[7, 40, 50]], layer.age[[50, 51]] = 0.0, 3.0
    assert sorted(method._due(layer)) == [7, 40]


def test_it_combines_with_ewc_on_either_side(a_batch: Callable[..., Batch]) -> None:
    for wrap in (lambda: Ewc(ContinualBackprop(Clear())), lambda: ContinualBackprop(Ewc(Clear()))):
        learner = a_learner(wrap())
        train(learner, a_batch, 2, Visit(0, ("a",), 0, 0, 100))
        train(learner, a_batch, 2, Visit(1, ("b",), 100, 100, 200))
        assert "replaced_units" in learner.method.diagnostics()
    assert not ContinualBackprop(Clear()).needs_boundaries


def test_networks_that_it_does_not_know_are_refused() -> None:
    with pytest.raises(ConfigError, match="one column"):
        a_learner(ContinualBackprop(ProgressCompress(Clear())))


def test_settings_reach_the_method() -> None:
    config = RunConfig(
        method="continual-backprop+clear", cbp_replacement_rate=0.5, cbp_maturity_updates=7, cbp_decay=0.9
    )
    method = make_method(config)
    assert isinstance(method, ContinualBackprop)
    assert (method.rate, method.maturity_updates, method.decay) == (0.5, 7, 0.9)
