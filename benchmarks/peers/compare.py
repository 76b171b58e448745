"""The rates that run.sh wrote, next to each other: `python benchmarks/peers/compare.py DIRECTORY [--json FILE]`."""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

TARGETS = {"sb3-a2c": 1.5, "rllib-impala": 3.0, "sample-factory": 1.5}
"""How many times as fast clearl shall be."""


def compare(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each measured program: its median rate, and clearl's over it."""
    rows = [row for peer in found for row in peer.get("rows", [])]
    ours = next(statistics.median(row["frames_per_s"]) for row in rows if row["name"] == "clearl")
    return [
        {
            "name": row["name"], "frames_per_s": statistics.median(row["frames_per_s"]), "values": row["frames_per_s"],
            "clearl_over_it": ours / statistics.median(row["frames_per_s"]), "target": TARGETS.get(row["name"]),
            "settings": row["settings"],
        }
        for row in rows
    ]  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = ("clearl", "stable-baselines3", "rllib", "sample-factory")
    files = [options.directory / f"{name}.json" for name in names]
    found = [json.loads(file.read_text()) for file in files if file.exists()]
    rows = compare(found)
    print(f"{'program':<20}{'frames/s':>10}{'clearl / it':>13}{'target':>8}  settings")
    for row in rows:
        target = "" if row["target"] is None else f"{row['target']:.1f}"
        print(
            f"{row['name']:<20}{row['frames_per_s']:>10,.0f}{row['clearl_over_it']:>13.2f}{target:>8}  "
            f"{row['settings']}"
        )
    for peer in found:
        if "error" in peer:
            print(f"{peer['peer']}: {peer['error']}")
    if options.json:
        options.json.write_text(json.dumps({"v": 1, "peers": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
