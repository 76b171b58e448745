"""Benchmarks of several sections in one JSON file: those that it holds already are kept, unless --only names them."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clearl.records.run_dir import describe_machine, describe_versions
from clearl.runtimes.host import cores

Section = list[dict[str, Any]]


def parser_of(about: str | None, sections: Mapping[str, Any], *, file: str, seconds: float) -> argparse.ArgumentParser:
    """Return a parser of the flags that all such benchmarks have."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"measure these again: {', '.join(sections)}")
    parser.add_argument("--seconds", type=float, default=seconds, help="of each run")
    parser.add_argument("--json", type=Path, default=Path(file))
    return parser


def measure_sections(
    parser: argparse.ArgumentParser,
    sections: Mapping[str, Callable[[argparse.Namespace], Section]],
    packages: tuple[str, ...],
) -> None:
    """Parse the command line, measure the missing sections, and write the file after each of them."""
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else list(sections)
    if unknown := [name for name in wanted if name not in sections]:
        parser.error(f"no such section: {', '.join(unknown)}")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(options.json.read_text()) if options.json.exists() else {"v": 1, "sections": {}}
    for name in wanted:
        if name in found["sections"] and not options.only:
            continue
        say(name)
        started = time.monotonic()
        found["sections"][name] = sections[name](options)
        found |= {"cores": cores(), "machine": describe_machine(), "versions": describe_versions(*packages)}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
        say(f"  {time.monotonic() - started:.0f} s")


def say(line: str) -> None:
    """Report progress, beside the output."""
    print(line, file=sys.stderr, flush=True)
