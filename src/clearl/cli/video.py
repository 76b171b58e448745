"""`clearl video`: watch the trained agent play."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from clearl.cli.arguments import POSITIONAL, Imports, Trust, parse
from clearl.cli.output import tell_origin, warn
from clearl.config import Between
from clearl.errors import ConfigError
from clearl.records.run_dir import file_name

ABOUT = """Let the newest valid checkpoint of a run play, and write a video to .gif or .mp4, with task and score.

An environment that draws itself (render_mode rgb_array) is shown so; otherwise what the agent observes is drawn.

With --switch, the task plays twice, side by side: with the weights at that switch, and with those at the end of the
next segment, which shows forgetting. A run keeps the weights of its last switches (--keep-switch-weights)."""


@dataclass(frozen=True)
class VideoArgs:
    """Flags of `clearl video`."""

    run: Annotated[str, POSITIONAL, "the run directory"]
    task: Annotated[
        str | None, "the task to play; default: the first task of the run, or of the segment that the switch ended"
    ] = None
    switch: Annotated[int | None, Between(1, 1_000_000), "film before and after this switch; the first is 1"] = None
    out: Annotated[str | None, "the file, .gif or .mp4; default: RUN/videos/TASK.gif"] = None
    episodes: Annotated[int, Between(1, 1000), "the number of episodes"] = 1
    max_steps: Annotated[int, Between(1, 100_000), "steps after which an episode is cut"] = 1_000
    imports: Imports = ()
    trust: Trust = False


def main(argv: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = parse(VideoArgs, argv, verb="video", about=ABOUT)
    suffix = Path(args.out).suffix if args.out else ".gif"
    if suffix not in (".gif", ".mp4"):
        raise ConfigError(f"out must end in .gif or .mp4, got {args.out!r}")

    from clearl.runtimes.local.guard import guarded

    with guarded():
        _film(args)
    return 0


def _film(args: VideoArgs) -> None:
    from clearl.play import open_parts, record_switch, record_video, switch_task

    here = Path.cwd()  # environments may change it
    path = here / args.run
    task = args.task or (switch_task(path, args.switch) if args.switch else None)
    trained = next(open_parts(path, [task] if task else [], imports=args.imports, trust=args.trust))
    tell_origin(trained.agent.origin)
    name = file_name(trained.tasks[0]) + (f"-switch-{args.switch}" if args.switch else "")
    shown = Path(args.out) if args.out else Path(args.run) / "videos" / f"{name}.gif"
    file = here / shown
    limits = {"episodes": args.episodes, "max_steps": args.max_steps}
    if args.switch:
        before, after = record_switch(path, trained, args.switch, file, **limits, tell=warn)
        print(f"{shown}: mean score {before:.2f} before the segment, {after:.2f} after it")
    else:
        print(f"{shown}: mean score {record_video(trained, file, **limits, tell=warn):.2f}")
