"""Make the README readable away from the repository: its relative links and pictures become absolute.

    python tools/index_readme.py README.md https://HOST/OWNER/NAME vX.Y.Z

The page of a package index shows README.md without the files beside it. The release workflow knows the address of the
repository and the tag; the file in the repository stays relative.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_LINK = re.compile(r"(!?)(\[(?:[^\[\]]|\[[^\[\]]*\])*\])\((?!https?://|#)([^)\s]+)\)")


def absolute(text: str, repository: str, tag: str) -> str:
    """Return Markdown whose relative links lead to the files of a tag, and whose pictures load from there."""

    def replaced(found: re.Match[str]) -> str:
        picture, words, path = found.groups()
        return f"{picture}{words}({repository.rstrip('/')}/{'raw' if picture else 'blob'}/{tag}/{path})"

    return _LINK.sub(replaced, text)


def main(file: str, repository: str, tag: str) -> None:
    path = Path(file)
    path.write_text(absolute(path.read_text(encoding="utf-8"), repository, tag), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
