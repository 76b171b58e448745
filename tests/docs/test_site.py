"""The documentation site: builds without a warning, every link leads somewhere, nothing is loaded from elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browser import open_tab

__all__ = ["open_tab"]

ROOT = Path(__file__).parents[2]
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "link": "href"}


class Page(HTMLParser):
    """The links of a page, the files that it loads, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if (name := LOADS.get(tag)) in values and values.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(values[str(name)])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_nothing_is_loaded_from_another_host(site: Path, pages: dict[Path, Page]) -> None:
    foreign = [(path.name, url) for path, page in pages.items() for url in page.loads if re.match(r"(https?:)?//", url)]
    assert foreign == []
    styles = [
        path for path in site.rglob("*.css") if re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", path.read_text())
    ]
    assert styles == []


def test_every_link_and_picture_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links are absolute, for a server
            continue
        for link in {*page.links, *page.loads}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link.startswith("data:"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            known = pages[target].anchors if target in pages else set()
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in known):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_formulas_are_set(site: Path) -> None:
    metrics = (site / "metrics.html").read_text()
    assert metrics.count("<math") > 10
    leftover = [path.name for path in site.rglob("*.html") if re.search(r"FORMULA\d+END|\$\\", path.read_text())]
    assert leftover == []
    clear, trust = ((site / "methods" / f"{name}.html").read_text() for name in ("clear", "trust"))
    assert "<mi>log</mi><mspace" in clear and "<mo>min</mo>" not in clear
    assert "<mo>&#x02032;</mo>" in trust


def test_experiments_are_a_list_in_the_reference(site: Path) -> None:
    from clearl.reproduce.catalog import EXPERIMENTS

    commands = (site / "reference" / "commands.html").read_text()
    assert [name for name in EXPERIMENTS if f"<li><code>{name}</code>" not in commands] == []


def test_every_program_of_the_examples_is_on_the_site(site: Path) -> None:
    page = (site / "examples" / "programs.html").read_text()
    programs = [path.name for path in (ROOT / "examples").glob("*.py")]
    assert len(programs) >= 4
    assert [name for name in programs if f"examples/{name}</span>" not in page] == []
    assert len(re.findall(r"<h2", page)) == len(programs)


def test_search_works_from_files_without_a_server(site: Path, open_tab) -> None:
    tab = open_tab((site / "index.html").as_uri())
    tab.page.focus("input.md-search__input")  # loads the index
    ready = "document.querySelector('.md-search-result__meta').textContent.includes('Type to start')"
    tab.page.wait_for_function(ready, timeout=60_000)
    tab.page.keyboard.type("reservoir")
    tab.page.wait_for_selector(".md-search-result__link[href*='concepts.html']", timeout=60_000, state="attached")
    assert {urlsplit(url).scheme for url in tab.requests} <= {"file", "data", "about"}
    assert [text for text in tab.problems if "favicon" not in text] == []


def test_the_copy_button_takes_commands_without_their_prompt(site: Path, open_tab) -> None:
    page = open_tab((site / "tutorials" / "forgetting.html").as_uri()).page
    page.evaluate("addEventListener('copy', () => { copied = getSelection().toString(); })")
    for button in page.locator("[data-clipboard-target]").all()[:2]:
        button.click(force=True)
    assert page.evaluate("copied").splitlines() == [
        "clearl run --preset minatar-schemes --method baseline --out runs/baseline",
        "clearl run --preset minatar-schemes --method clear --out runs/clear",
        "clearl report runs/baseline runs/clear --out report-by-hand",
    ]


def test_the_leaderboard_fits_its_page_on_a_desktop_and_keeps_its_methods_in_view_on_a_phone(
    site: Path, open_tab
) -> None:
    address = (site / "results" / "leaderboard.html").as_uri()
    wraps = open_tab(address, width=1280).page.locator(".md-typeset__scrollwrap")
    assert wraps.count() >= 2
    assert wraps.evaluate_all("(all) => all.filter((node) => node.scrollWidth > node.clientWidth).length") == 0
    wrap = open_tab(address, width=390).page.locator(".md-typeset__scrollwrap").first
    lefts = wrap.evaluate(
        """(node) => { node.scrollLeft = 200;
        const cells = [...node.querySelectorAll(":is(td, th):first-child")];
        return cells.map((each) => each.getBoundingClientRect().left); }"""
    )
    assert lefts and min(lefts) >= 0


def test_every_verb_and_setting_is_in_the_reference(site: Path) -> None:
    from clearl.cli.main import VERBS
    from clearl.config import settings
    from clearl.interfaces import __all__ as names

    commands, found, python = (
        (site / "reference" / f"{name}.html").read_text() for name in ("commands", "settings", "python")
    )
    assert [verb for verb in VERBS if f'id="clearl-{verb}"' not in commands] == []
    assert [name for name in settings() if f"<code>{name}</code>" not in found] == []
    assert [name for name in names if f">{name}<" not in python] == []


def test_every_page_is_in_the_search_index(site: Path) -> None:
    located = {
        entry["location"].partition("#")[0]
        for entry in json.loads((site / "search/search_index.json").read_text())["docs"]
    }
    shown = {path.relative_to(site).as_posix() for path in site.rglob("*.html")} - {"404.html"}
    assert shown - located - {"index.html"} == set()


def test_no_page_stands_twice_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    pages = re.findall(r"[\w./-]+\.md", nav)
    assert len(pages) > 40
    assert [page for page in pages if pages.count(page) > 1] == []
