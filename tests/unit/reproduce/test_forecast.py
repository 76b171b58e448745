"""The forecast counts what an update costs: arms with more replay on top take longer."""

from __future__ import annotations

import pytest

from clearl.config import RunConfig
from clearl.reproduce import forecast


def test_arms_with_larger_updates_are_measured_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[str, str]] = []

    def measure(config: RunConfig, seconds: float) -> float:
        measured.append((config.method, config.pairs))
        return 100.0 if config.pairs == "either" else 25.0

    monkeypatch.setattr(forecast, "measure", measure)
    configs = [RunConfig(method="baseline"), RunConfig(), RunConfig(pairs="both"), RunConfig(pairs="both", seed=1)]
    assert forecast._speed(configs, [1000, 1000, 500, 500], 1.0) == pytest.approx(3000 / (20 + 40))
    assert measured == [("clear", "either"), ("clear", "both")]
