"""`clearl watch` as a process of its own, that is asked for its page and ended by Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


@contextmanager
def served(arguments: Sequence[str], directory: Path) -> Iterator[str]:
    """Serve `clearl watch ARGUMENTS` from `directory`; give its address, then end it and check its exit code."""
    command = [sys.executable, "-m", "clearl", "watch", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(
        command, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True, preexec_fn=hear_ctrl_c
    ) as server:
        assert server.stdout is not None
        address = re.search(r"http://\S+", server.stdout.readline())
        assert address, "it tells its address first"
        yield address[0]
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=60) == 0, "Ctrl-C ends it in order"


def hear_ctrl_c() -> None:
    """Undo that shells let what they start in the background ignore Ctrl-C, tests and what they start included."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
