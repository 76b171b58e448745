"""The page in a real browser: it draws, and the console stays silent."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from typing import Any

import numpy as np
import pytest
from PIL import Image

from clearl.report import make_report

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--enable-logging=stderr", "--v=0",
)  # fmt: skip


@pytest.fixture
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found:
        return found
    remedy = "Chromium is not installed; on Debian: apt-get install chromium"
    if os.environ.get("CI") == "true":
        pytest.fail(remedy)
    pytest.skip(remedy)


def _open(chromium: str, page: str, tmp_path, *flags: str) -> str:
    command = [chromium, *_FLAGS, f"--user-data-dir={tmp_path / 'profile'}", *flags, page]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stderr


def test_the_page_opens_without_console_errors_and_shows_its_figures(chromium, make_run, learner, tmp_path):
    for arm, keeps in (("sequential", 0.2), ("clear", 0.98)):
        make_run(arm, 0, returns=learner(("a", "b"), 2, keeps=keeps))
    make_report([make_run.root], tmp_path / "report")
    page = (tmp_path / "report" / "index.html").as_uri()
    shot = tmp_path / "page.png"
    log = _open(chromium, page, tmp_path, "--window-size=1240,2400", f"--screenshot={shot}")
    assert "CONSOLE" not in log
    colours = Image.open(shot).convert("RGB").getcolors(1 << 24) or []
    shown = {colour for count, colour in colours if count > 200}
    assert (0x00, 0x72, 0xB2) in shown and (0xD5, 0x5E, 0x00) in shown  # the lines of both tasks


def test_on_a_phone_every_table_shows_numbers_and_that_there_are_more(open_tab, make_run, learner, tmp_path):
    tasks = ("MiniGrid-Empty-5x5-v0", "MiniGrid-FourRooms-v0", "MiniGrid-Unlock-v0", "MiniGrid-UnlockPickup-v0")
    for arm, keeps in (("sequential", 0.2), ("clear", 0.98)):
        make_run(arm, 0, tasks=tasks, returns=learner(tasks, 2, keeps=keeps))
    make_report([make_run.root], tmp_path / "report")
    tab = open_tab((tmp_path / "report" / "index.html").as_uri(), width=390, height=844)
    page = tab.page
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "the page itself does not scroll sideways"
    boxes = page.locator(".scroll:has(td)").all()
    assert boxes
    wide = 0
    for box in boxes:
        box.scroll_into_view_if_needed()
        inside, clipped, numbers = box.evaluate(_SEEN_NUMBERS)
        assert numbers >= 1, f"no number is seen in {box.inner_text()[:200]!r}"
        wide += inside > clipped
        if inside > clipped:
            assert _shadow(page, box), "nothing says that there is more to the right"
            box.evaluate("each => { each.scrollLeft = each.scrollWidth }")
            assert not _shadow(page, box), "at the end there is no more"
    assert wide, "a table of this test must be wider than the phone"
    assert tab.problems == []


_SEEN_NUMBERS = """box => {
  const frame = box.getBoundingClientRect();
  const seen = [...box.querySelectorAll("tbody tr:first-child td")].filter(cell => {
    const text = document.createRange(); text.selectNodeContents(cell);
    const place = text.getBoundingClientRect();
    return /[0-9]/.test(cell.innerText) && place.left >= frame.left && place.right <= Math.min(frame.right, innerWidth);
  });
  return [box.scrollWidth, box.clientWidth, seen.length];
}"""
"""How wide a table is, how much of it is seen, and the numbers of its first row that are seen whole."""


def _shadow(page: Any, box: Any) -> bool:
    """Return whether the right edge of a box is darker than a place beside it, letters and rounded corners aside."""
    frame = box.bounding_box()
    size = {"width": 22, "height": frame["height"] - 28}
    edge = page.screenshot(clip={"x": frame["x"] + frame["width"] - 24, "y": frame["y"] + 14, **size})
    columns = np.median(np.asarray(Image.open(io.BytesIO(edge)).convert("L")).astype(int), axis=0)
    return bool(columns[:4].mean() - columns[-3:].mean() > 4)


def test_an_error_on_a_page_would_be_noticed(chromium, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text('<meta charset="utf-8"><script>console.error("broken")</script><img src="file:///absent.png">')
    assert "CONSOLE" in _open(chromium, page.as_uri(), tmp_path, f"--screenshot={tmp_path / 'bad.png'}")
