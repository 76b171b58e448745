"""The live page in a real browser, next to a real training run that is killed, resumed and deleted."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from run_processes import children

from clearl.records import MetricsWriter, eval_row, segment_row, train_row
from clearl.watch.server import WatchServer, serve

ROOT = Path(__file__).parents[3]
SETTINGS = [
    "--preset", "minatar-schemes", "--workers", "1", "--slots", "8", "--batch-unrolls", "8", "--quiet",
    "--unroll-steps", "10", "--cycles", "40", "--frames-per-visit", "2000", "--eval-every-frames", "1000",
    "--eval-episodes", "1", "--switch-episodes", "1", "--eval-max-steps", "30", "--record-every-updates", "1",
    "--buffer-frames", "4000", "--checkpoint-every-frames", "1000", "--diagnose-every-updates", "5",
]  # fmt: skip


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[WatchServer]:
    import threading

    (tmp_path / "runs").mkdir()
    server = serve([tmp_path / "runs"])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def clearl(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "clearl", *arguments]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)


def train(out: Path, runtime: str = "inline") -> subprocess.Popen[bytes]:
    return clearl("run", *SETTINGS, "--runtime", runtime, "--out", str(out))


def rows(out: Path, kind: str) -> list[dict[str, Any]]:
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return [row for row in (json.loads(line) for line in lines if line.endswith("}")) if row["kind"] == kind]


def shown(page: Any, expression: str) -> Any:
    return page.evaluate(f"() => {{ const run = [...state.data.values()][0]; return run && {expression}; }}")


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)
    return value


def test_follows_a_run_that_is_killed_resumed_and_deleted(
    watching: WatchServer, open_tab: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "runs" / "live"
    tab = open_tab(watching.url)
    page = tab.page
    wait_for(lambda: "No runs here yet" in page.inner_text("#main"))
    run = train(out)
    try:
        wait_for(lambda: page.locator(".pill.running").count())
        wait_for(lambda: (out / "metrics.jsonl").exists() and len(rows(out, "train")) > 40)
        newest = rows(out, "train")[-1]["frames"]
        began = time.monotonic()
        wait_for(lambda: (shown(page, "run.frames") or 0) >= newest)
        assert time.monotonic() - began < 2.0, "follows within two seconds"
        run.send_signal(signal.SIGKILL)
        run.wait()
        wait_for(lambda: shown(page, "run.rows") == len((out / "metrics.jsonl").read_text().splitlines()))
        assert_equal_to_rows(page, out)
        run = train(out)
        wait_for(lambda: rows(out, "resume"))
        wait_for(lambda: "resumed 1" in page.inner_text(".facts").replace("\n", " "))
    finally:
        run.terminate()
        run.wait()
    wait_for(lambda: "interrupted" in page.inner_text(".head"))
    drawn = shown(page, "run.evaluations.breakout.frames")
    shutil.rmtree(out)
    wait_for(lambda: page.inner_text(".head .pill") == "deleted" == page.inner_text("#runs .pill"))
    assert shown(page, "run.evaluations.breakout.frames") == drawn and len(drawn) > 1, "what was read stays"
    assert page.evaluate("[...state.panels.values()][0].returns.lines[0].frames") == drawn
    assert tab.problems == []
    assert all(request.startswith(watching.url.rstrip("/")) for request in tab.requests if "data:" not in request)


def assert_equal_to_rows(page: Any, out: Path) -> None:
    for task in ("breakout", "breakout@1"):
        expected = [(row["frames"], row["return"]) for row in rows(out, "eval") if row["task"] == task]
        drawn = shown(page, f"run.evaluations[{json.dumps(task)}]")
        assert list(zip(drawn["frames"], drawn["values"]["return"], strict=True)) == expected
    train_rows = rows(out, "train")
    assert shown(page, "run.train.frames") == [row["frames"] for row in train_rows]
    assert shown(page, "run.train.values.lag_updates") == [row["lag_updates"] for row in train_rows]
    switches = {row["segment"] for row in rows(out, "eval") if row.get("switch")}
    assert page.locator(".card.wide table thead th").all_inner_texts()[1:] == [
        f"after\n{('breakout', 'breakout@1', 'breakout@2')[index % 3]}" for index in sorted(switches)
    ]


def test_every_panel_tells_what_the_rows_of_a_real_run_say(
    watching: WatchServer, open_tab: Callable[..., Any], tmp_path: Path
) -> None:
    """Local processes, one of them killed; then the run itself is killed, so that its rows stand still."""
    out = tmp_path / "runs" / "live"
    run = train(out, "local")
    try:
        wait_for(lambda: (out / "metrics.jsonl").exists() and any(row.get("switch") for row in rows(out, "eval")), 120)
        os.kill(children(run.pid)["worker-0"], signal.SIGKILL)
        wait_for(lambda: rows(out, "restart"), 120)
        seen = len(rows(out, "train"))
        wait_for(lambda: len(rows(out, "train")) > seen + 10, 120)
        wait_for(lambda: len({row["segment"] for row in rows(out, "eval") if row.get("switch")}) > 2, 120)
    finally:
        run.kill()
        run.wait()
    tab = open_tab(watching.url)
    page = tab.page
    wait_for(lambda: shown(page, "run.rows") == len((out / "metrics.jsonl").read_text().splitlines()))
    assert_summary(page, out)
    assert_thick_while_trained(page, out)
    assert_charts_and_tables(page, out)
    assert page.locator("details pre").text_content() == (out / "config.yaml").read_text()
    assert clearl("video", str(out), "--task", "breakout", "--max-steps", "20").wait() == 0
    film = page.locator("section.card img")
    wait_for(lambda: film.count() and film.evaluate("(node) => node.complete && node.naturalWidth"))
    with Image.open(out / "videos" / "breakout.gif") as video:
        assert film.evaluate("(node) => [node.naturalWidth, node.naturalHeight]") == list(video.size)
    assert tab.problems == []


def assert_summary(page: Any, out: Path) -> None:
    """Frames, tasks, speed, time left and lag are those of the last row; the ribbon names the segment of now."""
    last, total, segments = rows(out, "train")[-1], 240_000, planned(out)
    frames = max(row["frames"] for row in [*rows(out, "train"), *rows(out, "eval")])
    now = max(index for index, row in segments.items() if row["start_frames"] <= frames)
    told = facts(page)
    shares = {task: f" {math.floor(100 * share + 0.5)} %" for task, share in last.get("shares", {}).items()}
    assert told["frames"] == f"{frames:,} of {total:,}"
    assert told["training"] == ", ".join(task + shares.get(task, "") for task in last["tasks"])
    assert told["frames/s"] == short(page, last["fps"]) and told["lag"] == f"{short(page, last['lag_updates'])} updates"
    assert told["left"] == page.evaluate("duration", (total - frames) / last["fps"])
    assert (told["resumed"], told["faults"]) == ("0", str(len(rows(out, "fault"))))
    (task,) = segments[now]["tasks"]
    ribbon = page.locator("canvas.ribbon").get_attribute("aria-label")
    assert ribbon.endswith(f"now: segment {now + 1} of {len(segments)}, {task}")


def assert_thick_while_trained(page: Any, out: Path) -> None:
    lines = page.evaluate("[...state.panels.values()][0].returns.lines.filter((line) => line.width > 3)")
    for task, line in zip(("breakout", "breakout@1", "breakout@2"), lines, strict=True):
        spans = [(row["start_frames"], row["end_frames"]) for row in planned(out).values() if row["tasks"] == [task]]
        expected = [
            row["return"] if any(start <= row["frames"] <= end for start, end in spans) else None
            for row in rows(out, "eval")
            if row["task"] == task
        ]
        assert line["values"] == expected and None in expected and set(expected) != {None}


def assert_charts_and_tables(page: Any, out: Path) -> None:
    trained = rows(out, "train")
    halves = [row["diagnostics"] for row in trained if "diagnostics" in row][-1]
    for title, name in TOLD_OF_BOTH_HALVES.items():
        expected = [f"{half} {short(page, halves[half][name])}" for half in ("new", "replay")]
        expected += [f"whole batch {short(page, trained[-1]['grad_norm'])}"] if name == "grad_norm" else []
        assert card(page, title).locator(".legend span").all_inner_texts() == expected
    for title, name in (("frames per second", "fps"), ("policy lag, updates", "lag_updates")):
        assert card(page, title).locator(".legend").inner_text() == short(page, trained[-1][name])
    for title, values in (("losses", trained[-1]["loss"]), ("gradient norm by loss term", halves["terms"])):
        expected = [f"{term} {short(page, values[term])}" for term in sorted(values)]
        assert card(page, title).locator(".legend span").all_inner_texts() == expected and len(expected) > 3
    ended = {task: values["mean_return"] for row in trained for task, values in row.get("episodes", {}).items()}
    assert card(page, "return of training episodes").locator(".legend span").all_inner_texts() == [
        f"{task} {short(page, ended[task])}" for task in ("breakout", "breakout@1", "breakout@2") if task in ended
    ]
    switches: dict[int, dict[str, float]] = {}
    for row in rows(out, "eval"):
        if row.get("switch"):
            switches.setdefault(row["segment"], {})[row["task"]] = row["return"]
    matrix = [
        [task, *(short(page, returns[task]) for _, returns in sorted(switches.items()))]
        for task in ("breakout", "breakout@1", "breakout@2")
    ]
    assert table(card(page, "score of every task at the end of every visit")) == matrix
    scores = card(page, "score of every task at the end of every visit")
    with page.expect_download() as download:
        scores.get_by_role("button", name="save").click()
    with Image.open(download.value.path()) as picture:
        assert picture.width >= scores.locator("table").evaluate("(node) => node.offsetWidth")
        assert len(set(picture.convert("RGB").tobytes())) > 10, "shaded cells and letters"
    held = [row["replay"]["by_task"] for row in trained if "by_task" in row["replay"]][-1]
    assert table(card(page, "in replay")) == [
        [task, short(page, entry["unrolls"]), short(page, entry["median_age_frames"])] for task, entry in held.items()
    ]
    health = trained[-1]["health"]
    assert health["worker-0"]["restarts"] == 1
    processes = table(card(page, "processes"))
    assert [row[:3] for row in processes[: len(health)]] == [
        [name, entry["state"], str(entry["restarts"])] for name, entry in health.items()
    ]
    busy = dict(trained[-1]["seconds"]["learner"], learner=0.0)
    most = max(busy, key=lambda part: busy[part])
    (told,) = [row[3] for row in processes if row[0] == "learner"]
    percent = math.floor(100 * busy[most] / sum(busy.values()) + 0.5)  # half up, as browsers round
    assert told.startswith(f"{most} {percent}\N{NO-BREAK SPACE}%")
    (fault,), (restart,) = rows(out, "fault"), rows(out, "restart")
    assert card(page, "faults, restarts and resumes").locator("li").all_inner_texts() == [
        f"frame {short(page, restart['frames'])}: worker-0 works again",
        f"frame {short(page, fault['frames'])}: worker-0 {fault['problem']}",
    ]


TOLD_OF_BOTH_HALVES = {
    "entropy": "entropy", "KL[μ‖π]": "kl", "mean importance ratio": "mean_rho",
    "share of clipped ratios": "clipped_share", "value error": "value_error", "gradient norm": "grad_norm",
}  # fmt: skip


def planned(out: Path) -> dict[int, dict[str, Any]]:
    """Return the newest row of every segment."""
    return {row["index"]: row for row in rows(out, "segment")}


def short(page: Any, value: float) -> str:
    return page.evaluate("shortNumber", value)


def card(page: Any, title: str) -> Any:
    heading = page.locator("h3").filter(has_text=re.compile(f"^{re.escape(title)}( \\(|,|$)"))
    return page.locator("section.card", has=heading)


def table(card: Any) -> list[list[str]]:
    return card.locator("tbody tr").evaluate_all("(all) => all.map((row) => [...row.children].map((n) => n.innerText))")


@pytest.mark.parametrize("width", [1200, 390])
def test_strangers_names_are_text_and_nothing_is_wider_than_the_window(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer, width: int
) -> None:
    hostile = '<img src=x onerror="document.title=1">'
    make_run(hostile, 0, tasks=(hostile, "$x_{$"), name="one", train_rows=100)
    make_run("clear [a=1]", 1, tasks=("a", "b"), name="two", train_rows=100)
    tab = open_tab(watching.url, width=width)
    page = tab.page
    wait_for(lambda: page.locator("canvas").count() > 2)
    assert hostile in page.inner_text("#runs") and page.title() == "clearl watch"
    assert page.locator("img").count() == 0
    page.keyboard.press("x")
    wait_for(lambda: "Side by side" in page.inner_text("#main"))
    assert page.url.count("run=") == 2, "the address leads back to what is shown"
    page.keyboard.press("d")
    wait_for(lambda: page.evaluate("document.documentElement.dataset.theme") == "dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for save in page.get_by_role("button", name="save").all()[:6]:
        with page.expect_download() as download:
            save.click()
        assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")
    assert tab.problems == []


def test_an_address_opens_the_same_runs_again(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer
) -> None:
    make_run("clear", 0, name="one")
    make_run("clear", 1, name="two")
    page = open_tab(watching.url).page
    wait_for(lambda: page.locator("#runs li").count() == 2)
    page.locator("#runs button").nth(1).click()
    wait_for(lambda: page.inner_text(".head h2") == "two")
    assert "theme" not in page.url, "who follows the link has a taste of his own"
    other = open_tab(f"{page.url}&theme=dark").page
    wait_for(lambda: other.locator(".head h2").count() and other.inner_text(".head h2") == "two")
    theme = "document.documentElement.dataset.theme"
    assert other.evaluate(theme) == "dark" and other.url == f"{page.url}&theme=dark"
    other.keyboard.press("d")
    wait_for(lambda: other.url == f"{page.url}&theme=light")
    other.keyboard.press("j")
    wait_for(lambda: other.inner_text(".head h2") == "one")
    assert other.evaluate(theme) == "light" and other.url.endswith("&theme=light")


@pytest.mark.parametrize("width", [1200, 390])
def test_tables_fit_their_cards_and_say_when_replay_was_counted(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer, width: int
) -> None:
    path = make_run("clear", 0, name="one", tasks=("a", "b"))
    seconds = {"inference": 45.0, "copying the observations of all slots": 23.0}
    processes = {"health": {"evaluator": {"state": "running", "restarts": 0}}, "seconds": {"evaluator": seconds}}
    counted = {"held": 64, "by_task": {"a": {"unrolls": 64, "median_age_frames": 800}}}
    add_train_rows(path, range(50, 51), replay=counted, extra=processes)
    add_train_rows(path, range(90, 91), replay={"held": 3008}, extra=processes)
    page = open_tab(watching.url, width=width).page
    wait_for(lambda: page.locator("canvas").count() > 2)
    assert card(page, "in replay").locator("p").all_inner_texts()[1:] == ["by task, counted at frame 5000"]
    sides = card(page, "processes").locator(".scroll").evaluate("(node) => [node.scrollWidth, node.clientWidth]")
    assert sides[0] <= sides[1], "nothing is cut off"
    assert "66\N{NO-BREAK SPACE}%" in table(card(page, "processes"))[0][3], "a number stays on the line of its unit"


def test_the_ribbon_says_and_shows_where_the_run_is(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer
) -> None:
    make_run("clear", 0, name="half", until=0.5, status="running", tasks=("a", "b"), cycles=2)
    page = open_tab(watching.url).page
    ribbon = page.locator("canvas.ribbon")
    wait_for(lambda: ribbon.count() and "now: segment" in ribbon.get_attribute("aria-label"))
    assert ribbon.get_attribute("aria-label").endswith("now: segment 3 of 4, a")
    colours = page.evaluate(
        """() => { const c = document.querySelector("canvas.ribbon"), d = c.getContext("2d"), y = c.height - 2;
        return [0.2, 0.3, 0.5, 0.6, 0.8].map((x) => [...d.getImageData(Math.round(x * c.width), y, 1, 1).data]); }"""
    )
    a, b, now, a_again, later = (tuple(colour[:3]) for colour in colours)
    assert a == (0x00, 0x72, 0xB2) == a_again and b == (0xD5, 0x5E, 0x00) and now == (0x1B, 0x23, 0x30)
    assert later not in (a, b), "what is still to come is pale"


def test_a_plan_without_an_end_has_no_share_no_last_segment_and_no_time_left(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer
) -> None:
    plan = {"segments": [{"tasks": [task], "frames": 1000} for task in "ab"], "forever": True}
    path = make_run("clear", 0, name="one", tasks=("a", "b"), cycles=2, status="running", plan=plan)
    add_train_rows(path, range(41, 42))
    page = open_tab(watching.url).page
    wait_for(lambda: page.locator(".facts div").count())
    told = facts(page)
    assert (told["frames"], told["left"], told["frames/s"]) == ("4,100", "no end", "141")
    assert page.inner_text("#runs small") == "clear · 4100"
    assert page.locator("canvas.ribbon").get_attribute("aria-label").endswith("now: segment 4, b")


def facts(page: Any) -> dict[str, str]:
    return dict(
        page.locator(".facts div").evaluate_all("(all) => all.map((one) => [...one.children].map((n) => n.innerText))")
    )


def test_a_run_that_was_killed_is_noticed(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer
) -> None:
    path = make_run("clear", 0, name="one", until=0.5, status="running")
    page = open_tab(watching.url).page
    wait_for(lambda: page.locator(".head h2").count() and page.inner_text(".head h2") == "one")
    assert page.inner_text(".head .warn") == "" and page.inner_text("#runs .pill") == "running"
    os.utime(path / "metrics.jsonl", (1_000, 1_000))
    wait_for(lambda: "no new row for" in page.inner_text(".head .warn"))
    wait_for(lambda: page.inner_text("#runs .pill") == "silent" == page.inner_text(".head .pill"))
    assert facts(page)["left"] == "–"
    make_run("clear", 1, name="two", until=0.5, status="running")
    other = open_tab(watching.url).page
    wait_for(lambda: other.locator(".head h2").count() and other.inner_text(".head h2") == "two")


def test_the_list_follows_runs_that_nobody_has_chosen(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer
) -> None:
    make_run("clear", 0, name="chosen", until=0.5, status="running")
    path = make_run("clear", 1, name="other", until=0.5, status="running")
    page = open_tab(watching.url).page
    told = page.locator("#runs small")
    wait_for(lambda: told.count() == 2 and told.all_inner_texts() == ["clear · 50 %", "clear · 50 %"])
    add_train_rows(path, range(30, 31))
    wait_for(lambda: told.all_inner_texts() == ["clear · 50 %", "clear · 75 %"])


def test_a_run_has_the_same_colour_in_every_chart_side_by_side(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer
) -> None:
    make_run("clear", 0, name="one", tasks=("a", "b"))
    make_run("clear", 1, name="two", tasks=("b",))
    page = open_tab(watching.url).page
    wait_for(lambda: page.locator("#runs li").count() == 2)
    page.keyboard.press("x")
    lines = """() => [...state.compare?.charts ?? []].map(([task, chart]) =>
        [task, chart.lines.map((line) => [line.label, line.colour])])"""
    one, two = ["one", "#0072b2"], ["two", "#d55e00"]
    wait_for(lambda: sorted(page.evaluate(lines)) == [["a", [one]], ["b", [one, two]]])
    titles = page.locator(".run").first.locator("h3")
    assert titles.all_inner_texts() == ["return on a", "return on b"], "whichever run was read first"
    page.evaluate("choose([...state.chosen].reverse())")
    one, two = ["one", "#d55e00"], ["two", "#0072b2"]
    wait_for(lambda: sorted(page.evaluate(lines)) == [["a", [one]], ["b", [two, one]]])
    keyed = "(all) => all.map((node) => [node.innerText, node.style.getPropertyValue('--swatch')])"
    assert page.locator(".head h2").evaluate_all(keyed) == [two, one]


def test_names_side_by_side_leave_out_the_directories_of_all(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer
) -> None:
    for name in ("study/clear/seed-0", "study/ewc/seed-0"):
        make_run("clear", 0, name=name, tasks=("a",))
    page = open_tab(watching.url).page
    wait_for(lambda: page.locator("#runs li").count() == 2)
    page.keyboard.press("x")
    legend = page.locator(".run").first.locator(".legend span")
    wait_for(lambda: [text.split()[0] for text in legend.all_inner_texts()] == ["clear/seed-0", "ewc/seed-0"])
    assert page.locator(".head h2").all_inner_texts() == ["study/clear/seed-0", "study/ewc/seed-0"]
    for names, own in (
        (["a", "b"], ["a", "b"]), (["x/a", "x/a/b"], ["a", "a/b"]), (["x/a", "x/a"], ["a", "a"]), (["x/y"], ["y"]),
        (["x/a/s", "y/a/s"], ["x/a/s", "y/a/s"]),
    ):  # fmt: skip
        assert page.evaluate("ownParts", names) == own


def test_the_ribbon_draws_a_mixture_that_moves(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer
) -> None:
    path = make_run("clear", 0, name="one", segments=[(("a", "b"), 4000)])
    with MetricsWriter(path) as writer:
        row = segment_row(tasks=["a", "b"], start_frames=0, end_frames=4000, index=0)
        writer.write({**row, "weights": [0.9, 0.1], "end_weights": [0.1, 0.9]})
    page = open_tab(watching.url).page
    wait_for(lambda: page.locator("canvas.ribbon").count() and shown(page, "run.segments.length"))
    colours = page.evaluate(
        """() => { const c = document.querySelector("canvas.ribbon"), d = c.getContext("2d");
        return [[0.05, 0.7], [0.5, 0.4], [0.5, 0.6], [0.95, 0.3]].map(([x, y]) =>
            [...d.getImageData(Math.round(x * c.width), Math.round(y * c.height), 1, 1).data].slice(0, 3)); }"""
    )
    a, b = [0x00, 0x72, 0xB2], [0xD5, 0x5E, 0x00]
    assert colours == [a, a, b, b]
    page.locator("canvas.ribbon").hover()
    assert page.locator("canvas.ribbon").get_attribute("title") == "segment 1: a, b, frames 0 to 4,000"


def test_charts_that_are_closed_leave_nothing_behind(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer
) -> None:
    for name in ("one", "two"):
        add_train_rows(make_run("clear", name == "two", name=name), range(1, 10))
    page = open_tab(watching.url).page
    wait_for(lambda: page.locator("#runs li").count() == 2 and page.locator(".u-over").count() > 3)
    page.evaluate(
        """() => { window.charts = 0;
        for (const [verb, count] of [["addEventListener", 1], ["removeEventListener", -1]]) {
            const real = window[verb];
            window[verb] = function (...given) {
                if (given[0] === "dppxchange") charts += count; /* each chart of uPlot listens for it */
                return real.apply(this, given);
            };
        } }"""
    )
    for name, key in (("two", "j"), ("one", "j"), ("two", "x"), ("two", "j"), ("one", "k")) * 2:
        page.keyboard.press(key)
        wait_for(lambda name=name: name in page.locator(".head h2").all_inner_texts())
        wait_for(lambda: page.evaluate("state.chosen.every((id) => state.panels.get(id).charts.size > 2)"))
    assert page.evaluate("charts") == 0


def test_success_a_learning_rate_and_replay_are_drawn_where_there_is_something_to_see(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer
) -> None:
    path = make_run("clear", 0, name="one")
    page = open_tab(watching.url).page
    add_train_rows(path, range(50, 52), extra={"learning_rate": 0.001}, replay={"held": 0})
    wait_for(lambda: card(page, "frames per second").is_visible())
    assert not card(page, "success rate of every task").is_visible() and card(page, "learning rate").count() == 0
    assert card(page, "unrolls in replay").count() == 0
    with MetricsWriter(path) as writer:
        row = eval_row(task="b", frames=5200, mean_return=1.0, episodes=4, updates=1, wall_s=1.0, success_rate=0.75)
        writer.write(row)
    add_train_rows(path, range(53, 55), extra={"learning_rate": 0.0005})
    wait_for(lambda: card(page, "learning rate").count())
    assert card(page, "learning rate").locator(".legend").inner_text() == "0.00050"
    assert card(page, "unrolls in replay").locator(".legend").inner_text() == "5"
    assert card(page, "success rate of every task").locator(".legend span").all_inner_texts() == ["b 0.75"]


def test_what_the_pages_say_is_plotted_is_plotted() -> None:
    docs, panel = ROOT / "docs", (ROOT / "src/clearl/watch/static/panel.js").read_text(encoding="utf-8")
    section = (docs / "troubleshooting.md").read_text(encoding="utf-8").partition("plots them")[2].split("\n#")[0]
    names = re.findall(r"^- .*?`(\w+)`", section, re.M)
    assert names == ["clipped_share", "kl", "terms", "lag_updates"]
    assert [name for name in names if f'"{name}"' not in panel and f"/{name}`" not in panel] == []


def test_lines_of_one_colour_differ_in_legend_and_figure(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer
) -> None:
    make_run("clear", 0, name="one", tasks=[f"task {letter}" for letter in "abcdefghijkl"], cycles=1)
    page = open_tab(watching.url).page
    legend = page.locator(".card.wide .legend").first.locator("span")
    wait_for(lambda: legend.count() == 12)
    swatches = legend.evaluate_all("(all) => all.map((node) => node.style.getPropertyValue('--swatch'))")
    assert swatches[0] == "#0072b2" and swatches[8].startswith(
        "repeating-linear-gradient(90deg, #0072b2 0px 8px, trans"
    )
    assert len(set(swatches)) == 12
    saved = """() => { const label = "a name of a task that is long", ratio = devicePixelRatio;
        const entries = [[], [8, 4]].map((dash) => ({ label, colour: "#0072b2", dash }));
        const canvas = figure("title", element("canvas", { width: 300, height: 10 }), entries).canvas;
        const blue = (y) => {
            const row = canvas.getContext("2d").getImageData(8 * ratio, 10 + y * ratio, 22 * ratio, 1).data;
            return row.filter((value, at) => at % 4 === 0 && value === 0 && row[at + 2] === 0xb2).length / ratio; };
        return [canvas.height - 10, blue(36), blue(54)]; }"""
    height, whole, dashed = page.evaluate(saved)
    assert height == 28 + 2 * 18 + 10, "long names stand in rows of their own"
    assert (whole, dashed) == (22, 16)


# Machado et al. 2009: what is seen with no red, green or blue cones, in linear sRGB.
SEEN = {
    "all cones": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]


def lightness_and_hue(colour: str, seen: Any) -> np.ndarray:
    """A colour as it is seen, in CIELAB."""
    parts = np.frombuffer(bytes.fromhex(colour[1:]), np.uint8) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(np.asarray(XYZ) @ np.clip(np.asarray(seen) @ linear, 0, 1) / [0.95047, 1, 1.08883])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("seen", SEEN)
def test_the_colour_blind_tell_all_colours_apart(seen: str) -> None:
    code = (ROOT / "src/clearl/watch/static/charts.js").read_text(encoding="utf-8")
    for name in ("PALETTE", "DARK_PALETTE"):
        (line,) = re.findall(rf"const {name} = \[(.*)\];", code)
        labs = [lightness_and_hue(colour, SEEN[seen]) for colour in re.findall(r"#\w{6}", line)]
        assert len(labs) == 8
        closest = min(float(np.linalg.norm(one - other)) for one, other in itertools.combinations(labs, 2))
        assert closest > 12, f"{name}: a difference of 2.3 is just noticeable, side by side"


def test_each_task_can_be_drawn_on_its_own_scale(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer
) -> None:
    make_run("clear", 0, name="one", returns=lambda task, share: 50 + 100 * share if task == "a" else -share)
    page = open_tab(watching.url).page
    drawn = "() => [...state.panels.values()][0]?.returns.uplot?.data.slice(1).map((line) => [line[0], line.at(-1)])"
    wait_for(lambda: (page.evaluate(drawn) or [None])[0] == [50, 150])
    page.keyboard.press("s")
    wait_for(lambda: page.evaluate(drawn)[0] == [0, 1])
    assert page.evaluate(drawn)[2] == [1, 0]
    assert page.locator(".legend span").all_inner_texts()[:2] == ["a 150", "b -1"], "the legend keeps the scores"
    page.locator(".scales").click()
    wait_for(lambda: page.evaluate(drawn)[0] == [50, 150])


def test_keys_walk_through_the_runs_that_the_filter_leaves(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer
) -> None:
    for number, name in enumerate(("apple", "berry", "avocado")):
        make_run("clear", number, name=name)
    page = open_tab(watching.url).page
    wait_for(lambda: page.locator("#runs li").count() == 3)
    page.keyboard.press("/")
    page.keyboard.type("avo")
    wait_for(lambda: page.locator("#runs li").count() == 1)
    page.evaluate("document.activeElement.blur()")
    for _ in range(2):
        page.keyboard.press("j")
        wait_for(lambda: page.inner_text(".head h2") == "avocado")
    page.fill("#filter", "")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    wait_for(lambda: page.inner_text(".head h2") == "berry")
    page.keyboard.press("k")
    wait_for(lambda: page.inner_text(".head h2") == "avocado")


def add_train_rows(path: Path, numbers: range, **fields: Any) -> None:
    more = fields.pop("extra", {})
    plain = {"tasks": ["a"], "loss": {}, "lag_updates": 1.0, "replay": {"held": 5}, "wall_s": 1.0, **fields}
    with MetricsWriter(path) as writer:
        for number in numbers:
            diagnosed = {"new": {"entropy": 1.4951}, "replay": {"entropy": 1.4983}} if number == numbers[0] else None
            extra = {**more, **({"diagnostics": diagnosed} if diagnosed else {})}
            writer.write(train_row(frames=100 * number, updates=number, fps=100.0 + number, extra=extra, **plain))


def colours_of(chart: Any) -> set[tuple[int, ...]]:
    found = chart.locator("canvas").first.evaluate(
        """(canvas) => { const draw = canvas.getContext("2d"), seen = new Set();
        const data = draw.getImageData(0, 0, canvas.width, canvas.height).data;
        for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) seen.add(data.slice(at, at + 3).join());
        return [...seen]; }"""
    )
    return {tuple(map(int, text.split(","))) for text in found}


def test_a_single_value_is_seen_and_the_axis_tells_neighbours_apart(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer
) -> None:
    add_train_rows(make_run("clear", 0, name="one"), range(1, 10))
    page = open_tab(watching.url).page
    chart = page.locator("section.card", has=page.locator("h3", has_text="entropy"))
    wait_for(lambda: chart.count() and chart.locator(".legend").inner_text() == "new 1.50\nreplay 1.50")
    wait_for(lambda: {(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)} <= colours_of(chart))
    texts = page.evaluate("tickTexts(null, [1.49, 1.495, 1.5], 1, 50, 0.005)")
    assert texts == ["1.490", "1.495", "1.500"]
    assert page.evaluate("tickTexts(null, [0, 2500, 5000, 12500], 1, 50, 2500)") == ["0", "2.5k", "5.0k", "12.5k"]
    assert page.evaluate("tickTexts(null, [-1e6, 0, 1e6], 1, 50, 1e6)") == ["-1M", "0", "1M"]


def test_new_rows_keep_the_zoom_the_focus_and_what_is_scrolled_to(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer
) -> None:
    path = make_run("clear", 0, name="one", until=0.5, status="running")
    make_run("clear", 1, name="two")
    with MetricsWriter(path) as writer:
        for segment in range(40):
            row = eval_row(task="a", frames=2000 + segment, mean_return=1.0, episodes=1, updates=1, wall_s=1.0)
            writer.write({**row, "switch": True, "segment": segment})
    page = open_tab(watching.url).page
    wait_for(lambda: page.locator(".scroll table").count())
    plot = page.locator(".u-over").first.bounding_box()
    page.mouse.move(plot["x"] + plot["width"] * 0.25, plot["y"] + 50)
    page.mouse.down()
    page.mouse.move(plot["x"] + plot["width"] * 0.75, plot["y"] + 50, steps=4)
    page.mouse.up()
    scale = "() => { const { min, max } = [...state.panels.values()][0].returns.uplot.scales.x; return [min, max]; }"
    zoomed = wait_for(lambda: (at := page.evaluate(scale))[0] > 0 and at)
    page.locator("#runs button").nth(0).focus()
    shown(page, "(run.old = true)")
    page.keyboard.press("Enter")
    wait_for(lambda: not shown(page, "run.old"))
    page.evaluate("document.querySelector('.scroll').scrollLeft = 300")
    add_train_rows(path, range(30, 31))
    wait_for(lambda: shown(page, "run.train.frames.length") == 1)
    assert page.evaluate(scale) == zoomed
    assert page.locator(".scroll").first.evaluate("(node) => node.scrollLeft") == 300
    page.evaluate("drawList()")
    assert page.evaluate("document.activeElement.innerText").startswith("one")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    wait_for(lambda: page.inner_text(".head h2") == "two")


def test_the_pointer_reads_the_values_of_a_frame(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer
) -> None:
    path = make_run("clear", 0, name="one", returns=lambda task, share: 40 * share if task == "a" else -share)
    page = open_tab(watching.url).page
    wait_for(lambda: page.locator(".legend span").all_inner_texts()[:2] == ["a 40", "b -1"])
    plot = page.locator(".u-over").first.bounding_box()
    page.mouse.move(plot["x"] + plot["width"] / 2, plot["y"] + 50)
    wait_for(lambda: "at frame 2,000" in page.inner_text(".legend"))
    (expected,) = [row["return"] for row in rows(path, "eval") if row["task"] == "a" and row["frames"] == 2000]
    assert page.locator(".legend span").all_inner_texts()[:2] == [f"a {expected:.0f}", "b -0.50"]
    page.mouse.move(5, 5)
    wait_for(lambda: page.locator(".legend span").all_inner_texts()[:2] == ["a 40", "b -1"])


def test_a_link_to_a_run_that_is_not_here_says_so(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer
) -> None:
    make_run("clear", 0, name="one")
    page = open_tab(f"{watching.url}#run=0123456789ab").page
    wait_for(lambda: "No run with the id 0123456789ab is here" in page.inner_text("#main"))
    assert page.inner_text("#connection") == "live" and page.locator(".card:visible").count() == 0


def test_a_million_rows_are_opened_and_drawn_without_a_pause(
    make_run: Callable[..., Path], open_tab: Callable[..., Any], watching: WatchServer
) -> None:
    path = make_run("clear", 0, name="one")
    add_train_rows(path, range(1, 1001))
    lines = (path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    trained = b"".join(line for line in lines if b'"train"' in line)
    with open(path / "metrics.jsonl", "ab") as file:
        for _ in range(999):
            file.write(trained)
    page = open_tab(watching.url).page
    wait_for(lambda: shown(page, "run.frames") == 100_000)
    assert shown(page, "run.train.frames.length") <= 2_000
    draw = "() => { const began = performance.now(); show(state.chosen[0]); return performance.now() - began; }"
    assert min(page.evaluate(draw) for _ in range(5)) < 100, "milliseconds"
    add_train_rows(path, range(1001, 1002))
    began = time.monotonic()
    wait_for(lambda: shown(page, "run.frames") == 100_100)
    assert time.monotonic() - began < 2.0, "a new row costs no more than in a short run"
