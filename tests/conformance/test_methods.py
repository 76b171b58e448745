"""What every method must do, and every combination of methods: tested the day that it is registered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.methods import CORRECTIONS, METHODS, make_method, method_spellings
from clearl.methods.method import Wrapper
from clearl.spaces import TaskSpec
from clearl.testing import METHOD_CHECKS
from clearl.testing.methods import CONTINUOUS, JOINT, SPEC

SPECS = {"discrete": SPEC, "continuous": CONTINUOUS, "joint": JOINT}
WRAPPERS = [name for name in METHODS if issubclass(METHODS.get(name), Wrapper)]


@pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))
@pytest.mark.parametrize("lstm", [False, True], ids=["feedforward", "lstm"])
@pytest.mark.parametrize("name", method_spellings())
@pytest.mark.parametrize("check", METHOD_CHECKS, ids=lambda check: check.__name__)
def test_a_method(check: Callable[..., None], name: str, lstm: bool, spec: TaskSpec) -> None:
    check(name, lstm, spec)


@pytest.mark.parametrize("lstm", [False, True], ids=["feedforward", "lstm"])
@pytest.mark.parametrize("name", ["clear", "ewc+clear", "progress-compress+clear"])
def test_a_method_with_scaled_returns(name: str, lstm: bool) -> None:
    for check in METHOD_CHECKS:
        check(name, lstm, scale_returns=True)


@pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))
@pytest.mark.parametrize("correction", list(CORRECTIONS))
@pytest.mark.parametrize("check", METHOD_CHECKS, ids=lambda check: check.__name__)
def test_a_correction(check: Callable[..., None], correction: str, spec: TaskSpec) -> None:
    check("clear", False, spec, correction=correction)


@pytest.mark.parametrize("outer", WRAPPERS)
@pytest.mark.parametrize("inner", WRAPPERS)
def test_two_wrappers_combine_or_say_why_not(outer: str, inner: str) -> None:
    spelling = f"{outer}+{inner}+clear"
    try:
        make_method(RunConfig(method=spelling))
    except ConfigError:
        return
    for check in METHOD_CHECKS:
        try:
            check(spelling, False)
        except ConfigError as error:
            assert "continual-backprop" in str(error), "a network that it does not know"
