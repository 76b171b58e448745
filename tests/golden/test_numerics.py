"""Parameters after short inline runs of every method, bit for bit as commit d9b0d62 computed them.

A change of numerics on purpose replaces the digests of the cases concerned (`python tests/support/numerics.py CASE...`
with the environment of `numerics.ENVIRONMENT`) and says why in `numerics.json`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numerics
import pytest

GOLDEN = json.loads(Path(__file__).with_name("numerics.json").read_text())


@pytest.fixture(scope="module")
def digests() -> dict[str, dict[str, object]]:
    root = Path(__file__).parents[2]
    environment = {**os.environ, **numerics.ENVIRONMENT, "PYTHONPATH": f"{root / 'src'}"}
    command = [sys.executable, str(Path(numerics.__file__))]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize("case", numerics.CASES)
def test_parameters_and_returns_are_those_of_the_golden_run(case: str, digests: dict[str, dict[str, object]]) -> None:
    assert digests[case] == GOLDEN["digests"][case]


def test_every_case_is_pinned() -> None:
    assert GOLDEN["digests"].keys() == numerics.CASES.keys()
