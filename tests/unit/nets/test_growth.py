"""A network that grows answers as before on all that it knows, and learns from old unrolls as before."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from grown import CASES, Case, grown_network, part, random_unrolls, random_weights, spec
from torch import nn

from clearl.errors import ConfigError
from clearl.learning.batching import make_batch
from clearl.methods.clear import Clear
from clearl.nets.network import StepInput
from clearl.nets.torsos import TORSOS
from clearl.replay.codec import Codec
from clearl.spaces import ActionSpec
from clearl.types import Batch


def batches(case: Case, core_size: int = 0) -> tuple[Batch, Batch]:
    """The same unrolls as a batch of the smaller spaces, and padded as one of the larger."""
    rows, layout = random_unrolls(case.old, core_size=core_size)
    is_replay = np.arange(len(rows.reward)) % 2 == 1
    larger = type(layout)(case.new, layout.unroll_steps, core_size)
    made = make_batch(rows, is_replay, layout, 0.9, "none")
    return made, make_batch(case.spaces.unroll(rows), is_replay, larger, 0.9, "none")


def inputs(batch: Batch) -> StepInput:
    return StepInput(batch.observation, batch.last_action, batch.last_reward, batch.first)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_answers_on_old_observations_are_unchanged(case: Case) -> None:
    old = case.build(case.old)
    random_weights(old)
    new, growth = grown_network(case, old)
    small, large = batches(case, old.core_size)
    with torch.no_grad():
        before, after = old.unroll(inputs(small), small.core_state), new.unroll(inputs(large), large.core_state)
    places = torch.from_numpy(growth.spaces.policy_places)
    torch.testing.assert_close(after.policy[..., places], before.policy, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(after.value, before.value, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(after.state, before.state, atol=1e-6, rtol=1e-6)
    assert any(growth.has_grown(name) for name in old.state_dict()), "something grew"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_vtrace_and_cloning_are_exact_on_old_unrolls(case: Case) -> None:
    old, method = case.build(case.old), Clear()
    random_weights(old)
    new, growth = grown_network(case, old)
    small, large = batches(case, old.core_size)
    before, after = method.losses(old, small), method.losses(new, large)
    assert before.keys() == after.keys() and len(before) == 5
    for name in before:
        torch.testing.assert_close(after[name], before[name], atol=1e-5, rtol=1e-5)
        assert before[name].abs() > 1e-4, "the comparison is of something"
    gradients = []
    for network, losses in ((old, before), (new, after)):
        torch.stack([losses[name] * weight for name, weight in method.weights().items()]).sum().backward()
        gradients.append({name: p.grad for name, p in network.named_parameters() if p.grad is not None})
    for name, gradient in gradients[0].items():
        zeros = torch.zeros_like(gradients[1][name])
        padded = growth.padded(name, gradient, zeros)
        inside = growth.padded(name, torch.ones_like(gradient), zeros) > 0
        torch.testing.assert_close(gradients[1][name][inside], padded[inside], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_payloads_of_the_old_layout_are_padded_when_they_are_read(case: Case) -> None:
    rows, layout = random_unrolls(case.old, core_size=16)
    larger = type(layout)(case.new, layout.unroll_steps, 16)
    fresh, _ = random_unrolls(case.new, core_size=16)
    small, large = Codec(layout), Codec(larger, [layout])
    mixed = [large.encode(fresh[0]), *small.encode_each(rows, [1, 2]), large.encode(fresh[3])]
    read = larger.empty(6)
    for array in read.named().values():  # places are used again: what is not written must be cleared
        array[...] = np.ones((), array.dtype) if array.dtype.names is None else np.zeros((), array.dtype)
    large.decode_each([large.check(payload) for payload in mixed], read, [5, 2, 0, 3])
    padded = case.spaces.unroll(rows)
    for name, array in read.named().items():
        for index, source in ((5, fresh[0]), (2, padded[1]), (0, padded[2]), (3, fresh[3])):
            np.testing.assert_array_equal(array[index], source.named()[name], err_msg=name)


def test_new_weights_are_zero_for_new_inputs_and_fresh_for_new_actions() -> None:
    case = CASES["both, with a memory"]
    old = case.build(case.old)
    random_weights(old)
    new, _ = grown_network(case, old)
    fresh = case.build(case.new, seed=4)
    assert torch.equal(new.torso.stages[0].linear.weight[:, 4:], torch.zeros(128, 3))  # type: ignore[index, union-attr]
    assert torch.equal(new.policy.weight[3:], fresh.policy.weight[3:]) and new.policy.weight[3:].abs().min() > 0
    assert new.core is not None and old.core is not None
    embedding = slice(128 + 3, 128 + 5)
    assert not new.core.weight_input[:, embedding].any()
    assert torch.equal(new.core.weight_input[:, -1], old.core.weight_input[:, -1]), "the reward stays the last input"


@pytest.mark.parametrize("name", ["normalised", "record without images"])
def test_the_count_of_new_numbers_starts_at_none(name: str) -> None:
    case = CASES[name]
    old = case.build(case.old)
    old.observe(batches(case)[0].observation.flatten(0, 1))
    new, growth = grown_network(case, old)
    steps, key = 7 * 5, "torso.inputs.normalise.count"
    assert old.state_dict()[key].tolist() == [steps] * 4
    assert sorted(new.state_dict()[key].tolist()) == [0] * (len(growth.fresh[key]) - 4) + [steps] * 4


def test_a_first_image_beside_a_vector_cannot_join() -> None:
    case = Case(spec({"pose": part(4)}, ActionSpec.discrete(2)),
                spec({"pose": part(4), "eyes": part(1, 8, 8)}, ActionSpec.discrete(2)))  # fmt: skip
    with pytest.raises(ConfigError, match="cannot grow to the next tasks: its network would have other layers"):
        grown_network(case, case.build(case.old))


class Own(nn.Module):
    out_size = 4

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = nn.Linear(shape[0], 4)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return self.layer(observation)


REFUSED = {
    "other dtype": (
        Case(spec(part(4, dtype="uint8"), ActionSpec.discrete(2)), spec(part(4), ActionSpec.discrete(2))),
        "the observations: uint8 so far, float32 with the next tasks",
    ),
    "no bounds": (
        Case(spec(part(4), ActionSpec((), (True,))), spec(part(4), ActionSpec((), (False,)))),
        "an action within bounds so far would have none",
    ),
    "another kind of action": (
        Case(spec(part(4), ActionSpec.discrete(2)), spec(part(4), ActionSpec((2,), (True,)))),
        "actions of another kind",
    ),
    "stacked no more": (
        Case(spec(part(4), ActionSpec.discrete(2), stack=2),
             spec({"": part(4), "b": part(2)}, ActionSpec.discrete(2), stack=2)),
        "frames that are stacked so far would not be",
    ),
    "larger images of a residual torso": (
        Case(spec(part(1, 9, 9), ActionSpec.discrete(2)), spec(part(1, 11, 9), ActionSpec.discrete(2)), "impala_deep"),
        r"images of \(11, 9\) instead of \(9, 9\)",
    ),
    "another torso fits": (
        Case(spec(part(1, 9, 9), ActionSpec.discrete(2)), spec(part(1, 40, 40), ActionSpec.discrete(2))),
        "its network would have other layers",
    ),
    "a torso of one's own": (
        Case(spec(part(4), ActionSpec.discrete(2)), spec(part(5), ActionSpec.discrete(2)), "own"),
        "its torso is a module of your own",
    ),
    "a torso of one's own for an image of several parts": (
        Case(spec({"eyes": part(4, 3, 3), "pose": part(2)}, ActionSpec.discrete(2)),
             spec({"eyes": part(5, 3, 3), "pose": part(2)}, ActionSpec.discrete(2)), "own"),
        "its torso is a module of your own",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("case", "says"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_grow_is_refused_by_name(case: Case, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TORSOS, "_entries", dict(TORSOS._entries))
    TORSOS.register("own", lambda shape: Own(shape))
    with pytest.raises(ConfigError, match=says) as caught:
        grown_network(case, case.build(case.old))
    assert str(caught.value).startswith("the agent cannot grow to the next tasks") and "\n" not in str(caught.value)
