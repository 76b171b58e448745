"""The live page in a real browser, next to a real training run that is killed, resumed and deleted."""

from __future__ import annotations

import json
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

import pytest
from PIL import Image
from run_processes import children

from clearl.records import MetricsWriter, eval_row, train_row
from clearl.watch.server import WatchServer, serve

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
        wait_for(lambda: len(rows(out, "train")) > 40)
        newest = rows(out, "train")[-1]["frames"]
        began = time.monotonic()
        wait_for(lambda: (shown(page, "run.frames") or 0) >= newest)
        assert time.monotonic() - began < 4.0, "follows within two seconds, on a machine with nothing else to do"
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
    shutil.rmtree(out)
    wait_for(lambda: "directory deleted" in page.inner_text(".head"))
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
        f"after {('breakout', 'breakout@1', 'breakout@2')[index % 3]}" for index in sorted(switches)
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
    assert told["frames"] == f"{frames:,} of {total:,}" and told["training"] == ", ".join(last["tasks"])
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
    for title, name in (("entropy", "entropy"), ("KL[μ‖π]", "kl")):
        expected = [f"{half} {short(page, halves[half][name])}" for half in ("new", "replay")]
        assert card(page, title).locator(".legend span").all_inner_texts() == expected
    for title, name in (("frames per second", "fps"), ("policy lag, updates", "lag_updates")):
        assert card(page, title).locator(".legend").inner_text() == short(page, trained[-1][name])
    switches: dict[int, dict[str, float]] = {}
    for row in rows(out, "eval"):
        if row.get("switch"):
            switches.setdefault(row["segment"], {})[row["task"]] = row["return"]
    matrix = [
        [task, *(short(page, returns[task]) for _, returns in sorted(switches.items()))]
        for task in ("breakout", "breakout@1", "breakout@2")
    ]
    assert table(card(page, "score of every task at the end of every visit")) == matrix
    held = [row["replay"]["by_task"] for row in trained if "by_task" in row["replay"]][-1]
    assert table(card(page, "in replay")) == [
        [task, short(page, entry["unrolls"]), short(page, entry["median_age_frames"])] for task, entry in held.items()
    ]
    health = trained[-1]["health"]
    assert health["worker-0"]["restarts"] == 1
    assert table(card(page, "processes")) == [
        [name, entry["state"], str(entry["restarts"])] for name, entry in health.items()
    ]
    (fault,), (restart,) = rows(out, "fault"), rows(out, "restart")
    assert card(page, "faults, restarts and resumes").locator("li").all_inner_texts() == [
        f"frame {short(page, restart['frames'])}: worker-0 works again",
        f"frame {short(page, fault['frames'])}: worker-0 {fault['problem']}",
    ]


def planned(out: Path) -> dict[int, dict[str, Any]]:
    """Return the newest row of every segment."""
    return {row["index"]: row for row in rows(out, "segment")}


def short(page: Any, value: float) -> str:
    return page.evaluate("shortNumber", value)


def card(page: Any, title: str) -> Any:
    heading = page.locator("h3").filter(has_text=re.compile(f"^{re.escape(title)}"))
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
    with page.expect_download() as download:
        page.get_by_role("button", name="save").first.click()
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
    other = open_tab(page.url).page
    wait_for(lambda: other.locator(".head h2").count() and other.inner_text(".head h2") == "two")


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
    add_train_rows(path, range(35, 36))
    page = open_tab(watching.url).page
    wait_for(lambda: page.locator(".facts div").count())
    told = facts(page)
    assert (told["frames"], told["left"], told["frames/s"]) == ("4,000", "no end", "135")
    assert page.inner_text("#runs small") == "clear · 4000"
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
    assert page.inner_text(".head .warn") == ""
    os.utime(path / "metrics.jsonl", (1_000, 1_000))
    wait_for(lambda: "no new row for" in page.inner_text(".head .warn"))


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
    plain = {"tasks": ["a"], "loss": {}, "lag_updates": 1.0, "replay": {"held": 5}, "wall_s": 1.0, **fields}
    with MetricsWriter(path) as writer:
        for number in numbers:
            diagnosed = {"new": {"entropy": 1.4951}, "replay": {"entropy": 1.4983}} if number == numbers[0] else None
            extra = {"diagnostics": diagnosed} if diagnosed else {}
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
    assert time.monotonic() - began < 4.0, "a new row costs no more than in a short run"
