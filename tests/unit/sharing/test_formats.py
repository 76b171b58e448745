"""Graphs of policies in other formats give the numbers that torch gives, for any number of observations."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from policy_cases import CASES, make_agent, make_network

from clearl.acting.stepper import Stepper
from clearl.errors import ConfigError, MissingExtraError
from clearl.methods.progress_compress.two_columns import TwoColumns
from clearl.nets.torsos import TORSOS
from clearl.sharing.formats import GRAPH_FORMATS, check_formats, write_graph
from clearl.sharing.graph import PolicyGraph, Port, port_name
from clearl.spaces import MASK_FIELD, TaskSpec, discrete_spec, field_name


def _random(port: Port, batch: int, rng: np.random.Generator) -> np.ndarray:
    shape = (batch, *port.shape)
    if port.dtype == "uint8":
        return rng.integers(0, 256, shape).astype(np.uint8)
    if port.dtype == "bool":
        return rng.random(shape) < 0.6
    if port.name == "last_action":
        return rng.integers(0, 2, shape).astype(port.dtype)
    return (3 * rng.standard_normal(shape)).astype(port.dtype)


def _inputs(graph: PolicyGraph, batch: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng((seed, batch))
    return {port.name: _random(port, batch, rng) for port in graph.inputs}


def _reference(graph: PolicyGraph, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    with torch.no_grad():
        outputs = graph({name: torch.from_numpy(array) for name, array in inputs.items()})
    return {name: tensor.numpy() for name, tensor in outputs.items()}


def _load(file: Path) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """The function in a file, as its users would call it."""
    if file.suffix == ".pt2":
        module = torch.export.load(file).module()
        return lambda inputs: {
            name: tensor.detach().numpy()
            for name, tensor in module({name: torch.from_numpy(array) for name, array in inputs.items()}).items()
        }
    session = pytest.importorskip("onnxruntime").InferenceSession(file)
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(None, inputs), strict=True))


def test_every_torso_of_ours_is_among_the_cases() -> None:
    """`auto` stands for minatar on small images and for mlp on vectors."""
    named = {settings["torso"] for _, settings in CASES.values() if "torso" in settings}
    assert named | {"minatar", "mlp"} == {name for name in TORSOS if TORSOS.ships(name)}


@pytest.mark.parametrize("case", CASES)
def test_both_formats_give_what_torch_gives(case: str, tmp_path: Path) -> None:
    spec, settings = CASES[case]
    agent = make_agent(make_network(spec, **settings), spec)
    *files, about = write_graph(agent, GRAPH_FORMATS, tmp_path)
    graph, described = PolicyGraph(agent), json.loads(about.read_text())
    for file in files:
        run = _load(file)
        for batch in (1, 2, 5):
            inputs = _inputs(graph, batch)
            got, expected = run(inputs), _reference(graph, inputs)
            assert list(got) == list(expected) == [port["name"] for port in described["outputs"]]
            for name, array in expected.items():
                assert got[name].dtype == array.dtype
                np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-5, err_msg=f"{file.name}: {name}")


def _frames(spec: TaskSpec, rng: np.random.Generator) -> np.ndarray:
    """Random first frames of three environments."""
    frames = np.zeros((3, *spec.observation.frame_shape), spec.observation.frame_dtype)
    for name, part in spec.observation.parts.items():
        place = frames[field_name(name)] if spec.observation.is_record else frames
        place[:] = _random(Port(name, part.dtype, part.shape, ""), 3, rng)
    return frames


def _parts(observation: np.ndarray, spec: TaskSpec) -> dict[str, np.ndarray]:
    if not spec.observation.is_record:
        return {"observation": observation}
    return {port_name(name): observation[field_name(name)] for name in spec.observation.parts}


@pytest.mark.parametrize("case", CASES)
@torch.inference_mode()
def test_the_graph_acts_as_a_stepper_does(case: str) -> None:
    """Over two episodes, greedily, with the state carried by hand."""
    spec, settings = CASES[case]
    agent = make_agent(make_network(spec, **settings), spec, "soft_asymmetric")
    graph, rng, head = PolicyGraph(agent), np.random.default_rng(5), agent.network.head
    stepper = Stepper(agent.network, spec, 3, reward_clip=agent.reward_clip, column="evaluate")
    mask = np.tile(agent.tasks["some"].mask, (3, 1))
    given = {port.name: port.zeros(3).numpy() for port in graph.inputs}
    for step in range(6):
        first, frames = np.full(3, step in (0, 4)), _frames(spec, rng)
        reward = 4 * rng.standard_normal(3).astype(np.float32)
        if spec.observation.mask_size:
            frames[MASK_FIELD] = True
        stepper.see(
            frames, first, given.get("last_action", np.zeros((3, *spec.action.shape), spec.action.dtype)), reward
        )
        decision = stepper.decide(head.noise(rng, mask, 1)[0])
        given |= {**_parts(stepper.observation, spec), "mask": mask, "first": first, "last_reward": reward}
        outputs = _reference(graph, {port.name: given[port.name] for port in graph.inputs})
        likeliest = head.distribution(torch.from_numpy(decision.policy), torch.from_numpy(mask)).mode().numpy()
        np.testing.assert_allclose(outputs["value"], decision.value, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(outputs["action"], likeliest, rtol=1e-5, atol=1e-5)
        given |= {"last_action": outputs["action"], "state": outputs.get("next_state", np.zeros(0))}


def test_masked_options_are_never_chosen_and_bounds_are_kept() -> None:
    spec, settings = CASES["choices and reals"]
    graph = PolicyGraph(make_agent(make_network(spec, **settings), spec))
    inputs = _inputs(graph, 64)
    inputs["mask"][:] = [True, False, False, True, True, False, True, True]
    outputs = _reference(graph, inputs)
    assert set(outputs["action"][:, 0]) == {0.0} and set(outputs["action"][:, 1]) <= {1.0, 2.0, 4.0}
    assert (outputs["logits"][:, [1, 2, 5]] == np.float32(-1e30)).all()
    np.testing.assert_allclose(outputs["squashed"], np.tanh(outputs["mean"]), rtol=1e-5)


@pytest.mark.parametrize("compressed", [False, True])
def test_of_two_columns_the_evaluated_one_is_written(compressed: bool, tmp_path: Path) -> None:
    spec = discrete_spec((4,), "float32", 3)
    columns = TwoColumns(make_network(spec, lstm=True), make_network(spec, lstm=True), seed=1)
    if compressed:
        columns.train_column("knowledge_base")
        columns.connect()
    agent = make_agent(columns, spec)
    (file, _), graph = write_graph(agent, ["torch"], tmp_path), PolicyGraph(agent)
    inputs = _inputs(graph, 4)
    got, expected = _load(file)(inputs), _reference(graph, inputs)
    assert ("value" in got) == (not compressed)  # what is compressed is a policy
    np.testing.assert_allclose(got["logits"], expected["logits"], rtol=1e-5, atol=1e-5)


class Undecided(torch.nn.Module):
    """Does something else for large inputs, which no graph can."""

    out_size = 4

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return observation if bool(observation.sum() > 1) else -observation


def test_a_network_that_is_no_graph_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TORSOS._entries, "undecided", Undecided)
    spec = discrete_spec((4,), "float32", 3)
    with pytest.raises(ConfigError, match="cannot be written as a graph .*the format 'clearl'") as caught:
        write_graph(make_agent(make_network(spec, torso="undecided"), spec), ["torch"], tmp_path)
    assert "\n" not in str(caught.value)


def test_onnx_without_its_packages_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    check_formats(["torch"])
    with pytest.raises(MissingExtraError, match=r"clearl\[onnx\]"):
        check_formats(["onnx"])
