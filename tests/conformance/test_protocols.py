"""What every protocol must do, tested for all that are registered."""

from __future__ import annotations

from typing import Any

import pytest

from clearl.protocols import PROTOCOLS
from clearl.tasks.plan import Plan, single
from clearl.testing import check_protocol

# Settings without which a protocol refuses to plan.
NEEDED: dict[str, dict[str, Any]] = {"probe": {"probe_task": "c", "probe_position": 2}}


@pytest.mark.parametrize("name", list(PROTOCOLS))
def test_a_protocol(name: str) -> None:
    check_protocol(name, **NEEDED.get(name, {}))


def test_a_protocol_that_leaves_out_a_task_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        PROTOCOLS._entries, "lazy", lambda tasks, config: [Plan("lazy", (single(tasks[0], frames=1),), tuple(tasks))]
    )
    with pytest.raises(AssertionError, match="every task is trained"):
        check_protocol("lazy")
