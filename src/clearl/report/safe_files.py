"""Read files that somebody else may have made: regular ones of bounded size, YAML without aliases."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import yaml

from clearl.errors import ReportError

_MIB = 1 << 20
LARGEST_NBYTES = {"config.yaml": _MIB, "meta.json": 256 * _MIB, "metrics.jsonl": 4096 * _MIB}
"""A plan of 30,000 switches makes a meta.json of 6 MB; metrics grow by about 0.1 GB in a billion frames."""


def check_file(path: Path) -> bool:
    """Whether the file is there; `ReportError` if it is not a regular file, or too large to be what it should be."""
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


class _PlainLoader(yaml.SafeLoader):
    """YAML as people write settings: an alias is refused, since nested ones grow without bound."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)


def read_settings(path: Path) -> dict[str, Any] | None:
    """The mapping in a YAML file, or None where it is anything else."""
    try:
        value = yaml.load(path.read_text(encoding="utf-8"), Loader=_PlainLoader)  # noqa: S506 (a SafeLoader)
    except (OSError, yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError, TypeError):
        return None
    if value is None:
        return {}
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else None
