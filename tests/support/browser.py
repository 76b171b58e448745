"""A real browser for tests: Chromium driven by Playwright, with every message of its console kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@dataclass
class Tab:
    """A page, and what went wrong in it."""

    page: Any
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def open_tab() -> Iterator[Any]:
    """`open_tab(url, width=..., height=...)` opens a page in headless Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        remedy = "Chromium is not installed; on Debian: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(remedy)
        pytest.skip(remedy)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=_FLAGS)

        def make(url: str, *, width: int = 1200, height: int = 900) -> Tab:
            tab = Tab(browser.new_page(viewport={"width": width, "height": height}))
            tab.page.on("console", lambda message: tab.problems.append(message.text))
            tab.page.on("pageerror", lambda error: tab.problems.append(str(error)))
            tab.page.on("request", lambda request: tab.requests.append(request.url))
            tab.page.goto(url)
            return tab

        yield make
        browser.close()
