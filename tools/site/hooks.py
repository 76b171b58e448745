"""MkDocs hooks: pages generated from the code, and formulas set as MathML, which browsers draw without a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import formulas
import navigation
import notebooks
import reference
from mkdocs.structure.files import File, Files


def on_config(config: Any) -> Any:
    """Complete the navigation."""
    navigation.complete(config.nav, Path(config.docs_dir))
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    for path, text in {**reference.pages(), **notebooks.pages()}.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Take formulas out of a page, so that Markdown does not touch them."""
    text, page.formulas = formulas.take_out(markdown)
    return text


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Put formulas back, as MathML."""
    return formulas.put_in(html, page.formulas)
