"""What every method must do, and every combination of methods: tested the day that it is registered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clearl.config import RunConfig, settings_of
from clearl.errors import ConfigError
from clearl.methods import CORRECTIONS, METHODS, make_method, method_spellings
from clearl.methods.method import Wrapper
from clearl.spaces import TaskSpec
from clearl.testing import METHOD_CHECKS
from clearl.testing.methods import CONTINUOUS, JOINT, SPEC, a_learner

SPECS = {"discrete": SPEC, "continuous": CONTINUOUS, "joint": JOINT}
WRAPPERS = [name for name in METHODS if issubclass(METHODS.get(name), Wrapper)]
REPLAYING = [name for name in method_spellings() if make_method(RunConfig(method=name)).replay_fraction > 0]
REPLAYING_BASES = [name for name in METHODS if name in REPLAYING and name not in WRAPPERS]
CORRECTED = [name for name in REPLAYING_BASES if (own := METHODS.settings(name)) and "correction" in settings_of(own)]


@pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))
@pytest.mark.parametrize("lstm", [False, True], ids=["feedforward", "lstm"])
@pytest.mark.parametrize("name", method_spellings())
@pytest.mark.parametrize("check", METHOD_CHECKS, ids=lambda check: check.__name__)
def test_a_method(check: Callable[..., None], name: str, lstm: bool, spec: TaskSpec) -> None:
    check(name, lstm, spec)


@pytest.mark.parametrize("lstm", [False, True], ids=["feedforward", "lstm"])
@pytest.mark.parametrize("name", REPLAYING)
def test_a_method_with_scaled_returns(name: str, lstm: bool) -> None:
    for check in METHOD_CHECKS:
        check(name, lstm, scale_returns=True)


@pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))
@pytest.mark.parametrize("correction", list(CORRECTIONS))
@pytest.mark.parametrize("base", CORRECTED)
@pytest.mark.parametrize("check", METHOD_CHECKS, ids=lambda check: check.__name__)
def test_a_correction(check: Callable[..., None], base: str, correction: str, spec: TaskSpec) -> None:
    check(base, False, spec, correction=correction)


@pytest.mark.parametrize("outer", WRAPPERS)
@pytest.mark.parametrize("inner", WRAPPERS)
@pytest.mark.parametrize("base", REPLAYING_BASES)
def test_two_wrappers_combine_or_say_why_not(outer: str, inner: str, base: str) -> None:
    spelling = f"{outer}+{inner}+{base}"
    try:
        a_learner(spelling, False)
    except ConfigError as error:
        called = {outer, inner, METHODS.get(outer).label, METHODS.get(inner).label}
        assert any(name in str(error) for name in called), f"a refusal names who cannot be combined: {error}"
        return
    for check in METHOD_CHECKS:
        check(spelling, False)


def test_the_registry_has_what_these_tests_are_for() -> None:
    assert WRAPPERS and CORRECTED and set(CORRECTED) <= set(REPLAYING_BASES) < set(REPLAYING) < set(method_spellings())
