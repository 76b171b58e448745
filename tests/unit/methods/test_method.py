"""The seam of methods: defaults, delegation, and combination by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import clearl.experiment
import clearl.wiring
from clearl.config import RunConfig
from clearl.errors import ConfigError, UnknownNameError
from clearl.experiment import run
from clearl.methods import METHODS, make_method, method_spellings
from clearl.methods.clear import Clear
from clearl.methods.ewc import Ewc
from clearl.methods.method import Method, OptimizerState, Wrapper, layers
from clearl.nets.network import PolicyNetwork
from clearl.types import Batch, Visit


class Counted(Wrapper):
    """Adds nothing, and counts its calls."""

    label = "Counted"

    def __init__(self, base: Method) -> None:
        super().__init__(base)
        self.calls: list[str] = []

    def build_network(self, build: Callable[[], PolicyNetwork]) -> PolicyNetwork:
        self.calls.append("build_network")
        return super().build_network(build)

    def losses(self, network: PolicyNetwork, batch: Batch) -> dict[str, torch.Tensor]:
        self.calls.append("losses")
        return super().losses(network, batch)

    def visit(self, network: PolicyNetwork, visit: Visit) -> None:
        self.calls.append("visit")
        super().visit(network, visit)

    def before_step(self, gradients: Mapping[str, torch.Tensor]) -> None:
        self.calls.append("before_step")
        super().before_step(gradients)

    def after_step(self, network: PolicyNetwork, optimizer: OptimizerState) -> None:
        self.calls.append("after_step")
        super().after_step(network, optimizer)

    def diagnostics(self) -> dict[str, float]:
        return {**super().diagnostics(), "calls": float(len(self.calls))}

    def own_tensors(self) -> dict[str, torch.Tensor]:
        return {"calls": torch.tensor(len(self.calls))}

    def own_state(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def restore_own(
        self, network: PolicyNetwork, tensors: Mapping[str, torch.Tensor], state: Mapping[str, Any]
    ) -> None:
        assert tensors["calls"] == len(state["calls"])
        self.calls = list(state["calls"])


def test_a_wrapper_is_its_base_where_it_says_nothing() -> None:
    base = Clear(replay_fraction=0.25)
    wrapped = Wrapper(base)
    assert wrapped.replay_fraction == 0.25 and not wrapped.needs_boundaries
    assert wrapped.weights() == base.weights() and wrapped.diagnostics() == {}
    assert Wrapper(Ewc(base)).needs_boundaries, "the base must be told of visits"
    assert layers(wrapped) == [wrapped, base]


def test_every_layer_keeps_its_own_state() -> None:
    one = Counted(Counted(Clear()))
    assert isinstance(one.base, Counted)
    one.calls, one.base.calls = ["a"], ["b", "c"]
    assert set(one.tensors()) == {"calls", "base/calls"}
    assert one.state() == {"base": {"base": {}, "calls": ["b", "c"]}, "calls": ["a"]}
    two = Counted(Counted(Clear()))
    network: Any = None
    two.restore(network, one.tensors(), one.state())
    assert isinstance(two.base, Counted) and (two.calls, two.base.calls) == (["a"], ["b", "c"])
    assert two.diagnostics() == {"calls": 1.0}


def test_names_combine_outermost_first() -> None:
    kinds = [type(layer).__name__ for layer in layers(make_method(RunConfig(method="ewc+clear")))]
    assert kinds == ["Ewc", "Clear"]
    kinds = [type(layer).__name__ for layer in layers(make_method(RunConfig(method="ewc")))]
    assert kinds == ["Ewc", "Baseline"]
    assert "ewc+clear" in method_spellings() and "clear" in method_spellings()


def test_three_names_combine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS._entries, "counted", Counted)
    kinds = [type(layer).__name__ for layer in layers(make_method(RunConfig(method="counted+ewc+clear")))]
    assert kinds == ["Counted", "Ewc", "Clear"]
    assert "counted+clear" in method_spellings()


@pytest.mark.parametrize(
    ("spelling", "text"),
    [
        ("clear+ewc", "'clear' wraps no other method"),
        ("ewc+ewc+clear", "twice"),
        ("ewc+online-ewc+clear", "both add the loss term 'ewc'"),
        ("ewc+progress-compress", "both add the loss term 'ewc'"),
    ],
)
def test_names_that_do_not_combine_are_refused(spelling: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make_method(RunConfig(method=spelling))


@pytest.mark.parametrize("spelling", ["ewd+clear", "ewc+", "+clear", "ewc+cleer"])
def test_an_unknown_part_of_a_name_is_refused(spelling: str) -> None:
    with pytest.raises(UnknownNameError, match="unknown method"):
        make_method(RunConfig(method=spelling))


def test_the_instance_that_trains_built_the_network_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Counted] = []

    def make(config: RunConfig) -> Method:
        made.append(Counted(Clear.from_config(config)))
        return made[-1]

    monkeypatch.setattr(clearl.wiring, "make_method", make)
    monkeypatch.setattr(clearl.experiment, "make_method", make)
    config = RunConfig(
        tasks=("breakout",), runtime="inline", slots=4, batch_unrolls=4, unroll_steps=5, frames_per_visit=40,
        eval_every_frames=40, eval_episodes=1, eval_max_steps=20, replay_store="ram",
    )  # fmt: skip
    run(config, tmp_path, console=False)
    (trained,) = [method for method in made if "losses" in method.calls]
    assert trained.calls == ["build_network", *["losses", "before_step", "after_step"] * 2]
    assert len(made) == 2, "the other one is asked for its share of frames when the run is planned"
