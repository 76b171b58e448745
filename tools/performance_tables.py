"""Writes the measured tables of docs/performance.md: `python tools/performance_tables.py [DIRECTORY OF JSON FILES]`.

Reads bench.json (`make bench`), check.json (`python -m benchmarks.check --json build/check.json`) and peers/peers.json
(`benchmarks/peers/run.sh`) as far as they are there, and replaces what stands between the marks of the page.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"


def bench_table(content: dict[str, Any]) -> list[str]:
    """Rates, ideal and ratio of each workload."""
    results = content.get("workloads", [content])
    rows = [["workload", "environment", "inference", "learner", "ideal", "achieved", "achieved / ideal (min to max)"]]
    for result in results:
        rates = [f"{rate['median']:,.0f}" for rate in result["frames_per_s"].values()]
        ratio = result["achieved_over_ideal_spread"]
        shown = f"{result['achieved_over_ideal']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})"
        rows.append([result["workload"], *rates, shown])
    return [f"Frames/s, medians of {results[0]['repeats']} repeats on {results[0]['cores']} cores.", "", *_table(rows)]


def breakdown_table(content: dict[str, Any]) -> list[str]:
    """Where the time of each process went."""
    rows = [["workload", "process", "share of its time"]]
    for result in content.get("workloads", [content]):
        for process, parts in result["breakdown"].items():
            shown = ", ".join(f"{name} {share:.0%}" for name, share in parts.items() if share >= 0.005)
            rows.append([result["workload"], process, shown])
    return _table(rows)


def check_table(content: dict[str, Any]) -> list[str]:
    """Every guarded figure."""
    rows = [["figure", "measured", "bound", "tolerance", "holds"]]
    for figure in content["figures"]:
        sign = ">=" if figure["at_least"] else "<="
        bound, tolerance = f"{sign} {figure['bound']:g}", f"{figure['tolerance']:.0%}"
        rows.append([figure["about"], f"{figure['value']:.3g}", bound, tolerance, "yes" if figure["holds"] else "no"])
    return _table(rows)


def peers_table(content: dict[str, Any]) -> list[str]:
    """The programs that one would use instead."""
    rows = [["program", "frames/s", "clearl / it", "target", "settings"]]
    for peer in content["peers"]:
        target = "" if peer["target"] is None else f"{peer['target']:g}"
        settings = ", ".join(f"{key} {value}" for key, value in peer["settings"].items())
        rows.append([peer["name"], f"{peer['frames_per_s']:,.0f}", f"{peer['clearl_over_it']:.2f}", target, settings])
    return _table(rows)


TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], list[str]]]] = {
    "bench": ("bench.json", bench_table),
    "breakdown": ("bench.json", breakdown_table),
    "check": ("check.json", check_table),
    "peers": ("peers/peers.json", peers_table),
}


def filled(page: str, directory: Path) -> str:
    """The page with every table whose measurements are in `directory`."""
    for name, (file, make) in TABLES.items():
        if (directory / file).exists():
            lines = make(json.loads((directory / file).read_text(encoding="utf-8")))
            new = "\n".join([f"[//]: # ({name})", "", *lines, "", f"[//]: # (end {name})"])
            pattern = re.compile(rf"\[//\]: # \({name}\)\n.*?\[//\]: # \(end {name}\)", re.S)
            page, count = pattern.subn(lambda _, new=new: new, page)
            if count != 1:
                sys.exit(f"the page has {count} places for the table {name}")
    return page


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return [head, "|" + "---|" * len(rows[0]), *body]


if __name__ == "__main__":
    measured = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build"
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), measured), encoding="utf-8")
