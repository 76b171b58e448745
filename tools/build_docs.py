"""README.md and docs/*.md as HTML, with every link between them checked: `python tools/build_docs.py build/docs`."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ max-width: 50rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif; }}
code, pre {{ background: #f4f4f4; }} pre {{ padding: .7rem; overflow-x: auto; }}
table {{ border-collapse: collapse; }} td, th {{ border: 1px solid #ccc; padding: .2rem .6rem; }}
img {{ max-width: 100%; }}
</style></head><body>{body}</body></html>
"""
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def pages(root: Path) -> list[Path]:
    """Every page of the documentation."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def broken_links(page: Path) -> list[str]:
    """Links of a page to files that are not there."""
    links = LINK.findall(page.read_text(encoding="utf-8"))
    local = (link for link in links if not re.match(r"[a-z]+:", link))
    return [f"{page.name}: {link}" for link in local if not (page.parent / link).exists()]


def build(root: Path, out: Path) -> list[str]:
    """Write the pages below `out`, and the pictures that they show; the broken links."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    broken = []
    for page in pages(root):
        broken += broken_links(page)
        text = re.sub(r"(\]\([^):\s]+)\.md(#[^)]*)?\)", r"\1.html\2)", page.read_text(encoding="utf-8"))
        target = out / page.relative_to(root).with_suffix(".html")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(PAGE.format(title=page.stem, body=markdown.render(text)), encoding="utf-8")
    for picture in (root / "docs").rglob("*.svg"):
        target = out / picture.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(picture, target)
    return broken


if __name__ == "__main__":
    problems = build(ROOT, Path(sys.argv[1]))
    print("\n".join(f"broken link: {problem}" for problem in problems) or f"{sys.argv[1]}/README.html")
    sys.exit(bool(problems))
