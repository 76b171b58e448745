"""The model card of an agent: README.md with results and forgetting per task, as the Hugging Face hub reads it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import yaml

from clearl.records.names import clean_name
from clearl.records.table import MetricsTable
from clearl.report.load import load_run
from clearl.report.retention import forgetting
from clearl.report.run import Run
from clearl.storage.files import write_atomically

CARD_FILE = "README.md"
VIDEO_DIR = "videos"
_VIDEO_KINDS = (".gif", ".mp4")
VIDEO_FILES = tuple(f"{VIDEO_DIR}/*{kind}" for kind in _VIDEO_KINDS)
_MOST_VIDEOS = 8
_MOST_VIDEO_NBYTES = 50 * 2**20


@dataclass(frozen=True)
class TaskResult:
    """The last evaluation of a task."""

    task: str
    mean: float | None
    """None where it was not finite."""

    std: float | None
    episodes: int
    forgetting: float | None
    """Mean drop of the return while the task was not trained; None where it never was absent."""


def write_card(run_path: Path, out: Path, *, load_as: str | None) -> None:
    """Write the card of a run into `out`, with copies of its videos; `load_as` is what `load_agent` takes, if any."""
    run = load_run(run_path)
    videos = _copy_videos(run_path / VIDEO_DIR, out / VIDEO_DIR)
    text = card_text(run, task_results(run), videos, load_as=load_as)
    write_atomically(out / CARD_FILE, text.encode())


def task_results(run: Run) -> list[TaskResult]:
    """Return the results in the order in which the run first evaluated the tasks."""
    last: dict[str, dict[str, Any]] = {}
    for row in MetricsTable.read(run.path).where(kind="eval"):
        if not row.get("secondary"):
            last[str(row["task"])] = row
    return [
        TaskResult(
            task, _number(row.get("return")), _number(row.get("std")), int(row["episodes"]),
            forgetting(run, clean_name(task)),
        )
        for task, row in last.items()
    ]  # fmt: skip


def _number(value: Any) -> float | None:
    """Return a number of a row; None where it was not finite, which rows record as null."""
    return float(value) if isinstance(value, int | float) else None


def card_text(run: Run, results: Sequence[TaskResult], videos: Sequence[str], *, load_as: str | None) -> str:
    front = yaml.safe_dump(_front_matter(run, results), sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n" + "\n".join(_body(run, results, videos, load_as)) + "\n"


def _front_matter(run: Run, results: Sequence[TaskResult]) -> dict[str, Any]:
    tags = ["reinforcement-learning", "deep-reinforcement-learning", "continual-learning", "clearl"]
    front = {"library_name": "clearl", "tags": [*tags, *(clean_name(result.task) for result in results)]}
    # What was never evaluated to a number has nothing to compare.
    indexed = [found for found in map(_indexed, results) if found["metrics"]]
    return {**front, "model-index": [{"name": _method(run), "results": indexed}]} if indexed else front


def _indexed(result: TaskResult) -> dict[str, Any]:
    task = clean_name(result.task)
    metrics = []
    if result.mean is not None:
        metrics.append({"type": "mean_reward", "value": _score(result), "name": "mean_reward", "verified": False})
    if result.forgetting is not None:
        forgotten = round(result.forgetting, 4)
        metrics.append({"type": "forgetting", "value": forgotten, "name": "forgetting", "verified": False})
    return {
        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
        "dataset": {"name": task, "type": task},
        "metrics": metrics,
    }


def _body(run: Run, results: Sequence[TaskResult], videos: Sequence[str], load_as: str | None) -> Iterator[str]:
    names = ", ".join(_escaped(result.task) for result in results)
    yield f"# {_escaped(_method(run))} on {names}\n"
    version = _escaped(str(run.meta.get("clearl")))
    yield (
        f"One agent for {len(results)} task{'s' * (len(results) != 1)}, trained with clearl {version} "
        f"(protocol {_escaped(run.protocol)}, seed {run.seed}, {run.seen_frames:,.0f} environment frames).\n"
    )
    yield "| task | return | episodes | forgetting |\n|---|---|---|---|"
    for result in results:
        lost = "-" if result.forgetting is None else f"{result.forgetting:.2f}"
        yield f"| {_escaped(result.task)} | {_score(result)} | {result.episodes} | {lost} |"
    yield "\nReturns are undiscounted and unclipped: mean +/- standard deviation over the last evaluation's episodes."
    if any(result.mean is None for result in results):
        yield "A mean that was not finite is left out."
    yield "Forgetting is the mean drop of the return while the task was not trained; less is better.\n"
    yield from map(_shown, videos)
    if load_as is not None:
        use = f'import clearl\n\nagent = clearl.load_agent("{load_as}")\nagent.act(observation, task=...)'
        yield _fenced("python", use)
    yield "\n## Settings\n"
    yield _fenced("yaml", yaml.safe_dump(run.config, allow_unicode=True).rstrip())


def _method(run: Run) -> str:
    return clean_name(run.meta.get("label") or run.meta.get("method") or "clearl")


def _shown(video: str) -> str:
    """Return an animated picture, or a link to a film: Markdown shows none."""
    words = _escaped(Path(unquote(video)).stem)
    return f"![{words}]({video})\n" if video.endswith(".gif") else f"[Video: {words}]({video})\n"


def _score(result: TaskResult) -> str:
    if result.mean is None:
        return "-"
    return f"{result.mean:.2f}" + ("" if result.std is None else f" +/- {result.std:.2f}")


def _escaped(text: str) -> str:
    """Escape text of a run, so that Markdown shows it and does nothing else."""
    return re.sub(r"([\\`*_{}\[\]()<>#|!&])", r"\\\1", clean_name(text))


def _fenced(language: str, text: str) -> str:
    """Return a code block whose fence is longer than any in the text."""
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _copy_videos(source: Path, target: Path) -> list[str]:
    """Copy the videos; return their paths relative to the card."""
    if not source.is_dir():
        return []
    files = sorted(file for file in source.iterdir() if file.suffix in _VIDEO_KINDS and file.is_file())
    small = [file for file in files if file.stat().st_size <= _MOST_VIDEO_NBYTES][:_MOST_VIDEOS]
    for file in small:
        target.mkdir(exist_ok=True)
        shutil.copyfile(file, target / file.name)
    return [f"{target.name}/{quote(file.name)}" for file in small]
