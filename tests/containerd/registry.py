"""A registry of the tests' own on loopback, over plain http, that wants a user and a password (Basic).

Serves what an image pull asks for (https://github.com/opencontainers/distribution-spec): a manifest by tag or digest,
and blobs. Keeps who asked with what.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.containerd.images import Image, image_blobs

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Registry:
    """`name` is HOST:PORT; `images` by repository:tag; `users` to passwords; empty allows all clients."""

    def __init__(self, users: Mapping[str, str] | None = None) -> None:
        self.users = dict(users or {})
        self.tags: dict[str, str] = {}
        self.blobs: dict[str, bytes] = {}
        self.seen: list[tuple[str, int]] = []
        """User (empty: none given) and status of each request for a manifest."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.name = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, repository: str, tag: str = "latest", image: Image | None = None) -> str:
        """Serve an image; its full name."""
        digest, blobs = image_blobs(image or Image("", files={"/id": f"{repository}:{tag}".encode()}))
        self.blobs |= blobs
        self.tags[f"{repository}:{tag}"] = digest
        return f"{self.name}/{repository}:{tag}"

    def tried(self) -> list[str]:
        """Users that asked for a manifest, in order, repeats left out."""
        return list(dict.fromkeys(user for user, _ in self.seen))

    def configure(self, registries: Path) -> None:
        """Have a containerd talk to it over http; `registries` is the instance's directory."""
        directory = registries / self.name
        directory.mkdir(exist_ok=True)
        (directory / "hosts.toml").write_text(f'server = "http://{self.name}"\n[host."http://{self.name}"]\n')

    def _user(self, header: str) -> tuple[str, bool]:
        """Return the user, and True when the password is right."""
        if not header.startswith("Basic "):
            return "", not self.users
        user, _, password = base64.b64decode(header[6:]).decode().partition(":")
        return user, self.users.get(user) == password

    def _find(self, path: str) -> tuple[bytes, str] | None:
        _, _, rest = path.partition("/v2/")
        for mark in ("/manifests/", "/blobs/"):
            repository, found, name = rest.rpartition(mark)
            if found:
                digest = name.removeprefix("sha256:") if ":" in name else self.tags.get(f"{repository}:{name}", "")
                return (self.blobs[digest], f"sha256:{digest}") if digest in self.blobs else None
        return None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(body=True)

            def do_HEAD(self) -> None:
                self._answer(body=False)

            def _answer(self, *, body: bool) -> None:
                user, right = registry._user(self.headers.get("Authorization", ""))
                found = registry._find(self.path)
                status = 401 if not right else 404 if found is None else 200
                if "/manifests/" in self.path:
                    registry.seen.append((user, status))
                content, digest = found if right and found is not None else (b"{}", "")
                self.send_response(status)
                if status == 401:
                    self.send_header("WWW-Authenticate", 'Basic realm="tests"')
                self.send_header(
                    "Content-Type", _MANIFEST if "/manifests/" in self.path else "application/octet-stream"
                )
                self.send_header("Content-Length", str(len(content)))
                if digest:
                    self.send_header("Docker-Content-Digest", digest)
                self.end_headers()
                if body:
                    self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


@contextmanager
def registry(registries: Iterable[Path], users: Mapping[str, str] | None = None) -> Iterator[Registry]:
    """A registry that containerds with these directories of registries can pull from."""
    one = Registry(users)
    for directory in registries:
        one.configure(directory)
    try:
        yield one
    finally:
        one.close()
