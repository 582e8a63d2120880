"""A session against a raw server: the headers that it sends, and answers that come a byte at a time."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors._kube.connection import session as session_module
from actors._kube.connection.session import Session
from actors._kube.errors import ApiError, Unauthorized, Unreachable
from actors._metrics import kubelet as metrics
from tests.harness import Stalls


class RawServer:
    """Answers each connection with the same bytes, then with a byte each 50 ms, for 5 s at most."""

    def __init__(self, answer: bytes, drip: bytes = b"") -> None:
        self.requests: list[bytes] = []
        self._answer, self._drip = answer, drip
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            with connection:
                request = b""
                while b"\r\n\r\n" not in request:
                    if not (part := connection.recv(65536)):
                        return  # of close()
                    request += part
                self.requests.append(request)
                self._reply(connection)

    def _reply(self, connection: socket.socket) -> None:
        try:
            connection.sendall(self._answer)
            for _ in range(100 if self._drip else 0):
                connection.sendall(self._drip)
                time.sleep(0.05)
        except OSError:
            pass  # the client has hung up

    def close(self) -> None:
        socket.create_connection(self._listening.getsockname()).close()
        self._thread.join()
        self._listening.close()


@pytest.fixture
def servers() -> Iterator[list[RawServer]]:
    made: list[RawServer] = []
    yield made
    for one in made:
        one.close()


def session(path: Path, server: str, **user: Any) -> Session:
    entry = {"cluster": "c", "user": "u"}
    lists = {
        "contexts": [{"name": "x", "context": entry}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps({"current-context": "x", **lists}))
    return Session(str(path))


def ask(one: Session, kind: str, timeout_s: float) -> Any:
    if kind == "call":
        return one.call("GET", "/x", timeout_s=timeout_s)
    one.stream("/x", {}, timeout_s).close()
    return None


@pytest.mark.parametrize("kind", ["call", "stream"])
def test_each_group_and_extra_value_has_its_own_header(tmp_path: Path, servers: list[RawServer], kind: str) -> None:
    """As client-go's. The API server would take "a,b" as the name of one group."""
    servers.append(RawServer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"))
    user = {"token": "t", "as": "bob", "as-groups": ["a", "b"], "as-user-extra": {"k/v": ["1", "2"]}}
    ask(session(tmp_path / "config", servers[0].url, **user), kind, 10)
    sent = servers[0].requests[0].decode().split("\r\n")
    assert [line for line in sent if line.startswith(("Impersonate", "Authorization"))] == [
        "Impersonate-User: bob", "Impersonate-Group: a", "Impersonate-Group: b",
        "Impersonate-Extra-k%2Fv: 1", "Impersonate-Extra-k%2Fv: 2", "Authorization: Bearer t",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["call", "stream"])
def test_answers_are_asked_for_as_they_are(tmp_path: Path, servers: list[RawServer], kind: str) -> None:
    """Without the header a proxy in between may compress them."""
    servers.append(RawServer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"))
    ask(session(tmp_path / "config", servers[0].url), kind, 10)
    assert b"\r\nAccept-Encoding: identity\r\n" in servers[0].requests[0]


@pytest.mark.parametrize("kind", ["call", "stream"])
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", "200"),
        (b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "410"),
        (b"", "<error>"),
        (None, "<error>"),
    ],
    ids=["success", "error", "no answer", "no connection"],
)
def test_each_request_is_counted_with_its_outcome(
    tmp_path: Path, servers: list[RawServer], answer: bytes | None, code: str, kind: str
) -> None:
    url = "http://127.0.0.1:1"
    if answer is not None:
        servers.append(RawServer(answer))
        url = servers[0].url
    before, host = metrics.REST_REQUESTS.take(), url.removeprefix("http://")
    with contextlib.suppress(ApiError):
        ask(session(tmp_path / "config", url), kind, 10)
    after = metrics.REST_REQUESTS.take()
    changed = {labels: number - before.get(labels, (0.0,))[0] for labels, (number,) in after.items()}
    # Of this server only: a watch of an earlier test may end now.
    assert {labels: more for labels, more in changed.items() if more and labels[2] == host} == {(code, "GET", host): 1}


@pytest.mark.parametrize("kind", ["call", "stream"])
def test_long_text_of_a_refusal_keeps_its_status(tmp_path: Path, servers: list[RawServer], kind: str) -> None:
    servers.append(RawServer(b"HTTP/1.1 401 No\r\n\r\n" + b"x" * 1_100_000))
    with pytest.raises(Unauthorized):
        ask(session(tmp_path / "config", servers[0].url, token="t"), kind, 10)


@pytest.mark.parametrize("kind", ["call", "stream"])
@pytest.mark.parametrize("token", ["sec\x0bret", "sec\x0cret", "sec\x00ret", "sec\nret", "sec\u20acret"])
def test_error_of_an_unusable_token_does_not_show_it(tmp_path: Path, token: str, kind: str) -> None:
    with pytest.raises(Unreachable, match="another character that HTTP does not allow") as failure:
        ask(session(tmp_path / "config", "http://127.0.0.1:1", token=token), kind, 5)
    assert "sec" not in str(failure.value)


@pytest.mark.parametrize("token", ["tok", "t\xe9", "a\xa0", "a\x85", "a b"])
def test_other_characters_of_a_token_are_sent(tmp_path: Path, servers: list[RawServer], token: str) -> None:
    servers.append(RawServer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"))
    ask(session(tmp_path / "config", servers[0].url, token=f"{token} "), "call", 10)
    assert f"Authorization: Bearer {token}\r\n".encode("latin-1") in servers[0].requests[0]


def test_endless_answer_fails_at_a_size_limit(
    tmp_path: Path, servers: list[RawServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "LONGEST_ANSWER_BYTES", 2 << 20)
    servers.append(RawServer(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(4 << 20)))
    with pytest.raises(Unreachable, match="more than 2097152 bytes"):
        session(tmp_path / "config", servers[0].url).call("GET", "/x", timeout_s=20)


@pytest.mark.parametrize("kind", ["call", "stream"])
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nX-Endless: ",
        b"HTTP/1.1 500 No\r\nContent-Length: 1000\r\n\r\n",
        b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n",
        b"HTTP/1.1 500 No\r\n\r\n",
    ],
    ids=["head", "body", "chunk", "until the end"],
)
def test_slow_answer_ends_at_the_calls_deadline(
    tmp_path: Path, servers: list[RawServer], answer: bytes, kind: str
) -> None:
    servers.append(RawServer(answer, b"x"))
    one = session(tmp_path / "config", servers[0].url)
    began = time.monotonic()
    with Stalls() as machine, pytest.raises(Unreachable):
        ask(one, kind, 1.0)
    assert 0.9 < time.monotonic() - began < 2 + machine.longest_s


@pytest.mark.parametrize(
    ("server", "user"),
    [
        ("http://a\0b", {}),
        ("http://127.0.0.1:1", {"client-certificate-data": "\u00e9abc", "client-key-data": "abcd"}),
        ("http://127.0.0.1:1", {"tokenFile": "a\0b"}),
        ("http://127.0.0.1:1", {"token": "t", "as-user-extra": {"\u20ac": ["\0"]}}),
    ],
)
@pytest.mark.parametrize("kind", ["call", "stream"])
def test_unusable_text_of_a_kubeconfig_is_unreachable(
    tmp_path: Path, server: str, user: dict[str, Any], kind: str
) -> None:
    with pytest.raises(ApiError) as failure:
        ask(session(tmp_path / "config", server, **user), kind, 5)
    assert type(failure.value) is Unreachable
