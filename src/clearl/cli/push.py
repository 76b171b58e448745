"""`clearl push`: the trained agent to the Hugging Face hub."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from clearl.cli.arguments import POSITIONAL, Imports, Trust, parse
from clearl.cli.output import tell_origin

ABOUT = """Upload the agent of the newest valid checkpoint, with a model card, to the Hugging Face hub.

clearl.load_agent("hf:ORG/NAME") loads it anywhere. Log in first, with `hf auth login` or HF_TOKEN.
Files of an earlier push are replaced or deleted; other files of the repository stay."""


@dataclass(frozen=True)
class PushArgs:
    """Flags of `clearl push`."""

    name: Annotated[str, POSITIONAL, "ORG/NAME on the hub; made if it is not there"]
    run: Annotated[str, POSITIONAL, "the run directory"]
    format: Annotated[tuple[str, ...], "formats beside clearl's own, comma-separated: onnx, torch"] = ()
    private: Annotated[bool, "make a new repository that only you can see"] = False
    imports: Imports = ()
    trust: Trust = False


def main(argv: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = parse(PushArgs, argv, verb="push", about=ABOUT)

    from clearl.artifacts import EXPORTED, export_agent
    from clearl.sharing.hub import check_push, push

    run = Path(args.run).absolute()  # environments may change the directory
    repo = check_push(args.name)
    formats = dict.fromkeys(("clearl", *args.format))
    with tempfile.TemporaryDirectory(prefix="clearl-push-") as directory:
        out = Path(directory) / "agent"
        origin = export_agent(
            run, out, formats=tuple(formats), card_for=f"hf:{repo}", imports=args.imports, trust=args.trust
        )
        tell_origin(origin)
        message = f"Upload agent after {origin.frames:,} frames" if origin else "Upload agent"
        url = push(out, repo, replaces=EXPORTED, private=args.private, message=message)
    print(f'{url}: agent = clearl.load_agent("hf:{repo}")')
    return 0
