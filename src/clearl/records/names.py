"""Names of arms and tasks come from files that anybody may have written: make them safe to print and to draw."""

from __future__ import annotations

import hashlib
import unicodedata
from typing import Any

_LONGEST = 100
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")


def clean_name(name: Any) -> str:
    """Return the name as one line of printable text, at most 100 characters; different names stay different.

    Control characters, line breaks, surrogates and marks that turn the direction of writing become "?".
    """
    text = name if isinstance(name, str) else str(name)
    safe = "".join("?" if unicodedata.category(letter) in _UNSAFE else letter for letter in text[: 2 * _LONGEST])
    if safe == text and len(text) <= _LONGEST:
        return text
    mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:4]
    return f"{safe[:_LONGEST]}…{mark}"


def printable(text: str) -> str:
    """Return the text with its lines kept, but without what a terminal would obey, such as escape sequences."""
    return "".join(
        "?" if letter not in "\n\t" and unicodedata.category(letter) in _UNSAFE else letter for letter in text
    )
