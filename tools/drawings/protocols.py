"""A ribbon for each protocol, drawn from the plan that its code makes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from canvas import GREY, TASKS, Canvas

from clearl.config import resolve
from clearl.protocols import PROTOCOLS
from clearl.tasks.plan import Plan

NAMES = ("A", "B", "C", "D")
SCHEDULE = """segments:
  - {tasks: [A], frames: 300}
  - {tasks: [A, B], weights: [1, 0], end_weights: [0, 1], frames: 150}
  - {tasks: [B, C], frames: 150}
  - {tasks: [C], frames: 100, repeat: 2}
"""
SETTINGS = {"probe": {"probe_task": "D", "probe_position": 2}, "drift": {"drift_shape": "periodic", "cycles": 1}}
LEFT, WIDTH, HEIGHT = 20.0, 720.0, 42.0


def drawings() -> dict[str, Canvas]:
    """Every drawing by its file's name."""
    return {f"protocol-{name}": ribbon(name, _plans(name)) for name in PROTOCOLS}


def _plans(name: str) -> list[Plan]:
    flags = {"protocol": name, "cycles": 2, "frames_per_visit": 100, "seed": 1, **SETTINGS.get(name, {})}
    with tempfile.TemporaryDirectory() as folder:
        if name == "schedule":
            file = Path(folder) / "schedule.yaml"
            file.write_text(SCHEDULE)
            flags |= {"schedule": str(file), "cycles": 1}
        return PROTOCOLS.get(name)(NAMES[:4] if name == "probe" else NAMES[:3], resolve(flags=flags))


def ribbon(name: str, plans: Sequence[Plan]) -> Canvas:
    """Frames from left to right, the share of each task from bottom to top; a ribbon for each network."""
    height = round(18 + len(plans) * (HEIGHT + 8) + 22)
    c = Canvas(760, height, f"The plan of protocol {name}")
    tasks = list(dict.fromkeys(task for plan in plans for segment in plan.segments for task in segment.tasks))
    for row, plan in enumerate(plans):
        _draw(c, plan, 12 + row * (HEIGHT + 8), {task: TASKS[NAMES.index(task)] for task in tasks})
    words = "one network" if len(plans) == 1 else f"{len(plans)} networks"
    c.text(LEFT, height - 8, f"{words}; frames →", size=12, colour=GREY)
    return c


def _draw(c: Canvas, plan: Plan, top: float, colours: dict[str, str]) -> None:
    total, start = float(plan.total_frames or 1), LEFT
    for segment in plan.segments:
        end = start + (segment.frames or 0) / total * WIDTH
        below = (0.0, 0.0)
        for i, task in enumerate(segment.tasks):
            first, last = segment.weights[i], (segment.end_weights or segment.weights)[i]
            above = (below[0] + first, below[1] + last)
            corners = ((start, below[0]), (end - 1.5, below[1]), (end - 1.5, above[1]), (start, above[0]))
            c.area(*((x, top + HEIGHT * (1 - share)) for x, share in corners), fill=colours[task])
            moves = segment.end_weights is not None
            across = (0.25 if first > last else 0.75) if moves else 0.5
            up = 0.5 if moves else (below[0] + above[0]) / 2
            place = (start + (end - start) * across, top + HEIGHT * (1 - up) + 4.5)
            c.text(*place, task, size=12.5, colour="#fff", anchor="middle", bold=True)
            below = above
        start = end
