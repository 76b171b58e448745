"""The live view shows what the rows say, and draws no more often than it may."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from rich.console import Console as RichConsole

from clearl.records import eval_row, fault_row, resume_row, segment_row, summary_row, train_row
from clearl.records.console import Console, plain_line, sparkline
from clearl.records.view import RunView


def _train(frames: int, task: str = "breakout", fps: float = 1000.0):
    return train_row(
        tasks=[task], frames=frames, updates=1, fps=fps, loss={}, lag_updates=0.0, replay={}, wall_s=0.0
    )  # fmt: skip


def _eval(task: str, value: float):
    return eval_row(task=task, frames=0, mean_return=value, episodes=1, updates=0, wall_s=0.0)


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def _console(*, terminal: bool, title: str = "clear, seed 0", tasks: Sequence[str] = ("breakout", "asterix")):
    out = io.StringIO()
    rich = RichConsole(file=out, force_terminal=terminal, width=90, color_system=None, legacy_windows=False)
    clock = _Clock()
    console = Console(title=title, tasks=tasks, total_frames=10_000, out=rich, clock=clock)
    return console, out, clock


@contextmanager
def opened(console: Console) -> Iterator[None]:
    console.open()
    yield
    console.close()


def _feed(console: Console) -> None:
    console.update(segment_row(tasks=["breakout"], start_frames=0, end_frames=5_000, index=0))
    console.update(segment_row(tasks=["asterix"], start_frames=5_000, end_frames=10_000, index=1))
    for value in (0.0, 2.0, 4.0):
        console.update(_eval("breakout", value))
    health = {f"worker-{index}": {"state": "running", "restarts": 0} for index in (0, 1)}
    episodes = {"asterix": {"count": 2, "mean_return": 0.75, "mean_length": 30.0}}
    console.update({**_train(6_000, "asterix"), "health": health, "episodes": episodes, "shares": {"asterix": 0.5},
                    "seconds": {"learner": {"learner": 4.0, "backward": 3.0, "waiting": 1.0}}})  # fmt: skip


def test_the_panel_shows_segment_task_returns_speed_time_and_health():
    console, out, _ = _console(terminal=True)
    with opened(console):
        _feed(console)
        console.update(fault_row(frames=1, worker="worker-1", problem="died", wall_s=0.0))
    last = out.getvalue().rsplit("╭", 1)[-1]
    assert "clear, seed 0" in last
    assert "▶ asterix" in last and "▶ breakout" not in last
    assert "4.00" in last and "▁▅█" in last
    assert "segment 2 of 2, 6,000 of 10,000 frames, 1.0k frames/s, 4 s left" in last
    assert "2 workers, 1 fault survived" in last
    assert "training 0.75, 50% of slots" in last
    assert "learner: backward 75%, waiting 25%" in last


def test_the_end_says_how_many_evaluations_were_skipped():
    console, out, _ = _console(terminal=False)
    with opened(console):
        _feed(console)
        console.update(summary_row({"evaluations": {"made": 10, "skipped": 15}}))
    last = out.getvalue().splitlines()[-1]
    assert last.startswith("15 evaluations were skipped") and last.endswith("--eval-wait makes training wait")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_breaks_said_lines_between_words_and_a_log_has_them_whole(terminal):
    console, out, _ = _console(terminal=terminal)
    console.say("word " * 30)
    assert [line.rstrip() for line in out.getvalue().splitlines()] == (
        ["word" + 17 * " word", "word" + 11 * " word"] if terminal else ["word" + 29 * " word"]
    )


def test_no_terminal_gives_plain_lines_and_no_escapes():
    console, out, _ = _console(terminal=False)
    with opened(console):
        _feed(console)
    lines = out.getvalue().splitlines()
    assert len(lines) == 2  # the first row, and the end
    assert "\x1b" not in out.getvalue()
    assert lines[-1] == (
        "clear, seed 0:  segment 2 of 2, 6,000 of 10,000 frames, 1.0k frames/s, 4 s left  breakout 4.00  2 workers"
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_names_can_neither_break_lines_nor_steer_the_terminal(terminal):
    console, out, _ = _console(terminal=terminal, title="mine\n\x1b[2J", tasks=["walk\n\x1b]0;owned\x07"])
    with opened(console):
        console.update(_eval("walk\n\x1b]0;owned\x07", 1.0))
    said = out.getvalue()
    assert "\x1b[2J" not in said and "\x1b]" not in said and "\x07" not in said and "?]0;owned?" in said
    assert terminal or all(line.startswith("mine??[2J") for line in said.splitlines())


@pytest.mark.parametrize(("terminal", "every_s"), [(True, 0.25), (False, 10.0)])
def test_it_draws_no_more_often_than_it_may(terminal, every_s):
    console, _, clock = _console(terminal=terminal)
    draws = []
    with opened(console):
        real = console._out.print
        console._out.print = lambda *args, **kwargs: draws.append(clock.now) or real(*args, **kwargs)
        if console._live is not None:
            update = console._live.update
            console._live.update = lambda *args, **kwargs: draws.append(clock.now) or update(*args, **kwargs)
        for step in range(1000):
            clock.now = step * every_s / 100
            console.update(_train(step))
        drawn = len(set(draws))
    assert 9 <= drawn <= 11


def test_tasks_that_were_not_announced_and_null_returns():
    view = RunView(("a",), None)
    view.update(_eval("b", 3.0))
    view.update({**_eval("b", 0.0), "return": None})
    assert view.all_tasks == ("a", "b") and list(view.returns["b"]) == [3.0]
    assert view.seconds_left is None and view.segment is None
    assert plain_line("x", view) == "x:  0 frames  b 3.00"


def test_a_segment_by_episodes_counts_once_its_start_is_known():
    view = RunView(("a", "b"), None)
    view.update(segment_row(tasks=["a"], start_frames=0, end_frames=None, index=0))
    view.update(segment_row(tasks=["b"], start_frames=None, end_frames=None, index=1))
    view.update(_train(700))
    assert view.segment == (1, 2)
    view.update(segment_row(tasks=["a"], start_frames=0, end_frames=700, index=0))
    view.update(segment_row(tasks=["b"], start_frames=700, end_frames=None, index=1))
    assert view.segment == (2, 2)


def test_a_run_without_an_end_does_not_count_the_segments_to_come():
    console = Console(title="x", tasks=["a"], total_frames=None, forever=True, out=RichConsole(file=io.StringIO()))
    for index in range(2):
        console.update(segment_row(tasks=["a"], start_frames=index * 500, end_frames=index * 500 + 500, index=index))
    console.update(_train(700))
    assert console.view.segment == (2, None)
    assert plain_line("x", console.view).startswith("x:  segment 2, 700 frames")


def test_time_left_follows_a_smoothed_speed():
    view = RunView((), 10_000)
    view.update(_train(1_000, fps=1000.0))
    view.update(_train(2_000, fps=2000.0))
    assert view.seconds_left == pytest.approx(8_000 / 1200)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], ""), ([0.0, 0.0], "▁▁"), ([0.0, 0.5, 1.0], "▁▅█"), ([-1.0, 0.0, 1.0], "▁▅█"), ([5.0], "█")],
)
def test_sparklines_start_at_zero(values, expected):
    assert sparkline(values) == expected


def test_frames_follow_training_and_evaluation_and_only_rise():
    view = RunView((), 10_000)
    view.update(_train(2_000))
    view.update({**_eval("a", 1.0), "frames": 9_000})
    view.update({**_eval("a", 1.0), "frames": 8_000})
    assert view.frames == 9_000


def test_the_last_diagnosis_stays_in_view_for_new_and_replay() -> None:
    console, out, _ = _console(terminal=True)
    new = {"entropy": 1.25, "clipped_share": 0.125, "kl": 0.011, "grad_norm": 439.0, "value_error": 0.3}
    found = {"new": new, "replay": {**new, "entropy": None, "kl": 0.5}, "terms": {"value": 400.0}}
    with opened(console):
        console.update({**_train(1_000), "diagnostics": found})
        console.update(_train(2_000))
    shown = " ".join(out.getvalue().replace("│", " ").split())
    assert "entropy 1.25 new; clipped ratios 12% new, 12% replay; KL 0.01 new, 0.50 replay; gradient 439.0 new" in shown


def test_a_resumed_run_says_where_and_shows_its_segment_and_the_bar_comes_first():
    console, out, _ = _console(terminal=True)
    with opened(console):
        for row in (
            segment_row(tasks=["breakout"], start_frames=0, end_frames=5_000, index=0),
            segment_row(tasks=["asterix"], start_frames=5_000, end_frames=10_000, index=1),
            _train(9_000, "asterix"),
        ):
            console.view.update(row)
        assert out.getvalue() == ""
        console.update(resume_row(frames=6_000, updates=10, wall_s=1.0))
    lines = out.getvalue().rsplit("╭", 1)[-1].splitlines()
    assert "segment 2 of 2, 6,000 of 10,000 frames" in lines[1] and "resumed at frame" in lines[1]
    assert any("breakout" in line for line in lines[3:])


def test_the_plan_is_drawn_whole():
    console, out, _ = _console(terminal=False)
    with opened(console):
        for index in range(6):
            start = index * 1_000
            console.update(segment_row(tasks=["a"], start_frames=start, end_frames=start + 1_000, index=index))
        console.update(_train(100))
    assert "of 1," not in out.getvalue() and "segment 1 of 6" in out.getvalue()


def test_a_view_of_a_run_without_an_end_keeps_few_segments(monkeypatch):
    monkeypatch.setattr("clearl.records.view._MOST_SEGMENTS", 3)
    view = RunView(("a",), None)
    for index in range(10):
        view.update(segment_row(tasks=["a"], start_frames=index * 100, end_frames=None, index=index))
    view.update(_train(950))
    assert view.segment == (10, 10) and len(view._segments) == 3


def test_the_marker_moves_when_a_segment_begins():
    """Not only with the next row of training, which may come much later."""
    console, _, _ = _console(terminal=True)
    _feed(console)
    plan = [console.view._segments[index] for index in (0, 1)]
    view = RunView(("breakout", "asterix"), 10_000)
    for row in plan:
        view.update(row)
    assert view.training == ("breakout",) and view.frames == 0, "the first segment begins at once"
    view.update(_train(4_900))
    view.update({**plan[0], "end_frames": 5_120})
    view.update({**plan[1], "start_frames": 5_120})
    assert view.training == ("asterix",) and view.frames == 5_120 and view.segment == (2, 2)
    view.update(resume_row(frames=4_000, updates=10, wall_s=1.0))
    assert view.training == ("breakout",), "back at a checkpoint of the segment before"


def test_a_narrower_terminal_is_drawn_anew():
    console, out, clock = _console(terminal=True)
    with opened(console):
        console.update(_train(1_000))
        drawn = len(out.getvalue())
        console._out.width = 60
        clock.now = 1.0
        console.update(_train(2_000))
        after = out.getvalue()[drawn:]
    cleared = after.index("\x1b[2J")
    assert "2,000 of" in after[cleared:] and "╭" in after[cleared:]
    frame = [line for line in after[cleared:].splitlines() if line.endswith(("╮", "│", "╯"))]
    assert {len(line[line.index(line.strip()[0]) :]) for line in frame[1:]} == {58}, "room for the ^C of a terminal"
