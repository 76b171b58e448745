"""`clearl video`: watch the trained agent play."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from clearl.cli.arguments import POSITIONAL, Imports, Trust, parse
from clearl.config import Between
from clearl.errors import ConfigError

ABOUT = "Let the newest good checkpoint of a run play, and write what it sees as .gif or .mp4."


@dataclass(frozen=True)
class VideoArgs:
    """What `clearl video` takes."""

    run: Annotated[str, POSITIONAL, "the run directory"]
    task: Annotated[str | None, "what it plays; default: the first task of the run"] = None
    out: Annotated[str | None, "the file, .gif or .mp4; default: RUN/videos/TASK.gif"] = None
    episodes: Annotated[int, Between(1, 1000), "how many episodes"] = 1
    max_steps: Annotated[int, Between(1, 100_000), "steps after which an episode is cut"] = 1_000
    imports: Imports = ()
    trust: Trust = False


def main(argv: list[str]) -> int:
    """Run the verb; the exit code."""
    args = parse(VideoArgs, argv, verb="video", about=ABOUT)
    file = Path(args.out) if args.out else Path(args.run) / "videos" / f"{args.task or 'first'}.gif"
    if file.suffix not in (".gif", ".mp4"):
        raise ConfigError(f"out must end in .gif or .mp4, got {args.out!r}")

    from clearl.play import record_video

    score = record_video(
        Path(args.run), file, task=args.task, episodes=args.episodes, max_steps=args.max_steps, imports=args.imports,
        trust=args.trust,
    )  # fmt: skip
    print(f"{file}: mean score {score:.2f}")
    return 0
