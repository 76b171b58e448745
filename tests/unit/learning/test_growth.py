"""A learner whose network has grown goes on as if it had not: it makes the same steps on old unrolls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from grown import CASES, Case, random_unrolls

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.learning.batching import make_batch
from clearl.learning.growth import grown_tensors
from clearl.learning.learner import Learner
from clearl.methods import make_method
from clearl.methods.clear import Clear
from clearl.methods.method import Method
from clearl.nets.growth import NetworkGrowth
from clearl.nets.network import as_module
from clearl.spaces import TaskSpec
from clearl.types import Batch, Visit
from clearl.unroll import UnrollLayout

SETTINGS: dict[str, Any] = {
    "slots": 8, "batch_unrolls": 8, "fisher_batches": 4, "cbp_maturity_updates": 1, "cbp_replacement_rate": 1e-6,
    "diagnose_every_updates": None, "lstm_size": 8, "compress_on_top": False, "compress_frames": 1,
}  # fmt: skip


def make_learner(case: Case, spec: TaskSpec, config: RunConfig, method: Method | None = None) -> Learner:
    method = method or make_method(config)
    network = method.build_network(lambda: case.build(spec))
    return Learner(network=network, method=method, config=config, batch_frames=48, total_frames=None)


def make_batches(case: Case, core_size: int, *, grown: bool) -> list[Batch]:
    rows, layout = random_unrolls(case.old, slots=24, core_size=core_size)
    spec = case.new if grown else case.old
    rows = case.spaces.unroll(rows) if grown else rows
    is_replay = np.arange(8) % 2 == 1
    whole = UnrollLayout(spec, layout.unroll_steps, core_size)
    return [make_batch(rows[start : start + 8], is_replay, whole, 0.9, "none") for start in (0, 8, 16)]


def visit(index: int) -> Visit:
    return Visit(index, ("a",) if index == 0 else ("b",), 100, 0, 1000)


def train(learner: Learner, batches: list[Batch], *, index: int, times: int) -> list[dict[str, float]]:
    told = visit(index) if learner.method.needs_boundaries else None
    return [learner.update(batches[n % len(batches)], told).loss for n in range(times)]


def grow(old: Learner, case: Case, config: RunConfig, **kept: bool) -> tuple[Learner, NetworkGrowth]:
    new, tensors = make_learner(case, case.new, config), old.tensors()
    growth = NetworkGrowth(old.network, new.network, case.spaces)
    names = [name for name, _ in as_module(old.network).named_parameters()]
    kept = {"optimizer": True, "method": True, **kept}
    new.take_over(grown_tensors(tensors, names, new, growth, **kept), old.state(), **kept)
    return new, growth


METHODS = ["clear", "l2-init+clear", "ewc+clear", "continual-backprop+clear", "l2-init+ewc+clear"]
# Larger images and further choices are left out: there old unrolls, too, move weights that are new.
GROWING = ["both, with a memory", "channels", "record without images", "reals", "masks of states"]


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("method", [*METHODS, "online-ewc+clear", "progress-compress+clear"])
def test_it_goes_on_as_if_it_had_not_grown(method: str, name: str, optimizer: str) -> None:
    case = CASES[name]
    config = RunConfig(**SETTINGS, method=method, optimizer=optimizer, lstm=bool(case.network.get("lstm")))
    old = make_learner(case, case.old, config)
    small = make_batches(case, old.network.core_size, grown=False)
    train(old, small, index=0, times=5)
    train(old, small, index=1, times=4)
    new, growth = grow(old, case, config)
    large = make_batches(case, new.network.core_size, grown=True)
    # Into a third visit, where that changes nothing by itself: the experience of its Fisher has grown as well. Of real
    # numbers a Fisher samples more where there are more.
    index = 2 if method in METHODS and not case.old.action.reals else 1
    before, after = (train(each, batches, index=index, times=4) for each, batches in ((old, small), (new, large)))
    for one, other in zip(before, after, strict=True):
        assert one == pytest.approx(other, rel=2e-3, abs=1e-5)
    assert new.updates == old.updates == 13
    for key, tensor in as_module(old.network).state_dict().items():
        there = growth.padded(key, torch.ones_like(tensor), torch.zeros_like(growth.fresh[key])) > 0
        inside = as_module(new.network).state_dict()[key][there].view(tensor.shape)
        assert (inside - tensor).abs().max() < 2e-3, key


def test_new_weights_are_moved_as_far_as_at_the_start_of_a_run() -> None:
    """With the step count of the old ones, Adam's first steps would be three times too long."""
    case, config = CASES["longer vector"], RunConfig(**SETTINGS, method="clear", learning_rate=1e-3)
    old = make_learner(case, case.old, config)
    train(old, make_batches(case, 0, grown=False), index=0, times=50)
    new, _ = grow(old, case, config)
    rows, layout = random_unrolls(case.new, slots=8)
    new.update(make_batch(rows, np.arange(8) % 2 == 1, layout, 0.9, "none"), None)
    moved = as_module(new.network).get_parameter("torso.stages.0.linear.weight")[:, 4:].abs()
    assert 0.9e-3 < moved.max() < 1.1e-3


def test_what_is_not_kept_starts_anew() -> None:
    case, config = CASES["more actions"], RunConfig(**SETTINGS, method="l2-init+clear")
    old = make_learner(case, case.old, config)
    train(old, make_batches(case, 0, grown=False), index=0, times=3)
    new, growth = grow(old, case, config, optimizer=False, method=False)
    assert not new.optimizer.tensors()
    fresh = make_learner(case, case.new, config).method.tensors()
    assert all(torch.equal(tensor, fresh[name]) for name, tensor in new.method.tensors().items())
    weights = as_module(new.network).state_dict()
    for name, tensor in as_module(old.network).state_dict().items():
        assert torch.equal(weights[name], growth.padded(name, tensor, growth.fresh[name])), name


class Keeps(Clear):
    """A method of a user's own, with state that nobody knows the meaning of."""

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"something": torch.zeros(3)}

    def restore(self, *arguments: Any) -> None: ...


def test_a_method_that_does_not_say_how_its_state_grows_is_refused_by_name() -> None:
    case, config = CASES["more actions"], RunConfig(**SETTINGS)
    old, new = (make_learner(case, spec, config, Keeps()) for spec in (case.old, case.new))
    growth = NetworkGrowth(old.network, new.network, case.spaces)
    with pytest.raises(ConfigError, match="CLEAR keeps state of the old network and does not say how it grows"):
        grown_tensors(old.tensors(), [], new, growth, optimizer=False, method=True)
