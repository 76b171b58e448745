"""Serves the page and the runs' data over HTTP, on loopback unless a token guards another address."""

from __future__ import annotations

import gzip
import hmac
import json
import mimetypes
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from clearl.errors import ConfigError
from clearl.watch.library import VIDEOS, Library, WatchedRun

LOOPBACK = ("127.0.0.1", "localhost", "::1")
POLL_S = 0.5
_KEEP_ALIVE_S = 15.0
_STATIC = {
    "/": "index.html", "/watch.js": "watch.js", "/charts.js": "charts.js", "/watch.css": "watch.css",
    "/uPlot.iife.min.js": "uPlot.iife.min.js", "/uPlot.min.css": "uPlot.min.css",
}  # fmt: skip
_HEADERS = {
    # Nothing from elsewhere, no inline script: names of tasks and files come from strangers.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_COOKIE = "clearl_token"


class WatchServer(ThreadingHTTPServer):
    """One library of runs behind an address. `token` is asked for where it is not None."""

    daemon_threads = True

    def __init__(self, library: Library, host: str, port: int, token: str | None) -> None:
        if host not in LOOPBACK and not token:
            raise ConfigError(f"--host {host} lets other machines read the runs: give --token TEXT as well")
        self.library, self.token = library, token
        self.hosts = {host, *LOOPBACK} if token is None else None
        self.stopping = False
        if ":" in host:
            import socket

            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"cannot listen on {host} port {port}: {error}; choose another --port") from error

    @property
    def url(self) -> str:
        host = str(self.server_address[0])
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.server_port}/" + (f"?token={self.token}" if self.token else "")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that disconnects in the middle of an answer."""

    def shutdown(self) -> None:
        self.stopping = True
        super().shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        try:
            self._answer()
        except OSError:
            raise  # the browser has gone, or the run's files have
        except Exception as error:  # noqa: BLE001 - the page says what is wrong instead of waiting
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")

    def _answer(self) -> None:
        url = urlsplit(self.path)
        if not self._host_is_ours():
            return self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "unknown host")
        if not self._allowed(parse_qs(url.query)):
            return self._refuse(HTTPStatus.FORBIDDEN, "open the address with its ?token=")
        if url.path in _STATIC:
            return self._static(_STATIC[url.path])
        if url.path == "/api/runs":
            return self._json([run.summary() for run in self.server.library.runs()])
        if url.path == "/api/events":
            return self._events(parse_qs(url.query).get("run", []))
        parts = [unquote(part) for part in url.path.split("/")[1:]]
        run = self.server.library.get(parts[2]) if len(parts) > 2 and parts[:2] == ["api", "runs"] else None
        if run is None:
            return self._refuse(HTTPStatus.NOT_FOUND, "no such run or page")
        if len(parts) == 3:
            return self._json(run.snapshot())
        return self._video(run, parts[3:])

    def _host_is_ours(self) -> bool:
        """Check the Host header: a page whose own name points at this address must not read the runs."""
        if self.server.hosts is None:
            return True
        name = (self.headers.get("Host") or "").rsplit(":", 1)[0] if "]" not in (self.headers.get("Host") or "") else ""
        bracketed = (self.headers.get("Host") or "").partition("]")[0].lstrip("[")
        return (name or bracketed) in self.server.hosts

    def _allowed(self, query: dict[str, list[str]]) -> bool:
        token = self.server.token
        if token is None:
            return True
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get(_COOKIE)
        given = query.get("token", [cookie.value if cookie else ""])[0]
        return hmac.compare_digest(given.encode(), token.encode())

    def _static(self, name: str) -> None:
        data = (files("clearl.watch") / "static" / name).read_bytes()
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        extra = {}
        if self.server.token:
            extra["Set-Cookie"] = f"{_COOKIE}={self.server.token}; HttpOnly; SameSite=Strict; Path=/"
        self._send(HTTPStatus.OK, data, f"{kind}; charset=utf-8", extra)

    def _json(self, value: Any) -> None:
        self._send(HTTPStatus.OK, json.dumps(value, separators=(",", ":")).encode(), "application/json")

    def _video(self, run: WatchedRun, rest: Sequence[str]) -> None:
        """Send only a file that the run lists itself: no path can lead out of its directory."""
        file = run.video_file()
        if file is None or list(rest) != [VIDEOS, file.name]:
            return self._refuse(HTTPStatus.NOT_FOUND, "no such video")
        self._send(HTTPStatus.OK, file.read_bytes(), mimetypes.guess_type(file.name)[0] or "application/octet-stream")

    def _events(self, ids: Sequence[str]) -> None:
        """Send events: `runs` when a run appears, disappears or changes its state, `run` when one has new rows."""
        stamps = self._stamps(ids)  # before the page is told to read: no row falls between the two
        self.send_response(HTTPStatus.OK)
        for name, value in {**_HEADERS, "Content-Type": "text/event-stream", "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        spoke = 0.0
        while not self.server.stopping:
            seen = self._stamps(ids)
            for key, stamp in seen.items():
                if stamps.get(key) != stamp:
                    self._event("runs" if key == "list" else "run", key)
                    spoke = time.monotonic()
            stamps = seen
            if time.monotonic() - spoke > _KEEP_ALIVE_S:
                self._event("alive", "")
                spoke = time.monotonic()
            time.sleep(POLL_S)

    def _stamps(self, ids: Sequence[str]) -> dict[str, Any]:
        runs = {run.id: run for run in self.server.library.runs()}
        stamps: dict[str, Any] = {key: runs[key].stamp() for key in ids if key in runs}
        return {**stamps, "list": [(run.id, run.meta_stamp()) for run in runs.values()]}

    def _event(self, kind: str, data: str) -> None:
        self.wfile.write(f"event: {kind}\ndata: {data}\n\n".encode())
        self.wfile.flush()

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(status, why.encode(), "text/plain; charset=utf-8")

    def _send(self, status: HTTPStatus, data: bytes, kind: str, extra: dict[str, str] | None = None) -> None:
        headers = {**_HEADERS, "Content-Type": kind, **(extra or {})}
        if len(data) > 1_000 and "gzip" in self.headers.get("Accept-Encoding", "") and not kind.startswith("video"):
            data = gzip.compress(data, 1)
            headers["Content-Encoding"] = "gzip"
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: requests are not worth a line each."""


def serve(roots: Sequence[Path], *, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> WatchServer:
    """Return a server that is listening; call `serve_forever`. Port 0 takes any that is free."""
    for root in roots:
        if not root.is_dir():
            raise ConfigError(f"{root} is no directory; give run directories, or directories with runs in them")
    return WatchServer(Library(roots), host, port, token)
