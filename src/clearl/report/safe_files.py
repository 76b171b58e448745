"""Read files that somebody else may have made: regular ones of bounded size, YAML without aliases."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from clearl.config.engine import parse_yaml
from clearl.errors import ConfigError, ReportError

_MIB = 1 << 20
LARGEST_NBYTES = {"config.yaml": _MIB, "meta.json": 256 * _MIB, "metrics.jsonl": 4096 * _MIB}
"""A plan of 30,000 switches makes a meta.json of 6 MB; metrics grow by about 0.1 GB in a billion frames."""


def check_file(path: Path) -> bool:
    """Return whether the file is there.

    `ReportError` if it is not a regular file, or too large to be what it should be.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise ReportError(f"{path} is not a regular file; this is no run of clearl")
    limit = LARGEST_NBYTES[path.name]
    if status.st_size > limit:
        raise ReportError(f"{path} has {status.st_size:,} bytes; the report reads at most {limit:,}")
    return True


def read_settings(path: Path) -> dict[str, Any] | None:
    """Return the mapping in a YAML file, or None where it is anything else."""
    try:
        settings = parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError, ConfigError, TypeError):
        return None
    return {str(key): value for key, value in settings.items()}
