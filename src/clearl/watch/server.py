"""Serves the page and the runs' data over HTTP, on loopback unless a token guards another address."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import json
import mimetypes
import re
import selectors
import socket
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from clearl.errors import ConfigError
from clearl.watch.library import Library
from clearl.watch.run import VIDEOS, WatchedRun

LOOPBACK = ("127.0.0.1", "localhost", "::1")
POLL_S = 0.25
_KEEP_ALIVE_S = 15.0
_STATIC = {
    "/": "index.html", "/watch.js": "watch.js", "/charts.js": "charts.js", "/panel.js": "panel.js",
    "/watch.css": "watch.css",
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
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""The names that stand for all addresses of this machine, with the address to open on this machine."""


class WatchServer(ThreadingHTTPServer):
    """One library of runs behind an address. `token` is asked for where it is not None."""

    daemon_threads = True

    def __init__(self, library: Library, host: str, port: int, token: str | None) -> None:
        if host not in LOOPBACK and token is None:
            raise ConfigError(f"--host {host} lets other machines read the runs: give --token TEXT as well")
        self.library, self.token = library, None if token is None else _checked_token(token)
        self.cookie = None if token is None else _cookie(token)
        self.hosts = {host, *LOOPBACK} if token is None else None
        self.stopping = False
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"cannot listen on {host} port {port}: {error}; choose another --port") from error

    @property
    def url(self) -> str:
        """The address to open on this machine."""
        host = str(self.server_address[0])
        return self._url_of(_ANY_ADDRESS.get(host, host))

    @property
    def shared_url(self) -> str | None:
        """The address for other machines; None if they have none, or the same."""
        return self._url_of(socket.gethostname()) if str(self.server_address[0]) in _ANY_ADDRESS else None

    def _url_of(self, host: str) -> str:
        shown = f"[{host}]" if ":" in host else host
        asked = "" if self.token is None else f"?token={quote(self.token, safe='')}"
        return f"http://{shown}:{self.server_port}/{asked}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that disconnects in the middle of an answer."""

    def shutdown(self) -> None:
        self.stopping = True
        super().shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer
    protocol_version = "HTTP/1.1"
    timeout = 60
    _has_begun: bool
    """True once the head of the answer is sent."""

    def do_GET(self) -> None:
        self._has_begun = False
        try:
            self._answer()
        except (ConnectionError, TimeoutError):
            raise  # the browser has left
        except Exception as error:  # the page says what is wrong instead of waiting
            if self._has_begun:  # the other half of an answer must not be an error's text
                raise
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
            runs = [run.summary() for run in self.server.library.runs()]
            return self._json({"runs": runs, "notes": self.server.library.notes()})
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
        token, cookie = self.server.token, self.server.cookie
        if token is None or cookie is None:
            return True
        if "token" in query:
            return hmac.compare_digest(query["token"][0].encode(), token.encode())
        name, expected = cookie
        given = [part.strip().partition("=") for part in self.headers.get("Cookie", "").split(";")]
        return any(key == name and hmac.compare_digest(value.encode(), expected.encode()) for key, _, value in given)

    def _static(self, name: str) -> None:
        data = (files("clearl.watch") / "static" / name).read_bytes()
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        extra = {}
        if self.server.cookie is not None:
            extra["Set-Cookie"] = "{}={}; HttpOnly; SameSite=Strict; Path=/".format(*self.server.cookie)
        self._send(HTTPStatus.OK, data, f"{kind}; charset=utf-8", extra)

    def _json(self, value: Any) -> None:
        self._send(HTTPStatus.OK, json.dumps(value, separators=(",", ":")).encode(), "application/json")

    def _video(self, run: WatchedRun, rest: Sequence[str]) -> None:
        """Send only a file that the run lists itself: no path can lead out of its directory."""
        file = run.video_file()
        if file is None or list(rest) != [VIDEOS, file.name]:
            return self._refuse(HTTPStatus.NOT_FOUND, "no such video")
        data, kind = file.read_bytes(), mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        asked = self.headers.get("Range")
        part = None if asked is None else _asked_bytes(asked, len(data))
        if part is None:
            return self._send(HTTPStatus.OK, data, kind, {"Accept-Ranges": "bytes"})
        if not part:
            extra = {"Content-Range": f"bytes */{len(data)}"}
            return self._send(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, b"", kind, extra)
        extra = {"Accept-Ranges": "bytes", "Content-Range": f"bytes {part.start}-{part.stop - 1}/{len(data)}"}
        self._send(HTTPStatus.PARTIAL_CONTENT, data[part.start : part.stop], kind, extra)

    def _events(self, ids: Sequence[str]) -> None:
        """Send events: `runs` when a line of the list changes, `run` when a run has new rows."""
        stamps = self._stamps(ids)  # before the page is told to read: no row falls between the two
        self._head(HTTPStatus.OK, {"Content-Type": "text/event-stream", "Connection": "close"})
        self.close_connection = True
        spoke = 0.0
        while not self.server.stopping and not self._has_left():
            seen = self._stamps(ids)
            for key, stamp in seen.items():
                if stamps.get(key) != stamp:
                    self._event("runs" if key == "list" else "run", key)
                    spoke = time.monotonic()
            stamps = seen
            if time.monotonic() - spoke > _KEEP_ALIVE_S:
                self._event("alive", "")
                spoke = time.monotonic()

    def _stamps(self, ids: Sequence[str]) -> dict[str, Any]:
        library = self.server.library
        stamps: dict[str, Any] = {"list": library.state()}
        return stamps | {key: run.stamp() for key in ids if (run := library.get(key)) is not None}

    def _has_left(self) -> bool:
        """Wait for the next look at the runs; return whether the browser has closed the connection meanwhile."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.connection, selectors.EVENT_READ)
            return bool(selector.select(POLL_S))

    def _event(self, kind: str, data: str) -> None:
        self.wfile.write(f"event: {kind}\ndata: {data}\n\n".encode())
        self.wfile.flush()

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(status, why.encode(), "text/plain; charset=utf-8")

    def _send(self, status: HTTPStatus, data: bytes, kind: str, extra: dict[str, str] | None = None) -> None:
        headers = {"Content-Type": kind, **(extra or {})}
        packs = not kind.startswith(("video", "image")) and "gzip" in self.headers.get("Accept-Encoding", "")
        if len(data) > 1_000 and packs:
            data = gzip.compress(data, 1)
            headers["Content-Encoding"] = "gzip"
        self._head(status, {**headers, "Content-Length": str(len(data))})
        self.wfile.write(data)

    def _head(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self._has_begun = True
        self.send_response(status)
        for name, value in {**_HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: requests are not worth a line each."""


def _checked_token(token: str) -> str:
    """Return the token; refuse one that protects nothing, or that no address can hold."""
    if not token.strip():
        raise ConfigError("the token is empty; give --token TEXT")
    try:
        token.encode()
    except UnicodeEncodeError:
        raise ConfigError("the token is no text in UTF-8; give another --token") from None
    return token


def _cookie(token: str) -> tuple[str, str]:
    """Return name and value of the cookie for a token; the name differs between the servers of one host."""
    digest = hashlib.sha256(f"clearl watch {token}".encode()).hexdigest()
    return f"clearl_{digest[:8]}", digest[8:]


def _asked_bytes(asked: str, nbytes: int) -> range | None:
    """Return the bytes of a file that a Range header asks for, none if it has no such bytes, None to send them all.

    Safari plays no video of a server that cannot send a part of it.
    """
    found = re.fullmatch(r"bytes=(\d{0,15})-(\d{0,15})", asked.strip())
    if found is None or found[0].strip() == "bytes=-":  # several parts, or no bytes: all may be sent instead
        return None
    if not found[1]:
        return range(max(0, nbytes - int(found[2])), nbytes)
    return range(int(found[1]), min(int(found[2] or nbytes), nbytes - 1) + 1)


def serve(roots: Sequence[Path], *, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> WatchServer:
    """Return a server that is listening; call `serve_forever`. Port 0 takes any that is free."""
    for root in roots:
        if not root.is_dir():
            raise ConfigError(f"{root} is no directory; give run directories, or directories with runs in them")
    return WatchServer(Library(roots), host, port, token)
