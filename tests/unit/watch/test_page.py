"""The live page in a real browser, next to a real training run that is killed, resumed and deleted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clearl.watch.server import WatchServer, serve

SETTINGS = [
    "--preset", "minatar-schemes", "--runtime", "inline", "--slots", "8", "--batch-unrolls", "8", "--quiet",
    "--unroll-steps", "10", "--cycles", "40", "--frames-per-visit", "2000", "--eval-every-frames", "1000",
    "--eval-episodes", "1", "--switch-episodes", "1", "--eval-max-steps", "30", "--record-every-updates", "1",
    "--buffer-frames", "4000", "--checkpoint-every-frames", "1000",
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


def train(out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "clearl", "run", *SETTINGS, "--out", str(out)]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)


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
