"""Torsos: what is done for speed changes no number that matters."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from clearl.errors import ConfigError
from clearl.methods.progress_compress.two_columns import TwoColumns
from clearl.nets.network import StepInput, build_network
from clearl.nets.stages import Dense
from clearl.nets.torsos import TORSOS, PlainTorso, Torso, build_torso, torso_doubt
from clearl.nets.weights import FlatWeights
from clearl.spaces import PartDtype, discrete_spec


@pytest.mark.parametrize(
    ("shape", "fitting"),
    [
        ((4,), "mlp"),
        ((4, 2, 2), "mlp"),
        ((10, 10, 10), "minatar"),
        ((3, 35, 80), "minatar"),
        ((3, 64, 80), "impala_shallow"),
    ],
)
def test_auto_chooses_by_the_observation(shape: tuple[int, ...], fitting: str) -> None:
    chosen, named = (build_torso(name, shape).state_dict() for name in ("auto", fitting))
    assert {name: weight.shape for name, weight in chosen.items()} == {
        name: weight.shape for name, weight in named.items()
    }


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("mlp", (4, 10, 10), "images of 4x10x10, and torso 'mlp' reads them as flat vectors; --torso auto takes"),
        ("mlp", (3, 84, 84), "flat vectors; --torso auto takes 'impala_shallow'"),
        ("minatar", (3, 84, 84), "torso 'minatar' has a layer of millions of weights for them; --torso auto takes"),
    ],
)  # fmt: skip
def test_a_torso_for_smaller_observations_is_doubted(name: str, shape: tuple[int, ...], said: str) -> None:
    doubt = torso_doubt(name, shape)
    assert doubt is not None and said in doubt


@pytest.mark.parametrize(
    ("name", "shape"),
    [("auto", (3, 84, 84)), ("nature", (3, 84, 84)), ("impala_deep", (3, 84, 84)), ("minatar", (4, 10, 10)),
     ("impala_shallow", (3, 84, 84)), ("mlp", (4,)), ("mlp", (4, 2, 2)), ("mine", (3, 84, 84))],
)  # fmt: skip
def test_a_fitting_torso_is_not_doubted(name: str, shape: tuple[int, ...]) -> None:
    assert torso_doubt(name, shape) is None


@pytest.mark.parametrize("count", [2, 100])
def test_a_dense_layer_reads_images_in_the_order_of_its_weights(count: int) -> None:
    """With 2 images it turns the images around, with 100 its weights; either way the answer is that of a plain one."""
    generator = torch.Generator().manual_seed(0)
    layer = Dense((4, 5, 6), 32)
    images = torch.rand(count, 4, 5, 6, generator=generator).contiguous(memory_format=torch.channels_last)
    assert (images.numel() > layer.linear.weight.numel()) == (count == 100)
    images.requires_grad_()
    layer(images).square().sum().backward()
    found = [images.grad, layer.linear.weight.grad]
    plain = [tensor.detach().clone().requires_grad_() for tensor in (images, layer.linear.weight)]
    flat = functional.linear(plain[0].flatten(1), plain[1], layer.linear.bias).relu()
    flat.square().sum().backward()
    for got, expected in zip(found, plain, strict=True):
        torch.testing.assert_close(got, expected.grad, rtol=1e-4, atol=1e-5)


def test_pixels_are_scaled_to_one_however_many_there_are() -> None:
    torso = build_torso("impala_deep", (4, 36, 36))  # no convolution that takes bytes comes first
    pixels = torch.randint(0, 256, (70, 4, 36, 36), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert isinstance(torso, Torso)
    with torch.no_grad():
        prepared = torso.prepare(pixels)
    assert torch.equal(prepared, pixels.to(torch.float32) * (1 / 255))
    assert prepared.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("torso", "shape", "dtype"), [("minatar", (4, 10, 10), "bool"), ("mlp", (12,), "float32")])
def test_a_network_that_reads_its_weights_from_a_vector_acts_with_the_newest(torso: str, shape, dtype) -> None:
    """It keeps them in another order for acting, too: every vector must arrive there."""
    spec = discrete_spec(shape, dtype, 3)
    actor, learner = (build_network(spec, torso=torso, lstm=False, lstm_size=1, seed=seed) for seed in (0, 1))
    generator = torch.Generator().manual_seed(0)
    observation = (torch.rand(5, *shape, generator=generator) < 0.5).to(getattr(torch, dtype))
    inputs = StepInput(observation, torch.zeros(5, dtype=torch.int64), torch.zeros(5), torch.zeros(5, dtype=torch.bool))
    reader, writer = FlatWeights(actor), FlatWeights(learner)
    vector = np.zeros(writer.size, np.float32)
    for _ in range(2):
        writer.write_to(vector)
        reader.read_from(vector)
        with torch.inference_mode():
            acted, expected = (network.act(inputs, torch.zeros(5, 0)) for network in (actor, learner))
        torch.testing.assert_close(acted.value, expected.value, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(acted.policy, expected.policy, rtol=1e-4, atol=1e-6)
        learner.initialise(7)


@pytest.mark.parametrize(
    ("torso", "shape", "dtype", "normalised"),
    [
        ("mlp", (5,), "float32", True),
        ("mlp", (5,), "float32", False),
        ("mlp", (4, 3, 3), "uint8", False),
        ("minatar", (4, 10, 10), "bool", True),
        ("impala_shallow", (2, 36, 36), "uint8", False),
        ("impala_deep", (3, 16, 16), "uint8", False),
    ],
)
@torch.no_grad()
def test_acting_without_calls_of_modules_gives_the_same_bits(
    torso: str, shape: tuple[int, ...], dtype: PartDtype, normalised: bool
) -> None:
    network = build_network(
        discrete_spec(shape, dtype, 3), torso=torso, lstm=False, lstm_size=0, seed=0,
        normalise=normalised, layer_norm=normalised,
    )  # fmt: skip
    random = np.random.default_rng(0)
    weights = FlatWeights(network)
    weights.read_from(random.standard_normal(weights.size).astype(np.float32))
    observation = torch.from_numpy(random.integers(-3 if dtype == "float32" else 0, 9, (6, *shape)).astype(dtype))
    body = network.torso
    assert isinstance(body, Torso)
    expected = body.activations(body.prepare(observation))[-1]
    assert expected.abs().sum() > 0
    assert torch.equal(body(observation), expected)
    seen = []
    layer = next(part for part in body.modules() if isinstance(part, Dense))
    layer.linear.register_forward_hook(lambda *_: seen.append(1))
    body(observation)
    assert seen, "a hook must not be passed by"


class Halves(nn.Module):
    """A torso as a user writes one: a plain module with `out_size`."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer, self.out_size = nn.Linear(shape[0], 4), 4
        self.prepared = 0

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return self.layer(observation).relu()

    def prepare_acting(self) -> None:
        self.prepared += 1


class Nameless(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()


@pytest.fixture
def own_torsos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TORSOS, "_entries", dict(TORSOS._entries))
    TORSOS.register("halves", Halves)
    TORSOS.register("nameless", Nameless)


def test_a_plain_module_is_a_torso(own_torsos: None) -> None:
    network = build_network(discrete_spec((3,), "uint8", 2), torso="halves", lstm=True, lstm_size=4, seed=0)
    body = network.torso.body
    assert isinstance(body, Halves) and isinstance(network.torso, PlainTorso)
    pixels = torch.tensor([[255, 0, 51]], dtype=torch.uint8)
    torch.testing.assert_close(network.torso(pixels), body(torch.tensor([[1.0, 0.0, 0.2]])))
    weights = FlatWeights(network)
    weights.read_from(np.zeros(weights.size, np.float32))
    assert body.prepared == 1, "a layer of the user's own may prepare for acting too"


def test_a_torso_without_out_size_is_told_what_to_set(own_torsos: None) -> None:
    with pytest.raises(ConfigError, match="torso 'nameless' is a Nameless without out_size; set self.out_size"):
        build_network(discrete_spec((3,), "float32", 2), torso="nameless", lstm=False, lstm_size=4, seed=0)


def test_a_plain_module_sees_normalised_vectors(own_torsos: None) -> None:
    """They used to arrive as they were, whatever the setting said."""
    spec = discrete_spec((3,), "float32", 2)
    network = build_network(spec, torso="halves", lstm=False, lstm_size=4, seed=0, normalise=True)
    observation = 50 + 10 * torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    network.observe(observation)
    scaled = (observation - observation.mean(0)) / observation.std(0, unbiased=False)
    body = network.torso.body
    assert isinstance(body, Halves)
    torch.testing.assert_close(network.torso(observation), body(scaled), rtol=1e-3, atol=1e-4)


def test_layer_norm_without_a_layer_to_normalise_is_refused(own_torsos: None) -> None:
    with pytest.raises(ConfigError, match="torso 'halves' has none of them; set layer_norm to false"):
        build_network(
            discrete_spec((3,), "float32", 2), torso="halves", lstm=False, lstm_size=4, seed=0, layer_norm=True
        )


def test_two_columns_need_a_torso_in_stages(own_torsos: None) -> None:
    columns = [
        build_network(discrete_spec((3,), "float32", 2), torso="halves", lstm=False, lstm_size=4, seed=0)
        for _ in range(2)
    ]
    with pytest.raises(ConfigError, match="joins the stages of two torsos"):
        TwoColumns(columns[0], columns[1], seed=0)
