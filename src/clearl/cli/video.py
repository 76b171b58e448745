"""`clearl video`: watch the trained agent play."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from clearl.cli.arguments import POSITIONAL, Imports, Trust, parse
from clearl.cli.output import tell_origin
from clearl.config import Between
from clearl.errors import ConfigError
from clearl.records.run_dir import file_name

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
    suffix = Path(args.out).suffix if args.out else ".gif"
    if suffix not in (".gif", ".mp4"):
        raise ConfigError(f"out must end in .gif or .mp4, got {args.out!r}")

    from clearl.play import open_parts, record_video

    trained = next(open_parts(Path(args.run), [args.task] if args.task else [], imports=args.imports, trust=args.trust))
    tell_origin(trained.agent.origin)
    file = Path(args.out) if args.out else Path(args.run) / "videos" / f"{file_name(trained.tasks[0])}.gif"
    score = record_video(trained, file, episodes=args.episodes, max_steps=args.max_steps)
    print(f"{file}: mean score {score:.2f}")
    return 0
