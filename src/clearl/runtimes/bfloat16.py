"""Whether this processor computes in bfloat16: some virtual machines announce instructions and kill who uses them."""

from __future__ import annotations

import functools
import subprocess
import sys

from clearl.config import RunConfig
from clearl.errors import ConfigError
from clearl.runtimes.process import exit_in_words

_PROGRAM = """
import torch
torch.set_num_threads(1)
network = torch.nn.Sequential(torch.nn.Conv2d(4, 16, 3), torch.nn.Flatten(), torch.nn.Linear(1024, 64))
with torch.autocast("cpu", torch.bfloat16):
    network(torch.zeros(32, 4, 10, 10)).float().sum().backward()
"""


def check_autocast(config: RunConfig) -> None:
    """Raise `ConfigError` where `autocast` would end the process without a word; tried out in another one."""
    if config.autocast and config.device == "cpu" and (end := _try_out()):
        raise ConfigError(
            f"autocast must be false on this machine: a process that computes in bfloat16 {end}. "
            "ONEDNN_MAX_CPU_ISA=AVX2 in the environment may help"
        )


@functools.cache
def _try_out() -> str:
    """How a process that tries it ends, in words; empty if all is well."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, check=False)
    return exit_in_words(done.returncode) if done.returncode else ""
