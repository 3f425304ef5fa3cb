"""A small Hub on this machine: what the real client asks of one, with a log and with faults.

Large files are answered with a redirect to a second server, as the real Hub sends its clients to
its storage. Only 127.0.0.1 is ever listened on.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

TOKEN = "hf_local_test_token"


@dataclass
class Repo:
    """Commits by their hash, names (branches and tags) that point to them, and who may read."""

    commits: dict[str, dict[str, bytes]]
    names: dict[str, str]
    gated: bool = False
    private: bool = False

    @staticmethod
    def of(folder: Path, **access: bool) -> "Repo":
        files = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
        commit = sha1(b"".join(files[name] for name in sorted(files))).hexdigest()
        return Repo({commit: files}, {"main": commit}, **access)

    def commit(self, revision: str) -> str | None:
        return revision if revision in self.commits else self.names.get(revision)


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    range: str | None
    token: str | None
    sent: int  # bytes of the body


@dataclass
class Hub:
    repos: dict[str, Repo] = field(default_factory=dict)
    log: list[Asked] = field(default_factory=list)
    #: Bytes of a large file after which its connection is cut, once for each number.
    cuts: list[int] = field(default_factory=list)
    #: Answer everything whose path contains this with this status.
    broken: tuple[str, int] | None = None
    #: Do not answer at all where the path contains this, until the Hub is closed.
    silent: str | None = None
    closing: threading.Event = field(default_factory=threading.Event)
    url: str = ""
    storage_url: str = ""

    def weights_sent(self) -> int:
        return sum(asked.sent for asked in self.log if asked.path.startswith("/blob/"))

    def asked_for(self, part: str, method: str = "GET") -> list[Asked]:
        return [each for each in self.log if part in each.path and each.method == method]


def is_large(name: str) -> bool:
    return name.endswith(".safetensors")


class Handler(BaseHTTPRequestHandler):
    hub: ClassVar[Hub]
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    @property
    def token(self) -> str | None:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if self.hub.broken and self.hub.broken[0] in path:
            return self.answer(self.hub.broken[1])
        if self.hub.silent and self.hub.silent in path:
            self.hub.closing.wait()
            self.close_connection = True
            return None
        if path.startswith("/blob/"):
            return self.answer_blob(path.removeprefix("/blob/"))
        if self.token not in (None, TOKEN, "hf_stranger"):
            return self.refuse(401, None, "Invalid credentials in Authorization header")
        if path.startswith("/api/models/"):
            return self.answer_api(path.removeprefix("/api/models/"))
        if "/resolve/" not in path:
            return self.answer(404)
        owner, name, _, revision, *file = path.strip("/").split("/")
        return self.answer_file(f"{owner}/{name}", unquote(revision), unquote("/".join(file)))

    def answer_api(self, path: str) -> None:
        owner, name, *rest = path.split("/")
        repo = self.find(f"{owner}/{name}")
        if repo is None:
            return None
        commit = repo.commit(unquote("/".join(rest[1:])) or "main")
        if commit is None:
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {rest[1:]}")
        files = [entry(*item) for item in repo.commits[commit].items()]
        about = {"id": f"{owner}/{name}", "sha": commit, "private": repo.private}
        about |= {"gated": repo.gated and "auto", "siblings": files}
        content = files if rest and rest[0] == "tree" else about
        return self.answer(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def answer_file(self, id: str, revision: str, name: str) -> None:
        repo = self.find(id)
        if repo is None:
            return None
        commit = repo.commit(revision)
        if commit is None:
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if repo.gated and self.token != TOKEN:
            status = 401 if self.token is None else 403
            return self.refuse(status, "GatedRepo", f"Access to model {id} is restricted.")
        content = repo.commits[commit].get(name)
        here = {"X-Repo-Commit": commit}
        if content is None:
            return self.refuse(404, "EntryNotFound", "Entry not found", here)
        if not is_large(name):
            return self.answer(200, content, here | {"ETag": f'"{git_id(content)}"'})
        digest = sha256(content).hexdigest()
        linked = {"X-Linked-Size": str(len(content)), "X-Linked-ETag": f'"{digest}"'}
        location = {"Location": f"{self.hub.storage_url}/blob/{digest}"}
        return self.answer(302, b"", here | linked | location)

    def answer_blob(self, digest: str) -> None:
        commits = (files for repo in self.hub.repos.values() for files in repo.commits.values())
        contents = (content for files in commits for content in files.values())
        whole = next(each for each in contents if sha256(each).hexdigest() == digest)
        asked = self.headers.get("Range")
        if asked is None:
            return self.answer(200, whole, {"ETag": f'"{digest}"'}, may_cut=True)
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last or len(whole) - 1), len(whole) - 1)
        extent = {"Content-Range": f"bytes {start}-{end}/{len(whole)}", "ETag": f'"{digest}"'}
        return self.answer(206, whole[start : end + 1], extent, may_cut=True)

    def find(self, id: str) -> Repo | None:
        """As the real Hub: who is not logged in is not told whether a repository exists."""
        repo = self.hub.repos.get(id)
        if repo is None or (repo.private and self.token != TOKEN):
            status = 401 if self.token is None else 404
            self.refuse(status, "RepoNotFound", "Invalid username or password.")
            return None
        return repo

    def refuse(
        self, status: int, code: str | None, message: str, headers: dict[str, str] | None = None
    ) -> None:
        said = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
        self.answer(status, json.dumps({"error": message}).encode(), said | (headers or {}))

    def answer(
        self,
        status: int,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        may_cut: bool = False,
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            body = b""
        if may_cut and self.hub.cuts:
            whole, body = body, body[: self.hub.cuts.pop(0)]
            self.close_connection = len(body) < len(whole)
        path, extent = urlsplit(self.path).path, self.headers.get("Range")
        self.hub.log.append(Asked(self.command, path, extent, self.token, len(body)))
        self.wfile.write(body)


def git_id(content: bytes) -> str:
    return sha1(b"blob %d\0" % len(content) + content).hexdigest()


def entry(name: str, content: bytes) -> dict[str, Any]:
    """What is said of a file, under the names that both lists of files have for it."""
    size, id = len(content), git_id(content)
    about = {"type": "file", "path": name, "rfilename": name, "size": size, "oid": id, "blobId": id}
    if is_large(name):
        digest = sha256(content).hexdigest()
        about["lfs"] = {"oid": digest, "sha256": digest, "size": size, "pointerSize": 134}
    return about


@contextmanager
def serve_hub(repos: dict[str, Repo]) -> Iterator[Hub]:
    hub = Hub(repos)
    handler = type("HubHandler", (Handler,), {"hub": hub})
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler) for _ in range(2)]
    hub.url, hub.storage_url = (f"http://127.0.0.1:{each.server_port}" for each in servers)
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield hub
    finally:
        hub.closing.set()
        for server in servers:
            server.shutdown()
            server.server_close()
