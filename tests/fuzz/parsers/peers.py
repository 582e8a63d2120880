"""Targets: answers of servers, over a real connection on the loopback."""

from __future__ import annotations

import contextlib
import functools
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from actors._kube.errors import ApiError
from actors._kube.reflector import Position
from actors._kube.shapes import version_number
from actors._net.probing.http import BadResponse, Exchange, judge, redirect_of
from actors._net.probing.outcome import MAX_BODY_BYTES
from actors._net.probing.target import Url
from actors.config.sources import api_policy
from actors.image_pull import keyring
from actors.image_pull.credentials import providers
from actors.objects.api.resources import RESOURCES, api_object
from actors.runtime.images.errors import ImageError
from actors.runtime.images.limits import Limits
from actors.runtime.images.local.store import ImageStore
from actors.runtime.images.sources import client
from actors.runtime.images.sources.client import Credentials, Registry
from proto.schema.credential_provider import API_VERSION, CredentialProvider
from tests.fuzz.target import Target

HTTP = (
    b"Content-Length: ", b"Transfer-Encoding: chunked\r\n", b"Location: https://[x]/\r\n", b"Location: //a:b/\r\n",
    b"WWW-Authenticate: Bearer realm=\"https://[x]/\"\r\n", b"Content-Encoding: gzip\r\n", b"HTTP/1.1 100 \r\n\r\n",
    b"-5\r\n", b"Docker-Content-Digest: sha256:0\r\n", b"\r\n\r\n", b" folded\r\n",
)  # fmt: skip


class Server:
    """Gives every client the same bytes and closes the connection."""

    def __init__(self) -> None:
        self.answer = b""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            client, _ = self._socket.accept()
            with client, contextlib.suppress(OSError):
                client.settimeout(5.0)
                client.recv(65536)
                client.sendall(self.answer)


@functools.cache
def _server() -> Server:
    """One for the process: made with the first input, after any fork."""
    return Server()


def _registry(data: bytes) -> None:
    client.BETWEEN_S = 0.0  # the pause between two attempts
    server = _server()
    server.answer = data
    with tempfile.TemporaryDirectory(prefix="nv-fuzz-") as directory:
        store = ImageStore(Path(directory, "store"), Limits(reserve_bytes=0))
        try:
            Registry(store, f"127.0.0.1:{server.port}/team/app:1", Credentials("user", "password")).resolve()
        except ImageError:
            return


_URL = Url("http", "127.0.0.1", 8080, "/", "127.0.0.1:8080")


def _probe(data: bytes) -> None:
    exchange = Exchange(_URL, ())
    exchange.request()
    try:
        for start in range(0, len(data), 700):
            exchange.take(data[start : start + 700])
            if _is_complete(exchange):
                break
        else:
            exchange.take(b"")
            if not _is_complete(exchange):
                raise BadResponse("no whole answer")
    except BadResponse as error:
        problem = str(error)
        if len(problem) > 1000:
            raise RuntimeError(f"an error of {len(problem)} characters") from error
        return
    assert len(exchange.body) <= MAX_BODY_BYTES
    with suppress(BadResponse):
        redirect_of(_URL, exchange.location, _URL.host)
    judge(exchange)


def _is_complete(exchange: Exchange) -> bool:
    while True:
        state = exchange.read()
        if state != "head":
            return state == "complete"


def _registry_credentials(data: bytes) -> None:
    provider = CredentialProvider(name="p", match_images=("*.test",), api_version=API_VERSION)
    with contextlib.suppress(providers.PluginError):
        providers.answer(provider, "registry.test/team/app", data)
    for read in (keyring.docker_config_json, keyring.docker_cfg):
        with contextlib.suppress(keyring.KeyringError):
            read(data)


def _api_list(data: bytes) -> None:
    """A list or an event of pods, to config; its objects, as those of each kind, to objects."""
    position = Position("/api/v1/pods")
    items: list[dict[str, Any]] = []
    with contextlib.suppress(ApiError):
        items += position.listed(data)
    with contextlib.suppress(ApiError):
        items.append(position.event(data).object)
    version_number(position.version or "")
    for item in items:
        api_policy.decode(item, SEEN)
        for kind in RESOURCES:
            with contextlib.suppress(ValueError):
                api_object(kind, item)


def _answer(status: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


ANSWERS = (
    _answer("200 OK", "Content-Type: application/vnd.oci.image.manifest.v1+json", body=b'{"schemaVersion": 2}'),
    _answer("401 Unauthorized", 'WWW-Authenticate: Bearer realm="http://127.0.0.1:1/token",service="s"'),
    _answer("307 Temporary Redirect", "Location: /v2/other"),
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
)

PLUGIN = (
    b'{"kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1", '
    b'"cacheKeyType": "Image", "cacheDuration": "1h", "auth": {"registry.test": {"username": "u", "password": "p"}}}'
)
DOCKER = b'{"auths": {"https://registry.test/v1/": {"auth": "dTpw", "username": "u", "password": "p"}}}'
SEEN = "2026-01-01T00:00:00.000000000Z"
POD_LIST = b'{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [{"metadata": {}}]}'
POD = (
    b'{"metadata": {"uid": "u", "name": "p", "namespace": "d"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}'
)
ODD_LISTS = tuple(
    b'{"metadata": {"resourceVersion": "%s"}, "items": [%s]}' % (version, item)
    for version, item in (
        (b"1", POD),
        (b"9" * 5000, b'{"metadata": "x", "spec": {}}'),
        (b"1", b'{"metadata": ["x"], "status": [1]}'),
        (b"1", b'{"metadata": {"name": "n", "annotations": "s"}, "data": "x", "spec": 7}'),
        (b"1", b'{"metadata": {"name": "n"}, "spec": ' + b'{"a":' * 700 + b"1" + b"}" * 701),
    )
)
EVENT = b'{"type": "ADDED", "object": {"kind": "Pod", "metadata": {"resourceVersion": "2"}}}'
STATUS = b'{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "details": {"a": 1}}}'

TARGETS = (
    Target("registry-credentials", _registry_credentials, (PLUGIN, DOCKER), (b"null", b'"auth":', b"[]")),
    Target("api-list", _api_list, (POD_LIST, EVENT, STATUS, *ODD_LISTS), (b"null", b'"items":', b"[]", b'"metadata":')),
    Target("registry-answer", _registry, ANSWERS, HTTP),
    Target("probe-answer", _probe, ANSWERS, HTTP),
)
