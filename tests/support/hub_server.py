"""A stand-in for the Hugging Face hub: the part of its API that creating, committing and downloading use."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

TOKEN = "hf_a_token_that_may_write"
LARGE_KINDS = (".safetensors", ".onnx")
"""Files that go the way of Git LFS, whatever their size, as on the hub."""


@dataclass
class Hub:
    """The contents of the server, and the requests that it got."""

    url: str = ""
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    told_sizes: dict[str, int] = field(default_factory=dict)
    """Sizes that a repository claims for files, where they are not the true ones."""
    blobs: dict[str, bytes] = field(default_factory=dict)
    """Large files by their SHA-256: a commit only names them."""
    refuses_blobs: bool = False
    """Answer large files with 403."""
    broken: bool = False
    """Answer everything with 500."""

    def sha(self, repo: str) -> str:
        digest = hashlib.sha1(usedforsecurity=False)
        for name, data in sorted(self.repos[repo].items()):
            digest.update(name.encode() + data)
        return digest.hexdigest()


_LFS_PLACES = {"upload": "lfs", "verify": "verify"}


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self._note()
        path = unquote(self.path.partition("?")[0]).strip("/").split("/")
        if self.hub.broken:
            self._error(500, "", "out of order")
        elif path[:2] == ["api", "models"]:
            self._about("/".join(path[2:4]), path[5] if path[4:5] == ["revision"] else None)
        elif path[2:3] == ["resolve"]:
            self._file("/".join(path[:2]), "/".join(path[4:]))
        else:
            self._error(404, "", "no such page")

    def do_POST(self) -> None:
        self._note()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(self.path.partition("?")[0]).strip("/").split("/")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._error(401, "", "Invalid username or password.")
        elif path == ["api", "repos", "create"]:
            self._create(json.loads(body))
        elif path == ["api", "validate-yaml"]:
            self._json({"errors": [], "warnings": []})
        elif path[-3:] == ["lfs", "objects", "batch"]:
            self._json({"transfer": "basic", "objects": [self._upload(each) for each in json.loads(body)["objects"]]})
        elif path[0] == "verify":
            self._verify(json.loads(body))
        elif path[4] == "preupload":
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = {name: "lfs" if name.endswith(LARGE_KINDS) else "regular" for name in names}
            self._json({"files": [{"path": n, "uploadMode": mode, "shouldIgnore": False} for n, mode in modes.items()]})
        else:
            self._commit("/".join(path[2:4]), body)

    def do_PUT(self) -> None:
        """Take a large file at the address that the batch gave; it needs no token."""
        self._note()
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != f"/lfs/{hashlib.sha256(data).hexdigest()}":
            self._error(400, "", "not the file that was announced")
            return
        if self.hub.refuses_blobs:
            self._error(403, "", "storage quota exceeded")
            return
        self.hub.blobs[self.path.rpartition("/")[2]] = data
        self._json({})

    def _upload(self, asked: dict[str, Any]) -> dict[str, Any]:
        oid = asked["oid"]
        if oid in self.hub.blobs:
            return asked
        hrefs = {kind: {"href": f"{self.hub.url}/{place}/{oid}"} for kind, place in _LFS_PLACES.items()}
        return {**asked, "actions": hrefs}

    def _verify(self, told: dict[str, Any]) -> None:
        if len(self.hub.blobs.get(told["oid"], b"")) == told["size"]:
            self._json({})
        else:
            self._error(422, "", "the file is not here")

    def _note(self) -> None:
        self.hub.requests.append(f"{self.command} {self.path}")

    def _create(self, asked: dict[str, Any]) -> None:
        repo = f"{asked.get('organization', 'me')}/{asked['name']}"
        self.hub.repos.setdefault(repo, {})
        if asked.get("private") or asked.get("visibility") == "private":  # versions of the client differ
            self.hub.private.add(repo)
        self._json({"url": f"{self.hub.url}/{repo}", "name": repo})

    def _commit(self, repo: str, body: bytes) -> None:
        header, *items = map(json.loads, body.splitlines())
        if header["value"].get("parentCommit") not in (None, self.hub.sha(repo)):
            self._error(412, "", "A commit has happened since. Please refresh and try again.")
            return
        files = self.hub.repos[repo]
        for key, value in ((item["key"], item["value"]) for item in items):
            if key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                files[value["path"]] = self.hub.blobs[value["oid"]]
            else:
                assert key == "deletedFile"
                del files[value["path"]]
        sha = self.hub.sha(repo)
        self._json({"success": True, "commitOid": sha, "commitUrl": f"{self.hub.url}/{repo}/commit/{sha}"})

    def _about(self, repo: str, revision: str | None) -> None:
        if repo not in self.hub.repos:
            self._error(404, "RepoNotFound", "Repository not found")
        elif revision not in (None, "main", self.hub.sha(repo)):
            self._error(404, "RevisionNotFound", "Invalid rev id")
        else:
            files = self.hub.repos[repo]
            sizes = {name: self.hub.told_sizes.get(name, len(data)) for name, data in files.items()}
            siblings = [{"rfilename": name, "size": size, "blobId": "0"} for name, size in sizes.items()]
            self._json({"id": repo, "modelId": repo, "sha": self.hub.sha(repo), "siblings": siblings, "tags": []})

    def _file(self, repo: str, name: str) -> None:
        data = self.hub.repos.get(repo, {}).get(name)
        if data is None:
            self._error(404, "EntryNotFound", "Entry not found")
            return
        etag = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        self._send(200, data, {"ETag": f'"{etag}"', "X-Repo-Commit": self.hub.sha(repo)})

    def _error(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}
        self._send(status, json.dumps({"error": message}).encode(), headers)

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """A hub on loopback while the context lasts."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
