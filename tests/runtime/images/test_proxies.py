"""Pulls and calls of the API server go through the proxy of the environment, as with containerd and the kubelet."""

import base64
import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from actors._kube.connection.kubeconfig import Access, Cluster, User
from actors._kube.connection.session import Session
from actors._kube.errors import Unreachable
from actors.runtime.images.errors import NoSuchImage, RegistryError
from actors.runtime.images.limits import Limits
from actors.runtime.images.local.store import ImageStore
from actors.runtime.images.sources import client
from actors.runtime.images.sources.client import Credentials, Registry
from actors.runtime.images.sources.hosts import Host, hosts_of
from tests.runtime.images.test_registry import FakeRegistry

WANTED = "Basic " + base64.b64encode(b"user:p@w").decode()


class RefusingProxy:
    """Answers each request with 502, and keeps its head."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # the end of the test
            while True:
                connection, _ = self._server.accept()
                with connection:
                    head = b""
                    while b"\r\n\r\n" not in head and (part := connection.recv(4096)):
                        head += part
                    self.heads.append(head.decode())
                    connection.sendall(b"HTTP/1.1 502 no\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()  # a late accept would take the next server's client by the old descriptor
        self._server.close()


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[RefusingProxy]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    with closing(RefusingProxy()) as one:
        yield one


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageStore:
    monkeypatch.setattr(client, "BETWEEN_S", 0.01)
    monkeypatch.setattr(client, "ATTEMPTS", 1)
    return ImageStore(tmp_path / "store", Limits(reserve_bytes=0))


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_pull_sends_the_proxys_credentials(
    proxy: RefusingProxy, store: ImageStore, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"{scheme}user:p%40w@{proxy.host}")
    with pytest.raises(RegistryError, match="cannot reach"):
        Registry(store, "registry.test:5000/app:1", Credentials()).resolve()
    (head,) = proxy.heads
    assert head.startswith("CONNECT registry.test:5000 HTTP/1.")
    assert f"proxy-authorization: {WANTED}".lower() in head.lower()


def test_no_proxy_with_a_port_is_honoured_by_pulls(
    proxy: RefusingProxy, store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.host}")
    monkeypatch.setenv("NO_PROXY", "192.0.2.0/24,registry.invalid:5000")
    with pytest.raises(RegistryError, match="cannot reach"):
        Registry(store, "registry.invalid:5000/app:1", Credentials()).resolve()
    assert proxy.heads == []
    with pytest.raises(RegistryError, match="cannot reach"):
        Registry(store, "registry.invalid:5001/app:1", Credentials()).resolve()
    assert len(proxy.heads) == 1


def test_each_url_of_a_pull_has_its_own_proxy(
    proxy: RefusingProxy, store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://user:p%40w@{proxy.host}")
    with closing(FakeRegistry()) as fake:
        fake.answer = lambda request: fake.say(request, 307, b"", Location="http://blobs.invalid/x") is None
        with pytest.raises(RegistryError, match="cannot reach"):
            Registry(store, f"{fake.host}/app:1", Credentials()).resolve()
        assert fake.seen  # on the loopback, without a proxy
    (head,) = proxy.heads
    assert head.startswith("GET http://blobs.invalid/x HTTP/1.")
    assert f"proxy-authorization: {WANTED}".lower() in head.lower()


def test_unusable_proxy_is_named_in_the_error(store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://user:secret@proxy:1080")
    with pytest.raises(RegistryError, match=r"cannot use the proxy socks5://proxy: use http://HOST:PORT"):
        Registry(store, "registry.test/app:1", Credentials()).resolve()


def access(**more: Any) -> Access:
    return Access(path="/etc/k", cluster=Cluster(server="https://api.invalid:6443", **more), user=User())


@pytest.mark.parametrize("where", ["environment", "kubeconfig"])
def test_calls_send_the_proxys_credentials(proxy: RefusingProxy, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    address = f"user:p%40w@{proxy.host}"
    if where == "environment":
        monkeypatch.setenv("HTTPS_PROXY", address)
    session = Session(access(proxy_url="" if where == "environment" else f"http://{address}"))
    with pytest.raises(Unreachable):
        session.call("GET", "/version", timeout_s=10)
    assert proxy.heads[0].startswith("CONNECT api.invalid:6443 HTTP/1.")
    assert f"proxy-authorization: {WANTED}".lower() in proxy.heads[0].lower()


def test_no_proxy_with_a_port_is_honoured_by_calls(proxy: RefusingProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.host}")
    monkeypatch.setenv("NO_PROXY", "api.invalid:6443")
    with pytest.raises(Unreachable):
        Session(access()).call("GET", "/version", timeout_s=10)
    assert proxy.heads == []


def test_hosts_directory_of_a_port_is_containerds(tmp_path: Path) -> None:
    """https://github.com/containerd/containerd/blob/main/docs/hosts.md: HOST_PORT_."""
    for number, name in enumerate(("_default", "reg.example_5000", "reg.example:5000", "reg.example_5000_")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "hosts.toml").write_text(f'[host."https://mirror{number}.example"]')
        (first, _) = hosts_of("reg.example:5000", str(tmp_path))
        assert first.name == f"mirror{number}.example"
    assert hosts_of("reg.example", str(tmp_path))[0].name == "mirror0.example"


def with_two_challenges(fake: FakeRegistry, first: str) -> None:
    """Current Gitea's headers: Bearer and Basic, in lines of their own."""
    bearer = f'Bearer realm="http://{fake.host}/token",service="container_registry",scope="*"'
    challenges = [bearer, f'Basic realm="http://{fake.host}/v2",service="container_registry",scope="*"']

    def answer(request: Any) -> bool:
        if request.path.startswith("/token"):
            fake.say(request, 200, b'{"token": "t0ken"}')
        elif request.headers.get("Authorization") == "Bearer t0ken":
            return False
        else:
            request.send_response(401)
            for challenge in challenges if first == "Bearer" else reversed(challenges):
                request.send_header("WWW-Authenticate", challenge)
            request.send_header("Content-Length", "0")
            request.end_headers()
        return True

    fake.answer = answer


@pytest.mark.parametrize("first", ["Bearer", "Basic"])
@pytest.mark.parametrize("credentials", [Credentials(), Credentials("me", "secret")])
def test_bearer_of_two_challenges_is_answered(store: ImageStore, first: str, credentials: Credentials) -> None:
    with closing(FakeRegistry()) as fake:
        with_two_challenges(fake, first)
        own = Host(f"http://{fake.host}/v2", registry=True)
        assert Registry(store, f"{fake.host}/team/app:1", credentials, own).resolve().digest == fake.digest
        with pytest.raises(NoSuchImage):
            Registry(store, f"{fake.host}/team/app:none", credentials, own).resolve()
