from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clearl.errors import ConfigError
from clearl.nets.network import ActorCritic, StepInput, StepOutput, build_network
from clearl.nets.torsos import TORSOS
from clearl.spaces import ActionSpec, ObservationSpec, PartSpec, TaskSpec, discrete_spec

SPECS = {
    "mlp": discrete_spec((7,), "float32", 3),
    "minatar": discrete_spec((10, 10, 10), "bool", 6),
    "nature": discrete_spec((1, 40, 44), "uint8", 5, stack=4),
    "impala_shallow": discrete_spec((3, 24, 32), "uint8", 4),
    "impala_deep": discrete_spec((3, 18, 15), "uint8", 4),
}
STEPS, BATCH, LSTM_SIZE = 7, 5, 12


def network(torso: str, *, lstm: bool, seed: int = 3) -> ActorCritic:
    built = build_network(SPECS[torso], torso=torso, lstm=lstm, lstm_size=LSTM_SIZE, seed=seed)
    # The policy starts near zero, which would hide differences between its outputs.
    with torch.no_grad():
        built.policy.weight.mul_(100)
    return built


def random_inputs(spec: TaskSpec, seed: int = 0) -> StepInput:
    rng = torch.Generator().manual_seed(seed)
    shape = (STEPS, BATCH, *spec.observation.shapes[""])
    if spec.observation.frame_dtype == "float32":
        observation = torch.randn(shape, generator=rng)
    else:
        high = 256 if spec.observation.frame_dtype == "uint8" else 2
        observation = torch.randint(high, shape, generator=rng).to(getattr(torch, spec.observation.frame_dtype.name))
    first = torch.zeros(STEPS, BATCH, dtype=torch.bool)
    first[0, 0] = first[3, 1] = first[5, 1] = first[3, 2] = first[-1, 4] = True
    last_action = torch.randint(spec.action.choices[0], (STEPS, BATCH), generator=rng)
    return StepInput(observation, last_action, torch.randn(STEPS, BATCH, generator=rng), first)


def step_by_step(net: ActorCritic, inputs: StepInput, state: Tensor) -> StepOutput:
    logits, values = [], []
    for t in range(STEPS):
        output = net.act(StepInput(*(part[t] for part in inputs)), state)
        state = output.state
        logits.append(output.policy)
        values.append(output.value)
    return StepOutput(torch.stack(logits), torch.stack(values), state)


def start_state(net: ActorCritic, seed: int = 1) -> Tensor:
    return torch.randn(BATCH, net.core_size, generator=torch.Generator().manual_seed(seed))


def test_every_registered_torso_is_tested() -> None:
    assert set(SPECS) == set(TORSOS)


@pytest.mark.parametrize("lstm", [False, True])
@pytest.mark.parametrize("torso", SPECS)
def test_acting_and_unrolling_agree(torso: str, lstm: bool) -> None:
    net = network(torso, lstm=lstm)
    inputs, state = random_inputs(SPECS[torso]), start_state(net)
    with torch.no_grad():
        unrolled, stepped = net.unroll(inputs, state), step_by_step(net, inputs, state)
    assert unrolled.policy.shape == (STEPS, BATCH, SPECS[torso].action.choices[0])
    assert unrolled.value.shape == (STEPS, BATCH)
    assert unrolled.state.shape == (BATCH, net.core_size)
    assert unrolled.policy.std() > 0.01
    for ours, theirs in zip(unrolled, stepped, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("lstm", [False, True])
@pytest.mark.parametrize("torso", SPECS)
def test_gradients_reach_every_parameter(torso: str, lstm: bool) -> None:
    net = network(torso, lstm=lstm)
    output = net.unroll(random_inputs(SPECS[torso]), start_state(net))
    (output.policy.square().sum() + output.value.square().sum()).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("lstm", [False, True])
def test_initialisation_depends_on_the_seed_only(lstm: bool) -> None:
    torch.manual_seed(11)
    before = torch.get_rng_state()
    one = network("minatar", lstm=lstm)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(12)
    two, other = network("minatar", lstm=lstm), network("minatar", lstm=lstm, seed=4)
    for (name, a), b, c in zip(one.named_parameters(), two.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert name.endswith("bias") or not torch.equal(a, c)


def test_the_first_policy_is_almost_uniform() -> None:
    net = build_network(SPECS["minatar"], torso="minatar", lstm=False, lstm_size=0, seed=0)
    logits = net.unroll(random_inputs(SPECS["minatar"]), start_state(net)).policy
    assert 0 < logits.abs().max() < 0.05


@pytest.mark.parametrize("at", [0, 3])
def test_a_reset_equals_a_fresh_state(at: int) -> None:
    net = network("minatar", lstm=True)
    inputs = random_inputs(SPECS["minatar"])
    inputs.first[at] = True
    whole = net.unroll(inputs, start_state(net))
    rest = net.unroll(StepInput(*(part[at:] for part in inputs)), torch.zeros(BATCH, net.core_size))
    torch.testing.assert_close(whole.policy[at:], rest.policy, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(whole.state, rest.state, rtol=1e-6, atol=1e-6)


def test_no_gradient_crosses_a_reset() -> None:
    net = network("minatar", lstm=True)
    inputs, state = random_inputs(SPECS["minatar"]), start_state(net).requires_grad_()
    output = net.unroll(inputs, state)
    (grad,) = torch.autograd.grad(output.policy[-1].square().sum(), state)
    was_reset = inputs.first.any(0)
    assert (grad[was_reset] == 0).all()
    assert (grad[~was_reset].abs().sum(1) > 0).all()


def test_only_the_lstm_sees_last_action_and_reward() -> None:
    inputs = random_inputs(SPECS["minatar"])
    for lstm in (False, True):
        net = network("minatar", lstm=lstm)
        state = torch.zeros(BATCH, net.core_size)
        base = net.unroll(inputs, state).policy
        for changed in (
            inputs._replace(last_action=(inputs.last_action + 1) % 6),
            inputs._replace(last_reward=inputs.last_reward + 1),
        ):
            assert torch.equal(net.unroll(changed, state).policy, base) is not lstm


def test_the_lstm_sees_every_number_of_a_continuous_last_action() -> None:
    spec = TaskSpec(ObservationSpec({"": PartSpec((3,), "float32")}), ActionSpec((2,), (True, False)))
    net = build_network(spec, torso="mlp", lstm=True, lstm_size=16, seed=0)
    with torch.no_grad():
        net.policy.weight.mul_(100)
    last_action = torch.zeros(STEPS, BATCH, 3)
    first = torch.zeros(STEPS, BATCH, dtype=torch.bool)
    inputs = StepInput(torch.zeros(STEPS, BATCH, 3), last_action, torch.zeros(STEPS, BATCH), first)
    state = torch.zeros(BATCH, net.core_size)
    base = net.unroll(inputs, state).policy
    for number in range(3):
        changed = last_action.clone()
        changed[..., number] = 1
        assert not torch.equal(net.unroll(inputs._replace(last_action=changed), state).policy, base)


@pytest.mark.parametrize("lstm", [False, True])
def test_autocast_stays_near_float32(lstm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without oneDNN: some virtual machines announce AMX but kill the process that uses it.
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    net = network("impala_shallow", lstm=lstm)
    inputs, state = random_inputs(SPECS["impala_shallow"]), start_state(net)
    exact = net.unroll(inputs, state)
    with torch.autocast("cpu", torch.bfloat16):
        rough = net.unroll(inputs, state)
    assert all(part.dtype == torch.float32 for part in rough)
    torch.testing.assert_close(rough.policy, exact.policy, rtol=0.05, atol=0.05)
    grads = torch.autograd.grad(rough.policy.square().sum(), list(net.torso.parameters()))
    assert all(grad.isfinite().all() for grad in grads)


def test_bytes_are_scaled_to_one() -> None:
    net = network("impala_shallow", lstm=False)
    white = torch.full((1, 3, 24, 32), 255, dtype=torch.uint8)
    torch.testing.assert_close(net.torso(white), net.torso(torch.ones(1, 3, 24, 32)))


@pytest.mark.parametrize(
    ("torso", "parameters"),
    [("nature", 1_684_128), ("impala_shallow", 676_144), ("impala_deep", 1_089_232)],
)
def test_torsos_have_the_size_of_their_papers(torso: str, parameters: int) -> None:
    spec = discrete_spec((1, 84, 84), "uint8", 6, stack=4)
    net = build_network(spec, torso=torso, lstm=False, lstm_size=0, seed=0)
    assert sum(p.numel() for p in net.torso.parameters()) == parameters


def test_too_small_images_and_flat_observations_name_a_remedy() -> None:
    for torso in set(TORSOS) - {"mlp"}:
        with pytest.raises(ConfigError, match="use torso 'mlp'"):
            build_network(SPECS["mlp"], torso=torso, lstm=False, lstm_size=0, seed=0)
    with pytest.raises(ConfigError, match="36x36 or more.*'minatar' or 'mlp'"):
        build_network(SPECS["minatar"], torso="nature", lstm=False, lstm_size=0, seed=0)
    with pytest.raises(ConfigError, match="did you mean 'nature'"):
        build_network(SPECS["minatar"], torso="natur", lstm=False, lstm_size=0, seed=0)
    with pytest.raises(ConfigError, match="lstm_size"):
        build_network(SPECS["minatar"], torso="minatar", lstm=True, lstm_size=0, seed=0)


@pytest.mark.parametrize("side", [36, 37, 84])
def test_the_least_image_of_a_torso_is_enough(side: int) -> None:
    net = build_network(discrete_spec((1, side, side), "uint8", 2), torso="nature", lstm=False, lstm_size=0, seed=0)
    assert net.torso(torch.zeros(2, 1, side, side, dtype=torch.uint8)).shape == (2, 512)
