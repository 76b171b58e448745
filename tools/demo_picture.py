"""The picture of the README, out of the runs of `clearl demo --fast`: `python tools/demo_picture.py RUNS docs/home`.

Writes forgetting.gif, in which the curves grow as training goes on, and forgetting.svg, its last frame.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle
from PIL import Image

from clearl.report.load import load_runs
from clearl.report.run import Run
from clearl.report.style import PALETTE

TITLES = {"sequential": "Without replay: each task is forgotten", "clear": "CLEAR: kept"}
NAMES = ("task A", "task B", "task C")
FRAMES, MILLISECONDS, LAST_MILLISECONDS = 60, 110, 4000


def draw(runs: dict[str, Run], now: float) -> Any:
    """Draw both arms, as far as training had come by frame `now`."""
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.1), dpi=100, sharey=True)
    end = max(run.end_frames for run in runs.values())
    top = max(curve.returns.max() for run in runs.values() for curve in run.curves.values()) * 1.08
    for axis, (name, title) in zip(axes, TITLES.items(), strict=True):
        run = runs[name]
        tasks = sorted(run.curves, key=lambda task: run.visits(task)[0])
        for task, colour, label in zip(tasks, PALETTE, NAMES, strict=False):
            _line(axis, run, task, now, colour, label)
        axis.set(xlim=(0, end), ylim=(-0.09 * top, top), xticks=[])
        axis.set_title(title, loc="left", fontsize=12, fontweight="bold")
        axis.set_xlabel("training, one task after the other", fontsize=10)
        axis.spines[["top", "right", "bottom"]].set_visible(False)
        axis.plot([now, now], [-0.09 * top, top], color="#8a8f98", lw=0.8, ls=":" if now < end else "")
    axes[0].set_ylabel("score on each task", fontsize=10)
    legend = axes[1].legend(
        loc="upper left", frameon=False, ncols=3, fontsize=9, handlelength=1.2, bbox_to_anchor=(0.0, 1.03)
    )
    for handle in legend.get_lines():
        handle.set_linewidth(3)
    figure.tight_layout()
    return figure


def _line(axis: Any, run: Run, task: str, now: float, colour: str, label: str) -> None:
    """Draw the task's evaluated return: thick while it is trained, and the strip of its visits below."""
    curve = run.curves[task]
    at = np.append(curve.frames[curve.frames < now], now)
    returns = curve.at(at)
    axis.plot(at, returns, color=colour, lw=1.1, label=label)
    for start, stop in run.visits(task):
        inside = (at >= start) & (at <= stop)
        axis.plot(at[inside], returns[inside], color=colour, lw=3)
        low = axis.get_ylim()[0]
        width = min(stop, now) - start
        if width > 0:
            axis.add_patch(
                Rectangle((start, 0), width, 0.045, color=colour, lw=0, transform=axis.get_xaxis_transform())
            )
        axis.set_ylim(bottom=low)


def picture(figure: Any) -> Image.Image:
    """Return the figure as an image."""
    figure.canvas.draw()
    image = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")
    plt.close(figure)
    return image


def main(source: Path, out: Path) -> None:
    """Write both files."""
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "clearl"
    runs = {str(run.meta["arm"]): run for run in load_runs([source])}
    end = max(run.end_frames for run in runs.values())
    out.mkdir(parents=True, exist_ok=True)
    moments = np.linspace(end / FRAMES, end, FRAMES)
    images = [picture(draw(runs, now)) for now in moments]
    palette = images[-1].quantize(32)  # one for all, or colours would change as lines appear
    images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    durations = [MILLISECONDS] * (FRAMES - 1) + [LAST_MILLISECONDS]
    images[0].save(
        out / "forgetting.gif", save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=True
    )
    last = draw(runs, end)
    last.savefig(out / "forgetting.svg", metadata={"Date": None})
    print(*(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB" for path in sorted(out.glob("forgetting.*"))))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
