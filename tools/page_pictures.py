"""Pictures of the live page and of a report, in Chromium: `python tools/page_pictures.py RUNS REPORT docs/home`."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from clearl.watch.server import serve

WIDTH, HEIGHTS = 1280, {"watch": 1112, "report": 1500}


@contextmanager
def live_page(runs: Path) -> Iterator[str]:
    """Serve the live page of some runs while the block runs; give its address."""
    server = serve([runs])
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main(runs: Path, report: Path, out: Path) -> None:
    """Write watch.png and report.png."""
    with live_page(runs) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, address in {"watch": url, "report": (report / "index.html").resolve().as_uri()}.items():
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHTS[name]})
            page.goto(address)
            page.wait_for_selector("canvas, svg", timeout=30_000)
            page.wait_for_timeout(1500)  # the last animation
            page.screenshot(path=out / f"{name}.png")
        browser.close()
    for path in (out / "watch.png", out / "report.png"):
        Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
