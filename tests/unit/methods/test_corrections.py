"""Corrections in CLEAR: chosen by name, and cloning goes on where a step is rejected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from clearl.config import RunConfig
from clearl.errors import ConfigError, UnknownNameError
from clearl.methods import CORRECTIONS, make_method
from clearl.methods.clear import Clear
from clearl.methods.corrections import LeakyVtrace, Trace, TrustRegion, Vtrace, weighted_targets
from clearl.nets.network import build_network
from clearl.spaces import discrete_spec
from clearl.types import Batch

SPEC = discrete_spec((4,), "float32", 3)


@pytest.mark.parametrize("name", list(CORRECTIONS))
def test_a_correction_is_chosen_by_name_with_its_settings(name: str) -> None:
    method = make_method(RunConfig(method="clear", correction=name, rho_bar=2.0))
    assert isinstance(method, Clear) and isinstance(method.correction, CORRECTIONS.get(name))


def test_settings_reach_their_correction() -> None:
    def made(**settings: Any) -> Any:
        method = make_method(RunConfig(**settings))
        assert isinstance(method, Clear)
        return method.correction

    assert made(rho_bar=3.0, c_bar=0.5) == Vtrace(3.0, 0.5)
    assert made(correction="trust-region", trust_region=0.7) == TrustRegion(1.0, 1.0, 0.7)
    assert made(correction="leaky-vtrace", vtrace_leak=0.2) == LeakyVtrace(1.0, 1.0, 0.2)
    with pytest.raises(UnknownNameError, match="unknown correction 'vtraec'; did you mean 'vtrace'"):
        made(correction="vtraec")
    with pytest.raises(ConfigError, match="trust_region must be"):
        RunConfig(trust_region=0)


@dataclass(frozen=True)
class Nothing:
    """A user's own correction: no step is learnt from."""

    @classmethod
    def from_config(cls, config: RunConfig) -> Nothing:
        return cls()

    def __call__(self, trace: Trace) -> tuple[torch.Tensor, torch.Tensor]:
        zero = torch.zeros_like(trace.ratios)
        return weighted_targets(trace, zero, zero)


def test_a_correction_of_a_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CORRECTIONS._entries, "nothing", Nothing)
    method = make_method(RunConfig(correction="nothing"))
    assert isinstance(method, Clear) and method.correction == Nothing()


def test_a_rejected_step_is_cut_from_policy_gradient_and_value_and_still_cloned(a_batch: Callable[..., Batch]) -> None:
    network = build_network(SPEC, torso="mlp", lstm=False, lstm_size=0, seed=1)
    batch = a_batch(SPEC)
    batch = replace(batch, is_replay=torch.ones_like(batch.is_replay))
    names = ("policy_gradient", "value", "policy_cloning", "value_cloning", "entropy")
    usual, strict = (Clear(correction=each).losses(network, batch) for each in (Vtrace(), TrustRegion(1, 1, 1e-12)))
    assert [strict[name].item() == 0 for name in names] == [True, True, False, False, False]
    for name in names[2:]:
        assert torch.equal(usual[name], strict[name])
    (strict["policy_gradient"] + strict["value"]).backward()
    assert all(bool((p.grad == 0).all()) for p in network.parameters() if p.grad is not None)
