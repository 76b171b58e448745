"""`clearl watch`: a live page of runs in the browser."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from clearl.cli.arguments import POSITIONAL, parse
from clearl.config import Between

ABOUT = """Serve a page of one run, several runs, or all below a directory, running or finished. The page follows runs
as they grow. It needs no network: the address is this machine's loopback. Ctrl-C ends it; runs are only read."""


@dataclass(frozen=True)
class WatchArgs:
    """Flags of `clearl watch`."""

    runs: Annotated[tuple[str, ...], POSITIONAL, "run directories, or directories with runs in them"]
    port: Annotated[int, Between(0, 65_535), "port to listen on; 0 takes any that is free"] = 0
    browser: Annotated[bool, "open the page in a browser"] = True
    host: Annotated[str, "address to listen on; any but loopback is guarded by a token"] = "127.0.0.1"
    token: Annotated[
        str | None,
        "ask for this text in the address; without it, the one in CLEARL_WATCH_TOKEN, or for a --host a random one",
    ] = None


def main(argv: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = parse(WatchArgs, argv, verb="watch", about=ABOUT)

    from clearl.watch.server import LOOPBACK, serve

    token = (os.environ.get("CLEARL_WATCH_TOKEN") or None) if args.token is None else args.token
    if token is None and args.host not in LOOPBACK:
        token = secrets.token_urlsafe(16)
    server = serve([Path(run) for run in args.runs], host=args.host, port=args.port, token=token)
    print(f"watching {', '.join(args.runs)} at {server.url} (Ctrl-C ends it)", flush=True)
    if server.shared_url is not None:
        print(f"from other machines: {server.shared_url}", flush=True)
    if args.browser:
        import threading
        import webbrowser

        threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        print()
    finally:
        server.stopping = True
        server.server_close()
    return 0
