"""Compare what run.sh measured: `python benchmarks/peers/compare.py MEASURED.jsonl [--json FILE]`."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ON_ROBOTS = "-cheetah"
"""Ends the names of programs that are measured on HalfCheetah, and clearl's own there."""
TARGETS = {"sb3-a2c": 1.5, "rllib-impala": 3.0, "sample-factory": 1.5}
"""The least ratio of clearl's speed to each program's."""


def compare(measured: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each program: its median rate, and the median of clearl's over it.

    The two of a ratio were measured one after the other, clearl first. A program without a rate keeps its reason.
    """
    rows = []
    for name in dict.fromkeys(line["name"] for line in measured):
        lines = [line for line in measured if line["name"] == name]
        rates = [line["frames_per_s"] for line in lines if "frames_per_s" in line]
        row = {"name": name, "version": lines[-1].get("version", ""), "target": TARGETS.get(name), "values": rates}
        if not rates:
            rows.append({**row, "error": lines[-1]["error"]})
            continue
        ratios = [1.0] if name.removesuffix(ON_ROBOTS) == "clearl" else _ratios(measured, name)
        row |= {"frames_per_s": statistics.median(rates), "settings": _settings(lines)}
        rows.append({**row, "ratios": ratios, "clearl_over_it": statistics.median(ratios) if ratios else None})
    return rows


def _ratios(measured: Sequence[dict[str, Any]], name: str) -> list[float]:
    """Return clearl's last rate before each line of the program, over that line's."""
    ours, ratios = None, []
    counterpart = f"clearl{ON_ROBOTS}" if name.endswith(ON_ROBOTS) else "clearl"
    for line in measured:
        if line["name"] == counterpart:
            ours = line.get("frames_per_s")
        elif line["name"] == name and "frames_per_s" in line and ours is not None:
            ratios.append(ours / line["frames_per_s"])
    return ratios


def _settings(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return next(line["settings"] for line in reversed(lines) if "settings" in line)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("measured", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.measured.read_text().splitlines()]
    rows = compare(lines)
    print(f"{'program':<18}{'version':>9}{'frames/s':>10}{'clearl / it':>13}{'target':>8}  settings")
    for row in rows:
        target = "" if row["target"] is None else f"{row['target']:.1f}"
        if "error" in row:
            print(f"{row['name']:<18}{row['version']:>9}  {row['error']}")
            continue
        ratio = "" if row["clearl_over_it"] is None else f"{row['clearl_over_it']:.2f}"
        rate = f"{row['frames_per_s']:,.0f}"
        print(f"{row['name']:<18}{row['version']:>9}{rate:>10}{ratio:>13}{target:>8}  {row['settings']}")
    if options.json:
        content = {"v": 2, "cores": lines[0].get("cores"), "seconds": lines[0].get("seconds"), "peers": rows}
        options.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
