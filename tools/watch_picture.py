"""The picture of the live page in docs/watching.md: `python tools/watch_picture.py RUNS docs/home`."""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from clearl.watch.server import serve

WIDTH, HEIGHT = 1280, 860


def main(runs: Path, out: Path) -> None:
    """Serve the runs, open the first of them and keep what Chromium shows."""
    server = serve([runs])
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.goto(server.url)
            page.wait_for_selector("canvas", timeout=30_000)
            page.wait_for_timeout(1500)  # the last animation
            page.screenshot(path=out / "watch.png")
            browser.close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    Image.open(out / "watch.png").convert("RGB").quantize(128).save(out / "watch.png", optimize=True)
    print(f"watch.png: {(out / 'watch.png').stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
