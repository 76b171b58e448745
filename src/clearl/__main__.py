"""`python -m clearl` is `clearl`."""

from __future__ import annotations

from clearl.cli.main import run_command

run_command()
