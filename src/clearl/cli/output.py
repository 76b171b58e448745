"""Printing that survives terminals without Unicode, full disks and closed pipes."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import select
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearl.acting.agent import Origin

_IN_ASCII = {
    **{bar: str(height) for height, bar in enumerate("▁▂▃▄▅▆▇█", 1)},
    "▶": ">", "–": "-", "—": "-", "−": "-", "±": "+-", "×": "x", "…": "...", "·": ".", "→": "->", "≥": ">=",
    **dict.fromkeys("━─╸╺═", "-"),
    **dict.fromkeys("│┃║", "|"),
    **dict.fromkeys("╭╮╰╯┌┐└┘├┤┬┴┼┏┓┗┛┡┩╇┳┻╋", "+"),
}  # fmt: skip
_HANDLER = "clearl-ascii"


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_IN_ASCII.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def accept_any_terminal() -> None:
    """Let stdout replace what its encoding lacks (a Latin-1 or ASCII terminal) instead of raising."""
    codecs.register_error(_HANDLER, _in_ascii)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors=_HANDLER)


def fitted(text: str, indent: int = 2) -> str:
    """Break lines between words where they are wider than the terminal; files and pipes get them whole.

    The rest of a line is indented by `indent` columns more than its beginning.
    """
    if sys.stdout is None or not sys.stdout.isatty():
        return text
    return "\n".join(_filled(line, shutil.get_terminal_size().columns, indent) for line in text.splitlines())


def _filled(line: str, width: int, indent: int) -> str:
    rest = " " * (len(line) - len(line.lstrip()) + indent)
    return textwrap.fill(line, width, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)


def tell(line: str) -> None:
    """Print the last line of a verb that has done its work; a failure to print does not make the verb fail."""
    try:
        print(line, flush=True)
    except (OSError, ValueError):  # ValueError: an environment has closed stdout
        silence()


def warn(line: str) -> None:
    """Print a warning on stderr that does not end the command."""
    from clearl.records.names import printable

    print(printable(f"clearl: {line}"), file=sys.stderr, flush=True)


def tell_origin(origin: Origin | None) -> None:
    """Say on stderr which checkpoint is used, of how many frames, and which newer ones are damaged."""
    if origin is not None:
        for note in origin.notes:
            warn(note)
        warn(str(origin))


def check_writable(file: Path) -> None:
    """Raise an `OSError` if `file` cannot be written; called before long work whose result goes there."""
    is_new = not file.exists()
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab"):
        pass
    if is_new:
        file.unlink()


def reader_is_gone() -> bool:
    """Return whether nobody reads stdout any more, as after `clearl list | head`."""
    try:
        poll = select.poll()
        poll.register(sys.stdout, 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    except (AttributeError, OSError, ValueError):  # closed, or no file
        return False


def silence() -> None:
    """Drop what stdout still holds, so that Python does not fail when it flushes at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
