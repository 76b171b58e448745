"""From directories to runs: every run below the given directories, in whatever state it was left."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from clearl.errors import ClearlError, ReportError
from clearl.records.names import clean_name
from clearl.records.reader import scan_rows
from clearl.records.run_dir import CONFIG_FILE, META_FILE, read_meta
from clearl.records.schema import METRICS_FILE
from clearl.report.lengths import without_compress_frames
from clearl.report.rows import curves, finite, parse_rows, planned_spans, success_curves, switch_returns
from clearl.report.run import Run
from clearl.report.safe_files import check_file, read_settings


def load_runs(dirs: Sequence[Path]) -> list[Run]:
    """Return every run at or below the directories; `ReportError` if there is none."""
    paths = list(dict.fromkeys(path.resolve() for given in dirs for path in _run_paths(Path(given))))
    if not paths:
        raise ReportError(f"no run found in {', '.join(map(str, dirs))}: a run holds {METRICS_FILE} and {META_FILE}")
    return merge_parts([load_run(path) for path in paths])


def load_run(path: Path) -> Run:
    """Return the run in one directory."""
    notes: list[str] = []
    meta = _read_meta(path, notes)
    config = _read_config(path, notes)
    check_file(path / METRICS_FILE)
    scan = scan_rows(path / METRICS_FILE, thin="train")
    scale = float(meta["frames_scale"])
    parsed = without_compress_frames(parse_rows(scan.rows, scale), config)
    if damaged := len(scan.damaged_lines) + parsed.odd_rows:
        notes.append(f"{damaged} damaged rows were left out")
    spans = parsed.spans or planned_spans(meta.get("plan"), scale)
    planned = parsed.planned_frames
    if planned is None and spans and np.isfinite([span.end for span in spans]).all():
        planned = max(span.end for span in spans)
    evaluations = parsed.evaluations
    end = np.inf if planned is None else planned
    return Run(
        path=path,
        meta=meta,
        config=config,
        curves=curves(evaluations, end=end),
        spans=tuple(span for span in spans if span.start < np.inf),
        planned_frames=planned,
        seen_frames=parsed.seen_frames,
        notes=tuple(notes),
        fps=float(np.median(parsed.speeds)) if parsed.speeds else None,
        wall_s=parsed.wall_s,
        switches=switch_returns(evaluations),
        success=success_curves(evaluations, end=end),
        has_two_columns=parsed.has_secondary,
        skipped=parsed.skipped,
        memory_nbytes=parsed.memory_nbytes,
        compress_frames=parsed.compress_frames,
    )


def merge_parts(runs: Iterable[Run]) -> list[Run]:
    """Put the parts of each `separate` run together: of each part, the tasks that it trained."""
    merged: list[Run] = []
    parts: dict[tuple[Path, int, str | None], list[Run]] = {}
    for run in runs:
        if run.protocol == "separate" and run.frames_scale > 1:
            parts.setdefault((run.path.parent, run.seed, run.meta.get("arm")), []).append(run)
        else:
            merged.append(run)
    return merged + [_merge(list(group)) for group in parts.values()]


def _merge(parts: list[Run]) -> Run:
    wanted = int(parts[0].frames_scale)
    notes = [note for part in parts for note in part.notes]
    if len(parts) < wanted:
        notes.append(f"{len(parts)} of {wanted} tasks were run")
    trained = [(part, task) for part in parts for task in {task for span in part.spans for task in span.tasks}]
    finished = len(parts) == wanted and all(part.is_finished for part in parts)
    planned = [part.planned_frames for part in parts]
    memory = [part.memory_nbytes for part in parts]
    return replace(
        parts[0],
        path=parts[0].path.parent,
        meta={**parts[0].meta, "status": "finished" if finished else "interrupted"},
        curves={task: part.curves[task] for part, task in trained if task in part.curves},
        success={task: part.success[task] for part, task in trained if task in part.success},
        switches={task: part.switches[task] for part, task in trained if task in part.switches},
        spans=tuple(span for part in parts for span in part.spans),
        planned_frames=None if None in planned else max(frames or 0.0 for frames in planned),
        seen_frames=min((part.seen_frames for part in parts if part.curves), default=0.0),
        notes=tuple(notes),
        wall_s=sum(part.wall_s for part in parts),
        memory_nbytes=None if None in memory else sum(nbytes or 0.0 for nbytes in memory),
    )


def _run_paths(top: Path) -> Iterator[Path]:
    if not top.is_dir():
        raise ReportError(f"{top} is {'no directory' if top.exists() else 'not there'}; give run directories")
    for directory, names, files in os.walk(top):
        if METRICS_FILE in files or (META_FILE in files and CONFIG_FILE in files and not _has_parts(directory, names)):
            names.clear()  # nothing below a run is another run
            yield Path(directory)
        names.sort()


def _has_parts(directory: str, names: Iterable[str]) -> bool:
    return any((Path(directory) / name / META_FILE).exists() for name in names)


def _read_meta(path: Path, notes: list[str]) -> dict[str, Any]:
    """Return the meta data, with the entries that the report computes with checked."""
    if not check_file(path / META_FILE):
        notes.append(f"there is no {META_FILE}")
        return {"frames_scale": 1}
    try:
        meta = read_meta(path)
    except (ClearlError, OSError) as error:
        raise ReportError(f"cannot report this run: {error}") from None
    for key, least, default in (("seed", None, None), ("frames_scale", 1, 1), ("probe_position", 0, None)):
        meta[key] = _number(path, key, meta.get(key), least)
        if meta[key] is None:
            meta[key] = default
            if default is None:
                del meta[key]
    for key in ("arm", "suite", "protocol", "method", "probe_task"):
        if meta.get(key) is not None:
            meta[key] = clean_name(meta[key])
    return meta


def _number(path: Path, key: str, value: Any, least: int | None) -> int | None:
    if value is None:
        return None
    try:
        number = finite(value)
    except (TypeError, ValueError, OverflowError):
        number = np.nan
    if number != int(number if np.isfinite(number) else 0) or (least is not None and number < least):
        raise ReportError(f"cannot report this run: {path / META_FILE} has {key} = {value!r:.40}, not a whole number")
    return int(number)


def _read_config(path: Path, notes: list[str]) -> dict[str, Any]:
    if not check_file(path / CONFIG_FILE):
        notes.append(f"there is no {CONFIG_FILE}")
        return {}
    config = read_settings(path / CONFIG_FILE)
    if config is None:
        notes.append(f"{CONFIG_FILE} cannot be read")
        return {}
    if not isinstance(config.get("seed", 0), int):
        del config["seed"]
    return config
