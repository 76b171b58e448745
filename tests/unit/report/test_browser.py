"""The page in a real browser: it draws, and the console stays silent."""

from __future__ import annotations

import os
import shutil
import subprocess

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


def test_an_error_on_a_page_would_be_noticed(chromium, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text('<meta charset="utf-8"><script>console.error("broken")</script><img src="file:///absent.png">')
    assert "CONSOLE" in _open(chromium, page.as_uri(), tmp_path, f"--screenshot={tmp_path / 'bad.png'}")
