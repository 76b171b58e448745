"""Drawings of the concepts: the flow of data, the processes of a run, unroll, pair, reservoir, plan, columns."""

from __future__ import annotations

import numpy as np
from canvas import FAINT, GREY, TASKS, Canvas

from clearl.replay.reservoir import Reservoir
from clearl.seeding import unroll_numbers

BLUE, ORANGE, GREEN = TASKS[:3]


def flow() -> Canvas:
    """Data flows one way; only weights flow back."""
    c = Canvas(760, 190, "Data flows one way, from suite to records; only weights flow back")
    parts = [
        ("suite", "tasks"),
        ("actor", "steps slots"),
        ("replay", "shard per slot"),
        ("learner", "losses"),
        ("records", "rows"),
    ]
    for i, (name, note) in enumerate(parts):
        c.box(
            20 + i * 148,
            50,
            108,
            52,
            f"{name}\n{note}",
            size=13,
            fill="#eaf3fa" if name in ("replay", "learner") else "#f4f6f8",
        )
        if i < 4:
            c.line((128 + i * 148, 76), (166 + i * 148, 76), arrow=True)
    for i, label in enumerate(("Task", "Unroll", "pairs", "")):
        c.text(147 + i * 148, 42, label, size=12, colour=GREY, anchor="middle")
    c.line((518, 102), (518, 138), (222, 138), (222, 104), arrow=True, colour=ORANGE)
    c.text(370, 156, "weights", size=12, colour=ORANGE, anchor="middle")
    c.line((540, 102), (540, 138), (586, 138), arrow=True)
    c.box(588, 122, 100, 32, "evaluator", size=13)
    c.line((688, 138), (720, 138), (720, 104), arrow=True)
    return c


def processes() -> Canvas:
    """The processes of a run with runtime `local`, and all that passes between them."""
    c = Canvas(
        760,
        380,
        "Runtime local: learner, workers and evaluator are processes; messages, pairs and weights between them",
    )
    _process(c, (14, 30, 200, 222), "learner", "the process of the command", "grants frames along the plan",
             "learns from pairs", "restarts children", "writes rows and checkpoints")  # fmt: skip
    c.box(554, 22, 192, 114)  # behind the first worker: there are several
    _process(c, (546, 30, 192, 114), "workers", "some slots each:", "environments, policy, shards")
    _process(c, (546, 172, 192, 80), "evaluator", "plays all tasks with", "one version of the weights")
    for y, words, forth in ((52, "grant", True), (74, "report, heartbeat", False), (194, "evaluate", True),
                            (216, "scores, heartbeat", False)):  # fmt: skip
        ends = ((214, y), (544, y)) if forth else ((546, y), (216, y))
        c.line(*ends, arrow=True)
        c.text(380, y - 5, words, size=12, colour=GREY, anchor="middle")
    c.box(325, 84, 110, 25, "pairs", size=13, fill="#eaf3fa", stroke=BLUE)
    c.line((546, 96.5), (437, 96.5), arrow=True, colour=BLUE)
    c.line((325, 96.5), (216, 96.5), arrow=True, colour=BLUE)
    for y in (115, 224):
        c.box(325, y, 110, 25, "weights", size=13, fill="#fdf0e6", stroke=ORANGE)
        c.line((214, y + 12.5), (323, y + 12.5), arrow=True, colour=ORANGE)
        c.line((435, y + 12.5), (544, y + 12.5), arrow=True, colour=ORANGE)
    c.line((114, 252), (114, 292), arrow=True)
    c.box(14, 294, 200, 34, "metrics.jsonl, checkpoints/", size=12.5, fill="#fff")
    c.line((746, 110), (754, 110), (754, 311), (740, 311), arrow=True)
    c.box(546, 294, 192, 34, "replay/slot-*", size=12.5, fill="#fff")
    c.line((190, 252), (190, 272), (380, 272), (380, 284), arrow=True)
    _process(c, (285, 286, 190, 54), "guard", "ends what is left behind")
    legend = "grey: processes, with their messages; coloured: shared memory; white: files"
    c.text(380, 366, legend, size=12, colour=GREY, anchor="middle")
    return c


def _process(c: Canvas, place: tuple[float, float, float, float], name: str, *lines: str) -> None:
    """Draw a process: its name and what it does."""
    x, y, width, height = place
    c.box(x, y, width, height)
    c.text(x + width / 2, y + 22, name, anchor="middle", bold=True)
    for i, line in enumerate(lines):
        c.text(x + width / 2, y + 41 + i * 17, line, size=12, anchor="middle")


def unroll() -> Canvas:
    """T steps of one slot, with everything V-trace needs."""
    c = Canvas(760, 210, "An unroll: T steps of one slot, each with observation, action, reward, policy and value")
    rows = ("observation", "action, reward", "policy μ, value V")
    for j, label in enumerate(rows):
        c.text(16, 62 + j * 40, label, size=13)
    for i in range(5):
        x = 160 + i * 106
        c.text(x + 42, 26, ("s = 0", "1", "2", "…", "T − 1")[i], size=12, colour=GREY, anchor="middle")
        for j, words in enumerate(("h", "a, r", "μ, V")):
            c.box(x, 40 + j * 40, 84, 32, "…" if i == 3 else words, size=13, fill=("#eaf3fa", "#fdf0e6", "#e8f5f0")[j])
    c.box(690, 40, 56, 32, "h", size=13, fill="#fff")
    c.text(718, 26, "T", size=12, colour=GREY, anchor="middle")
    c.text(718, 92, "bootstrap", size=12, colour=GREY, anchor="middle")
    c.line((160, 172), (668, 172), colour=GREY)
    c.text(
        414,
        192,
        "one unroll = unroll_steps (T) decisions, stored and replayed as a whole",
        size=12,
        colour=GREY,
        anchor="middle",
    )
    return c


def pair() -> Canvas:
    """Every slot sends a new unroll and one of its past; the learner takes one of each pair, or both."""
    c = Canvas(760, 270, "Slots send pairs of a new and a replayed unroll; a batch takes one of each pair, or both")
    c.text(92, 26, "slot", size=13, anchor="middle", bold=True)
    c.text(300, 26, "pair", size=13, anchor="middle", bold=True)
    c.text(500, 26, "pairs: either", size=13, anchor="middle", bold=True)
    c.text(668, 26, "pairs: both", size=13, anchor="middle", bold=True)
    taken = (True, False, True, False)
    for i, new in enumerate(taken):
        y = 42 + i * 52
        c.box(12, y, 92, 38, "environment", size=12)
        c.box(110, y, 60, 38, "shard", size=12, fill="#eaf3fa")
        c.line((172, y + 19), (222, y + 19), arrow=True)
        c.box(226, y, 70, 38, "new", size=13, fill="#fdf0e6", stroke=ORANGE)
        c.box(302, y, 70, 38, "replay", size=13, fill="#eaf3fa", stroke=BLUE)
        c.line((374, y + 19), (452, y + 19), arrow=True)
        c.box(
            456,
            y,
            86,
            38,
            "new" if new else "replay",
            size=13,
            fill="#fdf0e6" if new else "#eaf3fa",
            stroke=ORANGE if new else BLUE,
        )
        c.box(596, y, 68, 38, "new", size=13, fill="#fdf0e6", stroke=ORANGE)
        c.box(672, y, 68, 38, "replay", size=13, fill="#eaf3fa", stroke=BLUE)
    c.text(480, 260, "B unrolls, half of them replay", size=12, colour=GREY, anchor="middle")
    c.text(672, 260, "B new, and replay on top", size=12, colour=GREY, anchor="middle")
    return c


def reservoir(unrolls: int = 96, capacity: int = 24) -> Canvas:
    """Which unrolls of a stream stay: those with the highest random numbers. The numbers are real ones."""
    stream = 2
    c = Canvas(
        760, 250, f"A reservoir of {capacity} out of {unrolls} unrolls: those with the highest random numbers stay"
    )
    numbers = unroll_numbers(stream, np.arange(unrolls, dtype=np.uint64)).astype(float) / 2.0**64
    held = Reservoir(stream, capacity)
    held.advance(unrolls)
    kept = set(held.sequences.tolist())
    lowest = min(float(numbers[i]) for i in kept)
    base, top, step = 200.0, 40.0, 640 / unrolls
    for i, number in enumerate(numbers):
        x, height = 30 + i * step, number * (base - top)
        colour = TASKS[i * 3 // unrolls]
        c.box(x, base - height, step - 3, height, fill=colour if i in kept else FAINT, stroke=colour, radius=1.5)
    limit = base - lowest * (base - top)
    c.line((24, limit), (674, limit), dashed=True)
    c.text(682, limit + 4, "threshold", size=12, colour=GREY)
    for i, name in enumerate(("first task", "second task", "third task")):
        share = sum(1 for k in kept if k * 3 // unrolls == i)
        c.text(
            30 + (i + 0.5) * 640 / 3,
            226,
            f"{name}: {share} of {capacity} kept",
            size=12,
            colour=TASKS[i],
            anchor="middle",
        )
    c.text(30, 24, "random number of each unroll, in the order of experience", size=12, colour=GREY)
    return c


def plan() -> Canvas:
    """The words of a plan: segment, visit, switch, absence."""
    c = Canvas(760, 200, "A plan: segments of training, visits to tasks, switches between them, absences")
    names, width = ("A", "B", "C"), 112.0
    for i in range(6):
        c.box(50 + i * width, 60, width - 3, 40, names[i % 3], fill=TASKS[i % 3], colour="#fff", size=15, stroke="#fff")
    c.text(50 + width / 2, 46, "segment = visit", size=12, colour=GREY, anchor="middle")
    c.line((50 + 2 * width - 1.5, 52), (50 + 2 * width - 1.5, 108), colour="#000", width=2)
    c.text(50 + 2 * width, 46, "switch", size=12, colour=GREY, anchor="middle")
    c.line((50 + width, 122), (50 + 3 * width, 122), colour=BLUE, arrow=True)
    c.text(50 + 2 * width, 140, "absence of A", size=12, colour=BLUE, anchor="middle")
    c.line((50, 164), (50 + 3 * width - 3, 164))
    c.line((50 + 3 * width, 164), (50 + 6 * width - 3, 164))
    c.text(50 + 1.5 * width, 184, "cycle 1", size=12, colour=GREY, anchor="middle")
    c.text(50 + 4.5 * width, 184, "cycle 2", size=12, colour=GREY, anchor="middle")
    return c


def progress_compress() -> Canvas:
    """Progress and compress, side by side."""
    c = Canvas(
        760, 210, "Progress: the knowledge base feeds the active column. Compress: the active column is distilled back"
    )
    for at, (name, training) in enumerate((("progress", "active"), ("compress", "base"))):
        x = 20 + at * 380
        c.text(x, 30, name, size=15, bold=True)
        for label, dx, colour, kind in (("knowledge base", 0, BLUE, "base"), ("active column", 200, ORANGE, "active")):
            trains = kind == training
            c.box(x + dx, 50, 130, 100, f"{label}\n{'trained' if trains else 'frozen'}", size=13, stroke=colour,
                  fill=("#eaf3fa" if kind == "base" else "#fdf0e6") if trains else "#f4f6f8")  # fmt: skip
        ends = ((x + 132, 100), (x + 196, 100)) if training == "active" else ((x + 198, 100), (x + 134, 100))
        c.line(*ends, arrow=True)
        c.text(x + 165, 90, "adaptors" if training == "active" else "KL", size=12, colour=GREY, anchor="middle")
        c.text(
            x,
            176,
            ("losses of the base method, on the visit's frames", "distillation, held by online EWC")[at],
            size=12,
            colour=GREY,
        )
    return c


def drawings() -> dict[str, Canvas]:
    """Every drawing by its file's name."""
    kinds = (flow, processes, unroll, pair, reservoir, plan, progress_compress)
    return {kind.__name__.replace("_", "-"): kind() for kind in kinds}
