from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clearl.runtimes.remote import _loss


@pytest.mark.parametrize(
    ("store", "told"), [("ram", "--replay-store disk keeps them"), ("disk", "run/replay are missing")]
)
def test_lost_replay_is_told_with_a_remedy_that_fits_its_store(store: str, told: str) -> None:
    context: Any = SimpleNamespace(factory=SimpleNamespace(replay_store=store), run_dir=Path("run"))
    assert told in _loss(3, context) and _loss(3, context).startswith("3 unrolls of replay are lost")
    assert ("--replay-store" in _loss(3, context)) == (store == "ram")
