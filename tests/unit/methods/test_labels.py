"""Our methods are labelled in reports as they declare it, though reports import no method."""

from __future__ import annotations

import pytest

from clearl.config import RunConfig
from clearl.methods import METHODS, make_method
from clearl.methods.method import full_label
from clearl.report.arms import LABELS


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS.ships(name) and name != "baseline"])
def test_the_reports_table_agrees_with_the_methods(name: str) -> None:
    assert LABELS[name] == METHODS.get(name).label


def test_a_combination_is_named_after_its_parts() -> None:
    labels = {
        name: full_label(make_method(RunConfig(method=name))) for name in ("baseline", "ewc", "l2-init+ewc+clear")
    }
    assert labels == {"baseline": "Baseline", "ewc": "EWC", "l2-init+ewc+clear": "L2 init + EWC + CLEAR"}
