"""The figures of docs/performance.md, drawn from the sections that `benchmarks.growth` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearl.bench.projection import Constants
from clearl.report.formatting import frames
from clearl.report.style import FAINT, INK, PALETTE, Panels, figure_style

Section = Sequence[dict[str, Any]]

RATE_AXES = {"slots": "slots", "workers": "worker processes", "batch": "unrolls in an update (B)",
             "unroll": "steps of an unroll (T)"}  # fmt: skip
LABELS = {"minatar": "MinAtar net", "atari": "Atari, shallow net"}
MARKERS = "osD^v"
CLUSTER_WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def rates(new_figure: Any, sections: dict[str, Section]) -> Any:
    """Training rate against each setting, all on one scale."""
    names = [name for name in RATE_AXES if name in sections]
    figure, axes = Panels(1, len(names), 1.85, 1.9, gap_x=0.25).make(new_figure)
    top = max(row["frames_per_s"] for name in names for row in sections[name])
    for index, name in enumerate(names):
        axis, rows = axes[0][index], sections[name]
        _line(axis, [row["x"] for row in rows], [row["frames_per_s"] for row in rows], 0)
        if name != "workers":
            axis.set_xscale("log", base=2)
        _plain_ticks(axis, [row["x"] for row in rows])
        axis.set_ylim(0, 1.12 * top)
        axis.set_title(name)
        axis.set_xlabel(RATE_AXES[name])
        _thousands(axis)
        if index:
            axis.tick_params(axis="y", labelleft=False)
    axes[0][0].set_ylabel("frames per second")
    return figure


def replay(new_figure: Any, rows: Section) -> Any:
    """Cost of an insert and of a sample against the unrolls held."""
    figure, axes = Panels(1, 1, 4.6, 2.3, top=0.12).make(new_figure)
    axis, held = axes[0][0], [row["held"] for row in rows]
    lines = {"sample_us": "sample, tiny unroll", "insert_us": "insert, tiny unroll",
             "atari_insert_us": "insert, Atari unroll"}  # fmt: skip
    for index, (key, label) in enumerate(lines.items()):
        _line(axis, held, [row[key] for row in rows], index, label)
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    axis.set_xlabel("unrolls held")
    axis.set_ylabel("µs of one core")
    axis.legend(loc="upper left", ncols=2)
    axis.set_ylim(top=1.45 * axis.get_ylim()[1])
    return figure


def memory(new_figure: Any, rows: Section) -> Any:
    """Memory of all processes, and of replay alone, over the frames of one run."""
    figure, axes = Panels(1, 2, 2.7, 1.9, gap_x=0.7).make(new_figure)
    for axis, key, label in ((axes[0][0], "bytes", "all processes"), (axes[0][1], "replay_bytes", "replay alone")):
        axis.plot([row["frames"] for row in rows], [row[key] / 1e6 for row in rows], color=PALETTE[0], linewidth=1.6)
        axis.axvline(rows[0]["buffer_frames"], color=FAINT, linewidth=1, linestyle="--")
        axis.annotate("buffer full", (rows[0]["buffer_frames"], 0), xytext=(4, 5), textcoords="offset points",
                      fontsize=8, color=INK)  # fmt: skip
        axis.set_title(label)
        axis.set_xlabel("frames")
        axis.set_xlim(left=0)
        axis.set_ylim(0, 1.1 * max(row[key] for row in rows) / 1e6)
        axis.xaxis.set_major_formatter(lambda value, _: frames(value))
        axis.xaxis.set_major_locator(_few_ticks())
    axes[0][0].set_ylabel("MB")
    return figure


def serve(new_figure: Any, rows: Section) -> Any:
    """Draw the rate of one learner, and that of as many real workers."""
    names = list(dict.fromkeys(row["workload"] for row in rows))
    figure, axes = Panels(1, len(names), 2.7, 2.0, gap_x=0.75).make(new_figure)
    for index, name in enumerate(names):
        axis, mine = axes[0][index], [row for row in rows if row["workload"] == name]
        counts = [row["workers"] for row in mine]
        _line(axis, counts, [row["frames_per_s"] for row in mine], 0, "one learner takes")
        _line(axis, counts, [count * mine[0]["worker_frames_per_s"] for count in counts], 1, "workers give")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        _plain_ticks(axis, counts)
        axis.yaxis.set_major_formatter(lambda value, _: frames(value))
        axis.set_title(LABELS.get(name, name))
        axis.set_xlabel("workers, a core each")
    axes[0][0].set_ylabel("frames per second")
    axes[0][0].legend(loc="upper left")
    return figure


def projection(new_figure: Any, rows: Section) -> Any:
    """Days of the paper's runs against workers: with a learner of this machine, and with one that keeps up."""
    figure, axes = Panels(1, len(rows), 2.7, 2.0, gap_x=0.75).make(new_figure)
    for index, row in enumerate(rows):
        axis, constants = axes[0][index], Constants.of(row)
        limited = [constants.days(constants.cluster(count)) for count in CLUSTER_WORKERS]
        free = [constants.days(constants.produced(count)) for count in CLUSTER_WORKERS]
        _line(axis, CLUSTER_WORKERS, limited, 0, "learner as measured here")
        _line(axis, CLUSTER_WORKERS, free, 1, "learner that keeps up")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        _plain_ticks(axis, CLUSTER_WORKERS[::2])
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_title(f"{constants.run}, {frames(constants.total_frames)} frames")
        axis.set_xlabel("workers, a core each")
    axes[0][0].set_ylabel("days")
    axes[0][0].legend(loc="lower left")
    return figure


def draw(sections: dict[str, Section], directory: Path) -> None:
    """Write the figures whose sections are there."""
    directory.mkdir(parents=True, exist_ok=True)
    with figure_style() as new_figure:
        if any(name in sections for name in RATE_AXES):
            _save(rates(new_figure, sections), directory / "rates.svg")
        for name, make, section in (
            ("replay", replay, "replay"), ("memory", memory, "memory"), ("serve", serve, "serve"),
            ("projection", projection, "paper"),
        ):  # fmt: skip
            if section in sections:
                _save(make(new_figure, sections[section]), directory / f"{name}.svg")


def _save(figure: Any, path: Path) -> None:
    """Save on white, since a page may be dark; the same measurements give the same bytes."""
    figure.savefig(path, facecolor="white", metadata={"Date": None, "Creator": "clearl"})


def _line(axis: Any, x: Sequence[float], y: Sequence[float], index: int, label: str | None = None) -> None:
    style = {"color": PALETTE[index], "marker": MARKERS[index], "markersize": 4.5, "linewidth": 1.6}
    axis.plot(x, y, linestyle=("-", "--", ":")[index % 3], label=label, **style)


def _plain_ticks(axis: Any, values: Sequence[int]) -> None:
    axis.set_xticks(values, [str(value) for value in values], minor=False)
    axis.minorticks_off()


def _thousands(axis: Any) -> None:
    axis.yaxis.set_major_formatter(lambda value, _: frames(value))


def _few_ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(4)
