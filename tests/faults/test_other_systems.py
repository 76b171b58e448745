"""Without what only Linux has (memfd, prctl, /proc, cgroups, CPU affinity) a run with worker processes is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Runs at the start of every Python process, before clearl is imported. Libraries must not take it for a Mac.
FAKE_MAC = """
import builtins, ctypes, io, os, platform, sys, sysconfig
import torch
sysconfig.get_config_vars()  # of this Python; a Mac's are not there

def refuse(path):
    if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(("/proc", "/sys", "/dev/shm")):
        raise FileNotFoundError(2, "No such file or directory", os.fspath(path))

def without_linux(call):
    def checked(path, *args, **kwargs):
        refuse(path)
        return call(path, *args, **kwargs)
    return checked

builtins.open = io.open = without_linux(io.open)
os.listdir = without_linux(os.listdir)
os.stat = without_linux(os.stat)
for name in ("memfd_create", "sched_getaffinity", "sched_setaffinity", "pipe2", "fdatasync", "posix_fadvise",
             "posix_fallocate", "copy_file_range", "eventfd", "pidfd_open", "splice", "waitid", "P_PID", "WNOWAIT"):
    if hasattr(os, name):
        delattr(os, name)
sys.platform = "darwin"
platform.libc_ver = lambda *args, **kwargs: ("", "")

load = ctypes.CDLL
class NoPrctl:
    def __init__(self, name=None, *args, **kwargs):
        self._library = load(name, *args, **kwargs)
    def __getattr__(self, name):
        if name in ("prctl", "mallopt"):
            raise AttributeError(f"symbol not found: {name}")
        return getattr(self._library, name)
ctypes.CDLL = NoPrctl
"""
RUN = [
    "run", "--suite", "minatar", "--tasks", "breakout", "--cycles", "1", "--frames-per-visit", "640", "--slots", "4",
    "--batch-unrolls", "4", "--workers", "2", "--eval-episodes", "1", "--quiet", "--runtime", "local", "--out", "run",
]  # fmt: skip

VERBS = [
    ["run", *RUN[1:-4], "--runtime", "inline", "--out", "inline"], ["doctor"], ["eval", "inline", "--episodes", "1"],
    ["video", "inline", "--max-steps", "5"], ["report", "inline", "--out", "report"], ["memory", "inline"],
    ["export", "inline", "--out", "agent"], ["check", "gym:CartPole-v1", "--steps", "50"],
    ["resume", "inline"],
]  # fmt: skip
"""Verbs that look at the machine or write files, one after the other."""
ALL_VERBS = f"""
import sys
from clearl.cli.main import main
if __name__ == "__main__":
    print([command[0] for command in {VERBS!r} if main(command) != 0])
"""


@pytest.fixture
def mac(tmp_path: Path) -> dict[str, str]:
    """An environment whose Python processes have nothing that only Linux has."""
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "sitecustomize.py").write_text(FAKE_MAC)
    return _environment(tmp_path / "fake")


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'src'}"}


def test_worker_processes_need_nothing_that_only_linux_has(tmp_path: Path, mac: dict[str, str]) -> None:
    looks = "import os, sys; print(sys.platform, hasattr(os, 'memfd_create'), os.path.exists('/proc'))"
    told = subprocess.run(
        [sys.executable, "-c", looks], env=mac, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert told.stdout == "darwin False False\n", "the fake is in place"
    done = subprocess.run(
        [sys.executable, "-m", "clearl", *RUN], cwd=tmp_path, env=mac, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "meta.json").read_text())["status"] == "finished"
    assert '"kind":"fault"' not in (tmp_path / "run" / "metrics.jsonl").read_text().replace(" ", "")


def test_the_other_verbs_need_nothing_either(tmp_path: Path, mac: dict[str, str]) -> None:
    (tmp_path / "verbs.py").write_text(ALL_VERBS)
    done = subprocess.run(
        [sys.executable, "verbs.py"], cwd=tmp_path, env=mac, capture_output=True, text=True, timeout=240
    )
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stdout[-2000:] + done.stderr[-4000:]


@pytest.mark.parametrize("command", ["import clearl", "import clearl.cli.main"])
def test_windows_is_refused_with_the_way_out(command: str, tmp_path: Path) -> None:
    code = f"import sys; sys.platform = 'win32'; {command}"
    done = subprocess.run(
        [sys.executable, "-c", code], env=_environment(tmp_path), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.rstrip().splitlines()[-1] == (
        "ImportError: clearl runs on Linux and macOS; on Windows install it in WSL, the Windows Subsystem for Linux"
    )
