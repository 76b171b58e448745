"""`clearl run --dry-run`: the plan drawn in the terminal, a line for each task, frames from left to right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clearl.tasks.plan import Plan, Segment

_SHADES = " ░▒▓█"
_ASCII_SHADES = " .:*#"
_WIDTH = 72


def draw_plans(plans: Sequence[Plan], *, plain: bool = False) -> str:
    """Return every plan with its tasks, lengths and shares; `plain` for terminals that have only ASCII."""
    return "\n\n".join(_draw(plan, _ASCII_SHADES if plain else _SHADES) for plan in plans)


def _draw(plan: Plan, shades: str) -> str:
    tasks = list(dict.fromkeys(task for segment in plan.segments for task in segment.tasks))
    width = max(map(len, tasks))
    lines = [_heading(plan)]
    columns = list(_columns(plan))
    for task in tasks:
        shares = [segment.weights_at(share)[segment.tasks.index(task)] if task in segment.tasks else 0.0
                  for segment, share in columns]  # fmt: skip
        lines.append(f"  {task:<{width}} |{''.join(_shade(share, shades) for share in shares)}|")
    return "\n".join(lines)


def _heading(plan: Plan) -> str:
    count = f"{len(plan.segments)} segment{'s' if len(plan.segments) != 1 else ''}"
    length = f"{plan.cycle_frames:,} frames" if plan.cycle_frames is not None else "as long as their episodes take"
    again = ", over and over" if plan.forever else ""
    if plan.forever and plan.past_segments:
        again += f" from segment {plan.past_segments + 1}"
    evaluated = "1 task is evaluated" if len(plan.evaluate) == 1 else f"{len(plan.evaluate)} tasks are evaluated"
    return f"{plan.name}: {count}, {length}{again}; {evaluated}"


def _columns(plan: Plan) -> Iterator[tuple[Segment, float]]:
    """Yield the segment under each column and the share of it that has passed; by episodes, all are equally wide."""
    by_frames = plan.cycle_frames is not None
    lengths = [float(segment.frames or 0) if by_frames else 1.0 for segment in plan.segments]
    total, index, start = sum(lengths), 0, 0.0
    for column in range(_WIDTH):
        position = (column + 0.5) / _WIDTH * total
        while position >= start + lengths[index] and index < len(lengths) - 1:
            start += lengths[index]
            index += 1
        yield plan.segments[index], min(1.0, (position - start) / lengths[index])


def _shade(share: float, shades: str) -> str:
    return shades[min(len(shades) - 1, round(share * (len(shades) - 1)))]
