"""What every protocol must do, tested for all that are registered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clearl.protocols import PROTOCOLS
from clearl.tasks.plan import Plan, single
from clearl.testing import check_protocol

# Settings without which a protocol refuses to plan.
NEEDED: dict[str, dict[str, Any]] = {"probe": {"probe_task": "c", "probe_position": 2}}


@pytest.fixture
def a_schedule(tmp_path: Path) -> str:
    file = tmp_path / "schedule.yaml"
    file.write_text("segments: [{tasks: [b, a], frames: 10}, {tasks: [c], frames: 20}]")
    return str(file)


@pytest.mark.parametrize("name", list(PROTOCOLS))
def test_a_protocol(name: str, a_schedule: str) -> None:
    needed = {**NEEDED, "schedule": {"schedule": a_schedule}}
    check_protocol(name, **needed.get(name, {}))


def test_a_protocol_that_leaves_out_a_task_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        PROTOCOLS._entries, "lazy", lambda tasks, config: [Plan("lazy", (single(tasks[0], frames=1),), tuple(tasks))]
    )
    with pytest.raises(AssertionError, match="every task is trained"):
        check_protocol("lazy")
