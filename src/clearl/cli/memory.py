"""`clearl memory`: what a run remembers, task by task."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from clearl.cli.arguments import POSITIONAL, parse
from clearl.cli.output import tell, warn

if TYPE_CHECKING:
    from clearl.memory import Memory

ABOUT = """Show what the replay buffer of a run holds: unrolls, frames, bytes, ages and returns by task. Only reads the
run, during training or afterwards, and names damaged files."""
_HEAD = ("task", "unrolls", "share", "frames", "bytes", "median age", "return")
_WIDTHS = (8, 6, 9, 9, 11, 8)
_TASK_WIDTH = 80 - sum(_WIDTHS) - len(_WIDTHS)


@dataclass(frozen=True)
class MemoryArgs:
    """Flags of `clearl memory`."""

    run: Annotated[str, POSITIONAL, "the run directory"]
    json: Annotated[bool, "print JSON instead of the table"] = False
    figure: Annotated[str | None, "draw ages and returns to this file (.png, .svg or .pdf)"] = None


def main(argv: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = parse(MemoryArgs, argv, verb="memory", about=ABOUT)

    from clearl.memory import read_memory

    memory = read_memory(Path(args.run))
    for problem in memory.problems:
        warn(problem)
    tell(json.dumps(as_json(memory), indent=2) if args.json else "\n".join(table(memory)))
    if args.figure:
        from clearl.report.memory_figure import draw_memory

        played = {name: task.played_frames for name, task in memory.tasks.items()}
        draw_memory(Path(args.figure), played, {name: task.returns for name, task in memory.tasks.items()})
        warn(f"figure: {args.figure}")
    return 0


def as_json(memory: Memory) -> dict[str, Any]:
    """Return what `--json` prints."""
    names = (
        "unrolls",
        "frames",
        "nbytes",
        "median_age_frames",
        "oldest_age_frames",
        "newest_age_frames",
        "mean_return",
    )
    return {
        "v": 1,
        "run": str(memory.path),
        "frames": memory.now_frames,
        "unroll_frames": memory.unroll_frames,
        "disk_nbytes": memory.disk_nbytes,
        "lost": memory.lost,
        "damaged": list(memory.problems),
        "note": memory.note,
        "tasks": {task: {name: getattr(each, name) for name in names} for task, each in memory.tasks.items()},
    }


def table(memory: Memory) -> list[str]:
    """Return the lines of the table, at most 80 columns wide."""
    from clearl.records.names import clean_name
    from clearl.replay.forecast import human_nbytes

    lines = [f"at {memory.now_frames:,} frames: {memory.unrolls:,} unrolls of {memory.unroll_frames:,} frames"]
    if memory.disk_nbytes is not None:
        lines[0] += f", {human_nbytes(memory.disk_nbytes)} on disk"
    if memory.note:
        lines.append(memory.note)
    if memory.lost:
        lines.append(f"{memory.lost:,} unrolls are lost: they were damaged or removed")
    if not memory.tasks:
        return lines
    rows = [
        (
            clean_name(task), f"{each.unrolls:,}", f"{each.unrolls / max(1, memory.unrolls):.0%}", f"{each.frames:,}",
            "-" if each.nbytes is None else human_nbytes(each.nbytes),
            "-" if each.median_age_frames is None else f"{each.median_age_frames:,}",
            "-" if each.mean_return is None else f"{each.mean_return:.2f}",
        )
        for task, each in memory.tasks.items()
    ]  # fmt: skip
    return [*lines, "", *(_line(row) for row in (_HEAD, *rows))]


def _line(row: tuple[str, ...]) -> str:
    task = row[0] if len(row[0]) <= _TASK_WIDTH else row[0][: _TASK_WIDTH - 3] + "..."
    return task.ljust(_TASK_WIDTH) + "".join(f" {cell:>{width}}" for cell, width in zip(row[1:], _WIDTHS, strict=True))
