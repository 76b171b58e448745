"""Processes and shared memory of the games that environments start end with the run, however it ends."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from run_processes import RowCounter, alive, children, wait_until
from whole_runs import small_config, start

pytest.importorskip("vizdoom")


def started_by(pids: list[int]) -> list[int]:
    """All that these processes started."""
    return [child.pid for pid in pids for child in psutil.Process(pid).children(recursive=True)]


def shared_by(games: list[int]) -> set[str]:
    """Names of the shared memory that these processes have mapped: other tests may play at the same time."""
    maps = ""
    for game in games:
        with suppress(FileNotFoundError, ProcessLookupError):  # its episodes are over
            maps += Path(f"/proc/{game}/maps").read_text()
    return {name for name in os.listdir("/dev/shm") if f"/dev/shm/{name}" in maps}


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_doom_ends_with_its_run_and_leaves_no_shared_memory(sent: int, tmp_path: Path) -> None:
    config = small_config(
        runtime="local", workers=1, suite="vizdoom", tasks=("basic",), cycles=1, frames_per_visit=10**6, slots=2,
        batch_unrolls=2, unroll_steps=4, buffer_frames=400, eval_every_frames=200, eval_max_steps=10**4,
        eval_episodes=2, record_every_updates=1, checkpoint_every_frames=None,
    )  # fmt: skip
    process, written = start(config, tmp_path), RowCounter(tmp_path)
    wait_until(process, lambda: len(written.rows("train")) > 10)
    assert process.pid is not None
    family, games, files = list[int](), list[int](), set[str]()

    def everybody_plays() -> bool:
        """Return whether the evaluator, too, is in the midst of its games."""
        family[:] = children(process.pid or 0).values()
        games[:] = started_by(family)
        return len(games) >= 4

    wait_until(process, everybody_plays)
    files |= shared_by(games)
    assert files, "ViZDoom's games are processes that share memory with their environment"
    os.kill(process.pid, sent)
    process.join(15)
    ended = time.monotonic()
    while alive([*family, *games]) or files & set(os.listdir("/dev/shm")):
        process.join(0.05)
        assert time.monotonic() - ended < 5, (alive([*family, *games]), files & set(os.listdir("/dev/shm")))
