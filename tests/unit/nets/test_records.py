"""Observations of several parts in a network: every part counts, and bytes are read as what they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from clearl.acting.preprocess import as_tensor
from clearl.errors import ConfigError, UnknownNameError
from clearl.methods.progress_compress.two_columns import TwoColumns
from clearl.nets.network import ActorCritic, StepInput, build_network
from clearl.nets.records import NamedInput, RecordInput
from clearl.nets.stages import Dense
from clearl.nets.torsos import TORSOS, PlainTorso, Torso
from clearl.spaces import ActionSpec, ObservationSpec, PartSpec, TaskSpec, field_name

PARTS = {
    "camera": PartSpec((3, 12, 12), "uint8"),
    "flags": PartSpec((5,), "bool"),
    "joints": PartSpec((4,), "float32"),
    "bytes": PartSpec((3,), "uint8"),
}
SPEC = TaskSpec(ObservationSpec(PARTS, stack=2, mask_size=4), ActionSpec.discrete(4))
STEPS, BATCH = 3, 2


def records(seed: int = 0, spec: ObservationSpec = SPEC.observation) -> np.ndarray:
    rng, made = np.random.default_rng(seed), np.zeros((STEPS, BATCH), spec.record_dtype)
    for name, part in spec.parts.items():
        shape = made[field_name(name)].shape
        made[field_name(name)] = (
            rng.normal(size=shape)
            if part.dtype == "float32"
            else rng.integers(0, 2 if part.dtype == "bool" else 256, shape)
        )
    return made


def inputs(made: np.ndarray) -> StepInput:
    return StepInput(
        as_tensor(made), torch.zeros(STEPS, BATCH, dtype=torch.int64), torch.zeros(STEPS, BATCH),
        torch.zeros(STEPS, BATCH, dtype=torch.bool),
    )  # fmt: skip


def network(spec: TaskSpec = SPEC, torso: str = "auto", *, layer_norm: bool = False) -> ActorCritic:
    return build_network(spec, torso=torso, lstm=True, lstm_size=4, seed=0, layer_norm=layer_norm)


def values(net: ActorCritic | TwoColumns, made: np.ndarray) -> torch.Tensor:
    with torch.no_grad():
        return net.unroll(inputs(made), torch.zeros(BATCH, net.core_size)).value


def test_bytes_are_read_as_what_they_are() -> None:
    made = records().reshape(-1)
    camera, vector = RecordInput(SPEC.observation, normalise=False)(as_tensor(made))
    assert torch.equal(camera, torch.from_numpy(made["camera"])) and camera.shape[1] == 6
    expected = np.concatenate([made["joints"], made["flags"], made["bytes"] / 255], 1)
    np.testing.assert_allclose(vector.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("names", [("a", "b", "c"), ("a", "flags", "b", "c"), ("flags", "a", "image", "b", "c")])
def test_real_numbers_are_joined_wherever_they_lie_in_a_record(names: tuple[str, ...]) -> None:
    reals = {name: PartSpec((size,), "float32") for name, size in (("a", 2), ("b", 3), ("c", 4))}
    kinds = {**reals, "flags": PartSpec((5,), "bool"), "image": PartSpec((1, 4, 4), "uint8")}
    spec = ObservationSpec({name: kinds[name] for name in names})
    made = records(spec=spec).reshape(-1)
    taken, expected = RecordInput(spec, normalise=False), np.concatenate([made[name] for name in "abc"], 1)
    given = taken(as_tensor(made))
    vector = given[-1] if isinstance(given, tuple) else given
    np.testing.assert_array_equal(vector[:, : expected.shape[1]].numpy(), expected)
    taken.take_values()
    numbers = torch.cat([torch.from_numpy(made[name].astype("f4")).flatten(1) for name in names], 1)
    given = taken(numbers)
    vector = given[-1] if isinstance(given, tuple) else given
    np.testing.assert_array_equal(vector[:, : expected.shape[1]].numpy(), expected)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_every_part_has_an_influence_and_the_mask_has_none(layer_norm: bool) -> None:
    net, base = network(layer_norm=layer_norm), records()
    before = values(net, base)
    for name in PARTS:
        changed = base.copy()
        changed[name] = records(1)[name]
        assert not torch.equal(values(net, changed), before), name
    changed = base.copy()
    changed["action mask"] = True
    assert torch.equal(values(net, changed), before)


def test_vectors_alone_need_no_encoder() -> None:
    parts = {name: PARTS[name] for name in ("flags", "joints")}
    spec = TaskSpec(ObservationSpec(parts), ActionSpec.discrete(4))
    net = network(spec)
    assert isinstance(net.torso, Torso) and len(net.torso.stages) == 2
    assert values(net, records(spec=spec.observation)).shape == (STEPS, BATCH)


def test_two_columns_join_behind_the_encoders() -> None:
    columns = TwoColumns(network(), network(), seed=1)
    before = values(columns, records())
    columns.connect()
    assert not torch.equal(values(columns, records()), before)


class Parts(nn.Module):
    """A torso of a user's own, which sees the parts by name."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        super().__init__()
        self.layer, self.out_size = nn.Linear(shapes["joints"][0], 4), 4

    def forward(self, parts: dict[str, torch.Tensor]) -> torch.Tensor:
        assert parts.keys() == PARTS.keys() and all(part.dtype == torch.float32 for part in parts.values())
        return self.layer(parts["joints"])


@pytest.fixture
def own_torsos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TORSOS, "_entries", dict(TORSOS._entries))
    TORSOS.register("parts", Parts)
    TORSOS.register("small", small)
    TORSOS.register("narrow", lambda shape: [Dense(shape, 7)])
    TORSOS.register("shown", Shown)


def small(shape: tuple[int, ...]) -> nn.Module:
    torso = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 32), nn.LayerNorm(32), nn.ReLU())
    torso.out_size = 32  # pyright: ignore[reportArgumentType]  # as the page on plug-ins writes it
    return torso


class Shown(nn.Module):
    """A class that takes one shape, and keeps what it is shown."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer, self.out_size = nn.Linear(shape[0], 4), 4

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        self.shown = observation
        return self.layer(observation)


def test_a_torso_of_a_user_s_own_sees_the_parts_by_name(own_torsos: None) -> None:
    assert values(network(torso="parts"), records()).shape == (STEPS, BATCH)


VECTORS = TaskSpec(ObservationSpec({name: PARTS[name] for name in ("flags", "joints", "bytes")}), SPEC.action)
MASKED_VECTOR = TaskSpec(ObservationSpec({"": PartSpec((3,), "float32")}, mask_size=4), SPEC.action)


@pytest.mark.parametrize("spec", [VECTORS, MASKED_VECTOR], ids=["parts", "a mask"])
def test_a_function_s_torso_sees_vectors_as_one(own_torsos: None, spec: TaskSpec) -> None:
    """Not the built-in one in its place: that trained another network than the one asked for, without a word."""
    net, size = network(spec, "small"), 12 if spec is VECTORS else 3
    assert isinstance(net.torso, PlainTorso) and net.torso.out_size == 32
    assert [part.in_features for part in net.torso.modules() if isinstance(part, nn.Linear)] == [size]
    assert values(net, records(spec=spec.observation)).unique().numel() == STEPS * BATCH
    staged = network(spec, "narrow").torso
    assert isinstance(staged, Torso) and staged.out_size == 7


def test_a_function_s_torso_encodes_each_image(own_torsos: None) -> None:
    net = network(torso="small")
    assert [part.normalized_shape for part in net.modules() if isinstance(part, nn.LayerNorm)] == [(32,)]
    before, changed = values(net, records()), records()
    changed["camera"] = records(1)["camera"]
    assert not torch.equal(values(net, changed), before)


def test_a_torso_that_does_not_fit_is_refused_as_for_one_vector() -> None:
    with pytest.raises(ConfigError, match=r"torso 'nature' needs images, but observations have the shape \(12,\)"):
        network(VECTORS, "nature")
    with pytest.raises(UnknownNameError, match="naturee"):
        network(VECTORS, "naturee")


def test_a_mask_changes_nothing_for_a_class_that_takes_one_shape(own_torsos: None) -> None:
    net, made = network(MASKED_VECTOR, "shown"), records(spec=MASKED_VECTOR.observation)
    values(net, made)
    body = net.torso.body
    assert isinstance(body, Shown)
    np.testing.assert_array_equal(body.shown.numpy(), made[field_name("")].reshape(-1, 3))


def test_a_class_s_parts_are_normalised_by_name(own_torsos: None) -> None:
    inputs = NamedInput(RecordInput(SPEC.observation, normalise=True))
    made = records().reshape(-1)
    made["joints"] = 100 + 20 * made["joints"]
    inputs.observe(as_tensor(made))
    seen = inputs(as_tensor(made))
    assert isinstance(seen, dict) and [*seen] == [*PARTS]
    expected = (made["joints"] - made["joints"].mean(0)) / made["joints"].std(0)
    np.testing.assert_allclose(seen["joints"].numpy(), expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(seen["bytes"].numpy(), made["bytes"] / 255, rtol=1e-6)
    assert torch.equal(seen["camera"], torch.from_numpy(made["camera"]).float() * (1 / 255))
