"""A hub in miniature: the few endpoints that huggingface_hub asks, served from memory."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

API = re.compile(r"/api/(?P<kind>model|dataset)s/(?P<id>[^/]+/[^/]+)(/revision/(?P<rev>[^/]+))?")
FILE = re.compile(r"/(?P<kind>datasets/)?(?P<id>[^/]+/[^/]+)/resolve/(?P<rev>[^/]+)/(?P<name>.+)")


def commit_of(text: str) -> str:
    """A commit's 40 hex digits from any text."""
    return hashlib.sha1(text.encode()).hexdigest()


class Get(NamedTuple):
    """One download."""

    repository: str
    name: str
    range: str | None  # the header of a download that goes on in the middle


class FakeHub:
    """Repositories with commits and branches; counts what is downloaded, and can misbehave."""

    def __init__(self) -> None:
        self.files: dict[tuple[str, str, str], dict[str, bytes]] = {}  # (kind, id, commit)
        self.refs: dict[tuple[str, str, str], str] = {}  # (kind, id, branch) -> commit
        self.cards: dict[tuple[str, str], dict[str, Any]] = {}
        self.gated: set[str] = set()
        self.hold: dict[str, threading.Event] = {}  # file -> when to send its second half
        self.cut: set[str] = set()  # files whose connection breaks once in the middle
        self.spoiled: set[str] = set()  # files that arrive with a wrong byte, once
        self.halfway = threading.Event()  # a file that is held has been sent by half
        self.gets: list[Get] = []
        self.asked: list[str] = []  # every path

    def add(
        self,
        kind: str,
        repository: str,
        files: Mapping[str, bytes],
        commit: str = "1",
        branch: str | None = "main",
        card: dict[str, Any] | None = None,
    ) -> str:
        """Add a commit of a repository; returns its full hash."""
        full = commit if len(commit) == 40 else commit_of(repository + commit)
        self.files[kind, repository, full] = dict(files)
        if branch is not None:
            self.refs[kind, repository, branch] = full
        self.cards[kind, repository] = card or {}
        return full

    def __enter__(self) -> FakeHub:
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for event in self.hold.values():
            event.set()
        self.server.shutdown()
        self.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        path = urlsplit(self.path).path
        self.hub.asked.append(path)
        if found := API.fullmatch(path):
            self._listing(found["kind"], found["id"], unquote(found["rev"] or "main"))
        elif found := FILE.fullmatch(path):
            kind = "dataset" if found["kind"] else "model"
            self._file(kind, found["id"], unquote(found["rev"]), unquote(found["name"]), body)
        else:
            self._error(404, "EntryNotFound")

    def _commit(self, kind: str, repository: str, revision: str) -> str | None:
        if not any(key[:2] == (kind, repository) for key in self.hub.files):
            self._error(401, "RepoNotFound")
            return None
        commit = self.hub.refs.get((kind, repository, revision), revision)
        if (kind, repository, commit) not in self.hub.files:
            self._error(404, "RevisionNotFound")
            return None
        return commit

    def _listing(self, kind: str, repository: str, revision: str) -> None:
        commit = self._commit(kind, repository, revision)
        if commit is None:
            return
        files = self.hub.files[kind, repository, commit]
        answer = {
            "id": repository,
            "sha": commit,
            "private": False,
            "tags": [],
            "downloads": 0,
            "likes": 0,
            "cardData": self.hub.cards[kind, repository],
            "siblings": [self._sibling(name, data) for name, data in files.items()],
        }
        self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    @staticmethod
    def _sibling(name: str, data: bytes) -> dict[str, Any]:
        found: dict[str, Any] = {"rfilename": name, "size": len(data)}
        found["blobId"] = hashlib.sha1(data).hexdigest()
        if name.endswith((".safetensors", ".parquet")):  # what the hub keeps as large files
            digest = hashlib.sha256(data).hexdigest()
            found["lfs"] = {"size": len(data), "sha256": digest, "pointerSize": 130}
        return found

    def _file(self, kind: str, repository: str, revision: str, name: str, body: bool) -> None:
        commit = self._commit(kind, repository, revision)
        if commit is None:
            return
        if repository in self.hub.gated:
            self._error(403, "GatedRepo")
            return
        data = self.hub.files[kind, repository, commit].get(name)
        if data is None:
            self._error(404, "EntryNotFound", {"X-Repo-Commit": commit})
            return
        headers = {
            "X-Repo-Commit": commit,
            "ETag": f'"{hashlib.sha256(data).hexdigest()}"',
            "Accept-Ranges": "bytes",
        }
        if not body:
            self._send(200, data, headers, body=False)
            return
        asked = self.headers.get("Range")
        self.hub.gets.append(Get(repository, name, asked))
        sent = data
        if name in self.hub.spoiled:
            self.hub.spoiled.remove(name)
            sent = data[:-1] + bytes([data[-1] ^ 1])
        start = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
        if asked:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self._send(206 if asked else 200, sent[start:], headers, name=name)

    def _error(self, status: int, code: str, headers: Mapping[str, str] | None = None) -> None:
        self._send(status, b"", {"X-Error-Code": code, **(headers or {})})

    def _send(
        self,
        status: int,
        data: bytes,
        headers: Mapping[str, str],
        body: bool = True,
        name: str = "",
    ) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if not body:
            return
        half = len(data) // 2
        try:
            self.wfile.write(data[:half])
            self.wfile.flush()
            if name in self.hub.hold:
                self.hub.halfway.set()
                self.hub.hold[name].wait(60)
            if name in self.hub.cut:
                self.hub.cut.remove(name)
                self.close_connection = True
                return
            self.wfile.write(data[half:])
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
