"""Writes the measured tables and figures of the docs: `python tools/performance_tables.py [DIRECTORY OF JSON FILES]`.

Reads bench.json (`make bench`), check.json (`python -m benchmarks.check --json build/check.json`), growth.json
(`python -m benchmarks.growth`), ray.json (`python -m benchmarks.ray`), peers/peers.json and peers/robot.json
(`benchmarks/peers/run.sh`) as far as they are there, replaces what stands between the marks of docs/performance.md and
docs/scale.md, and draws docs/performance/*.svg.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from performance_figures import CLUSTER_WORKERS, LABELS, RATE_AXES, draw

from clearl.bench.projection import Constants
from clearl.report.formatting import frames

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "docs" / "performance.md", ROOT / "docs" / "scale.md")
FIGURES = ROOT / "docs" / "performance"
INTAKE_ASKED_FOR = 400
FAIRNESS_ASKED_FOR = 2.0
RAY_ASKED_FOR = 0.80
SUSTAINED_TFLOPS = (1, 5, 20)


def bench_table(content: dict[str, Any]) -> list[str]:
    """Rates, ideal and ratio of each workload."""
    results = content.get("workloads", [content])
    rows = [["workload", "environment", "inference", "learner", "ideal", "achieved", "achieved / ideal (min to max)"]]
    for result in results:
        rates = [f"{rate['median']:,.0f}" for rate in result["frames_per_s"].values()]
        ratio = result["achieved_over_ideal_spread"]
        spread = f"{ratio['min']:.2f} to {ratio['max']:.2f}, {result['repeats']} times"
        shown = f"{result['achieved_over_ideal']:.2f} ({spread})"
        rows.append([result["workload"], *rates, shown])
    return [f"Frames/s, medians, on {results[0]['cores']} cores.", "", *_table(rows)]


def breakdown_table(content: dict[str, Any]) -> list[str]:
    """Return the shares of each process's time."""
    rows = [["workload", "process", "share of its time"]]
    for result in content.get("workloads", [content]):
        for process, parts in result["breakdown"].items():
            shown = ", ".join(f"{name} {share:.0%}" for name, share in parts.items() if share >= 0.005)
            rows.append([result["workload"], process, shown])
    return _table(rows)


def check_table(content: dict[str, Any]) -> list[str]:
    """Every guarded figure."""
    rows = [["figure", "median", "min to max", "bound", "tolerance", "holds"]]
    for figure in content["figures"]:
        sign = ">=" if figure["at_least"] else "<="
        bound, tolerance = f"{sign} {figure['bound']:g}", f"{figure['tolerance']:.0%}"
        values, holds = figure["values"], "yes" if figure["holds"] else "no"
        spread = f"{min(values):.3g} to {max(values):.3g} ({len(values)})" if len(values) > 1 else ""
        rows.append([figure["about"], f"{figure['value']:.3g}", spread, bound, tolerance, holds])
    return _table(rows)


def peers_table(content: dict[str, Any]) -> list[str]:
    """The programs that one would use instead."""
    rows = [["program", "frames/s", "clearl / it", "target", "settings"]]
    for peer in content["peers"]:
        name = f"{peer['name']} {peer['version']}"
        target = "" if peer["target"] is None else f"{peer['target']:g}"
        if "error" in peer:
            rows.append([name, "", "", target, peer["error"].replace("|", "/")])
            continue
        settings = ", ".join(f"{key} {value}" for key, value in peer["settings"].items())
        ratio = "" if peer["clearl_over_it"] is None else f"{peer['clearl_over_it']:.2f}"
        rows.append([name, f"{peer['frames_per_s']:,.0f}", ratio, target, settings])
    return _table(rows)


def rates_table(content: dict[str, Any]) -> list[str]:
    """Training rate against each setting."""
    lines = ["![training rate against slots, workers, batch and unroll length](performance/rates.svg)", ""]
    rows = [["setting", "its value: frames/s"]]
    for name, label in RATE_AXES.items():
        if name in content["sections"]:
            points = content["sections"][name]
            rows.append([label, ", ".join(f"{point['x']}: {point['frames_per_s']:,.0f}" for point in points)])
    return [*lines, *_table(rows)]


def replay_table(content: dict[str, Any]) -> list[str]:
    """Cost of an insert and a sample against the unrolls held."""
    rows = [["unrolls held", "insert, µs", "sample, µs", "insert of an Atari unroll, µs", "bytes of index an unroll"]]
    for row in content["sections"]["replay"]:
        costs = [f"{row[key]:.0f}" for key in ("insert_us", "sample_us", "atari_insert_us")]
        rows.append([f"{row['held']:,}", *costs, f"{row['index_bytes'] / row['held']:.0f}"])
    return ["![cost of an insert and of a sample against the unrolls held](performance/replay.svg)", "", *_table(rows)]


def memory_table(content: dict[str, Any]) -> list[str]:
    """Memory when the first update is recorded, when the buffer is full, and at the end."""
    points = content["sections"]["memory"]
    full = next((point for point in points if point["frames"] >= point["buffer_frames"]), points[-1])
    rows = [["moment", "frames", "all processes, MB", "replay, MB"]]
    for moment, point in (("first updates", points[0]), ("buffer full", full), ("end", points[-1])):
        sizes = [f"{point['bytes'] / 1e6:,.0f}", f"{point['replay_bytes'] / 1e6:.1f}"]
        rows.append([moment, f"{point['frames']:,}", *sizes])
    return ["![memory of a run over its frames](performance/memory.svg)", "", *_table(rows)]


def serve_table(content: dict[str, Any]) -> list[str]:
    """Return the rate of one learner, and the workers that it serves."""
    section = content["sections"]["serve"]
    rows = [["network", "workers: updates/s that the learner takes", "frames/s, least", "one worker gives", "serves"]]
    for name in dict.fromkeys(row["workload"] for row in section):
        mine = [row for row in section if row["workload"] == name]
        taken = ", ".join(f"{row['workers']}: {row['updates_per_s']:.1f}" for row in mine)
        least, given = min(row["frames_per_s"] for row in mine), mine[0]["worker_frames_per_s"]
        rows.append([LABELS[name], taken, f"{least:,.0f}", f"{given:,.0f}", f"{least / given:.1f} workers"])
    return ["![what one learner takes and what workers give](performance/serve.svg)", "", *_table(rows)]


def projection_table(content: dict[str, Any]) -> list[str]:
    """The paper's own runs, from the measured constants: one machine, a cluster, and the learner that it would take."""
    cores, runs = content["cores"], [Constants.of(row) for row in content["sections"]["paper"]]
    inputs = [["measured constant", *(f"{run.run} (on {run.measured_on})" for run in runs)]]
    constants: list[tuple[str, Callable[[Constants], str]]] = [
        ("F: frames of the run", lambda run: frames(run.total_frames)),
        (f"L: learner on {cores} cores, frames/s", lambda run: f"{run.learner_frames_per_s:,.0f}"),
        ("w: one worker on one core, frames/s", lambda run: f"{run.worker_frames_per_s:,.0f}"),
        ("b: bytes of replay a frame", lambda run: f"{run.replay_bytes_per_frame:.0f}"),
        ("s: share of the frames that the buffer holds", lambda run: f"{run.buffer_share:g}"),
    ]
    for label, shown in constants:
        inputs.append([label, *(shown(run) for run in runs)])
    results = [["projected", *(run.run for run in runs)]]
    machine = [_duration(run.days(run.one_machine(cores))) for run in runs]
    results.append([f"one machine with {cores} cores: F / r, 1 / r = 1 / ({cores} w) + 1 / L", *machine])
    for count in CLUSTER_WORKERS[1::2]:
        days = [_duration(run.days(run.cluster(count))) for run in runs]
        results.append([f"cluster, N = {count} workers, one such learner: F / min(N w, L)", *days])
    for count in CLUSTER_WORKERS[3::2]:
        needed = [f"{_duration(run.days(run.produced(count)))} at {run.produced(count):,.0f} frames/s" for run in runs]
        results.append([f"cluster, N = {count} workers, a learner that takes N w: F / (N w)", *needed])
    results.append(["workers that one such learner serves: L / w", *(f"{run.workers_served:.1f}" for run in runs)])
    disk = [f"{run.replay_bytes / 1e9:,.0f} GB ({run.most_disk_bytes / 1e9:,.0f})" for run in runs]
    results.append(["replay, all records: s b F (at most on disk, with waste)", *disk])
    return ["![days of the paper's runs](performance/projection.svg)", "", *_table(inputs), "", *_table(results)]


def gpu_table(content: dict[str, Any]) -> list[str]:
    """Return the workers that a learner serves, by the operations a second that its device sustains."""
    flops = {row["run"]: row["flops_per_frame"] for row in content["sections"]["operations"]}
    runs = [Constants.of(row) for row in content["sections"]["paper"]]
    rows = [["", *(f"{run.run} (on {run.measured_on})" for run in runs)]]
    rows.append(["o: operations of an update for each of its frames, million",
                 *(f"{flops[run.run] / 1e6:,.1f}" for run in runs)])  # fmt: skip
    rows.append(["w: one worker on one core, frames/s", *(f"{run.worker_frames_per_s:,.0f}" for run in runs)])
    sustained = [f"{run.learner_frames_per_s * flops[run.run] / 1e12:.2f}" for run in runs]
    rows.append([f"o L: what the learner sustains on {content['cores']} cores here, TFLOP/s", *sustained])
    rows.append(["workers that it serves: L / w", *(f"{run.workers_served:.1f}" for run in runs)])
    for tera in SUSTAINED_TFLOPS:
        served = [f"{tera * 1e12 / flops[run.run] / run.worker_frames_per_s:,.0f}" for run in runs]
        rows.append([f"workers that one with {tera:g} TFLOP/s sustained serves: {tera:g}e12 / (o w)", *served])
    return _table(rows)


def scale_table(content: dict[str, Any]) -> list[str]:
    """Return the measurements of the Ray runtime, next to what is asked for."""
    sections, rows = content["sections"], [["what", "measured", "asked for"]]
    for row in sections.get("intake", []):
        size = f"{row['pair_bytes'] / 1000:.0f} KB"
        about = f"pairs a second of {row['workers']} workers into batches with `{row['runtime']}`, {size} each"
        asked = f"{INTAKE_ASKED_FOR} of 282 KB" if row["runtime"] == "ray" else "-"
        rows.append([about, f"{row['pairs_per_s']:,.0f}", asked])
    for row in sections.get("many", []):
        about = f"{row['workers']} light workers and a real learner, speeds up to three times apart"
        pairs = f"{row['max_over_min']:.2f} ({row['most_pairs']} / {row['fewest_pairs']})"
        rows.append([f"{about}: most / fewest pairs taken", pairs, f"at most {FAIRNESS_ASKED_FOR:g}"])
        rows.append(["the same: pairs a second taken", f"{row['pairs_per_s']:,.0f}", "-"])
        rows.append(["the same: age of the weights that acted, in updates", f"{row['lag_updates']:.1f}", "-"])
    for name, asked in (("minatar", "-"), ("atari", f"at least {RAY_ASKED_FOR:.2f}")):
        for row in sections.get(name, []):
            about = (
                f"{LABELS[name]}, {row['workers']} worker{'s' * (row['workers'] > 1)}: `ray` / `local`, frames a second"
            )
            rows.append([about, f"{row['ray']:,.0f} / {row['local']:,.0f} = {row['ray_over_local']:.2f}", asked])
    versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    return [f"On {content['cores']} cores, {versions}.", "", *_table(rows)]


Make = Callable[[dict[str, Any]], list[str]]
TABLES: dict[str, tuple[str, Make, tuple[str, ...]]] = {
    "bench": ("bench.json", bench_table, ()),
    "breakdown": ("bench.json", breakdown_table, ()),
    "check": ("check.json", check_table, ()),
    "rates": ("growth.json", rates_table, tuple(RATE_AXES)),
    "replay": ("growth.json", replay_table, ("replay",)),
    "memory": ("growth.json", memory_table, ("memory",)),
    "serve": ("growth.json", serve_table, ("serve",)),
    "projection": ("growth.json", projection_table, ("paper",)),
    "gpu": ("growth.json", gpu_table, ("operations",)),
    "peers": ("peers/peers.json", peers_table, ()),
    "peers on a robot": ("peers/robot.json", peers_table, ()),
    "scale": ("ray.json", scale_table, ()),
}
"""By mark: the file, the function that makes the table, and the sections of which the file must hold one."""


def filled(page: str, directory: Path) -> str:
    """Return the page with every table that it has a place for and whose measurements are in `directory`."""
    for name, (file, make, sections) in TABLES.items():
        pattern = re.compile(rf"\[//\]: # \({name}\)\n.*?\[//\]: # \(end {name}\)", re.S)
        places = len(pattern.findall(page))
        if places > 1:
            sys.exit(f"the page has {places} places for the table {name}")
        if not places or not (directory / file).exists():
            continue
        content = json.loads((directory / file).read_text(encoding="utf-8"))
        if not sections or any(section in content["sections"] for section in sections):
            new = "\n".join([f"[//]: # ({name})", "", *make(content), "", f"[//]: # (end {name})"])
            page = pattern.sub(lambda _, new=new: new, page)
    return page


def write(measured: Path, pages: Sequence[Path], figures: Path) -> None:
    """Fill the pages and draw the figures; a table without a place on any page is an error."""
    texts = [page.read_text(encoding="utf-8") for page in pages]
    homeless = [name for name in TABLES if not any(f"[//]: # ({name})" in text for text in texts)]
    if homeless:
        sys.exit(f"no page has a place for: {', '.join(homeless)}")
    for page, text in zip(pages, texts, strict=True):
        page.write_text(filled(text, measured), encoding="utf-8")
    if (measured / "growth.json").exists():
        draw(json.loads((measured / "growth.json").read_text(encoding="utf-8"))["sections"], figures)


def _duration(days: float) -> str:
    if days < 2:
        return f"{24 * days:,.1f} hours"
    return f"{days:,.1f} days" if days < 20 else f"{days:,.0f} days"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return [head, "|" + "---|" * len(rows[0]), *body]


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build", PAGES, FIGURES)
