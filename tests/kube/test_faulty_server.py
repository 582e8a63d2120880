"""The faulty server itself, with the client that is tested on it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from actors._kube.connection.kubeconfig import load
from actors._kube.connection.session import Session
from actors._kube.errors import ApiError, Conflict, TooManyRequests, Unreachable
from tests.controlplane.certificates import Authority
from tests.harness import wait_for
from tests.kube.faulty_server import Call, FaultyServer, Half, Reply, Reset, Stall, Stream, failure


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer(lambda call: Reply(200, {"method": call.method, "path": call.path})) as faulty:
        yield faulty


@pytest.fixture
def session(server: FaultyServer, tmp_path: Path) -> Session:
    return Session(load(str(server.kubeconfig(tmp_path / "kubeconfig"))))


def call(
    session: Session, method: str = "GET", path: str = "/a", body: bytes | None = None, timeout_s: float = 20
) -> bytes:
    return session.call(method, path, query={"q": "1"}, body=body, timeout_s=timeout_s)


def test_calls_without_a_rule_are_passed_on(server: FaultyServer, session: Session) -> None:
    assert call(session, "PATCH", body=b'{"x": 1}') == b'{"method": "PATCH", "path": "/a"}'
    (seen,) = server.of("PATCH", "/a")
    assert isinstance(seen, Call)
    assert (seen.query, seen.body) == ({"q": "1"}, {"x": 1})


def test_steps_apply_in_order_and_then_calls_are_passed_on(server: FaultyServer, session: Session) -> None:
    server.on("GET", "/a", failure(409, "Conflict"), failure(429, "TooManyRequests", retry_after_s=7))
    with pytest.raises(Conflict):
        call(session)
    with pytest.raises(TooManyRequests) as refused:
        call(session)
    assert refused.value.retry_after_s == 7
    call(session)


def test_reset_half_answer_and_stall_give_no_answer(server: FaultyServer, session: Session) -> None:
    server.on("GET", "/a", Reset(), Half(), Stall())
    for timeout_s in (20, 20, 0.5):  # only the last one needs it
        with pytest.raises(Unreachable):
            call(session, timeout_s=timeout_s)
    wait_for(lambda: len(server.calls) == 3, what="no step is left for a later call")
    server.always("*", "/", failure(500, "InternalError"))
    with pytest.raises(ApiError, match="made on purpose"):
        call(session)
    server.heal()
    call(session)


def test_reset_after_the_call_took_effect(server: FaultyServer, session: Session) -> None:
    done: list[str] = []
    server.behind = lambda call: (done.append(call.method), Reply())[1]
    server.on("POST", "/a", Reset(after=True))
    with pytest.raises(Unreachable):
        call(session, "POST")
    assert done == ["POST"]


def test_watch_that_becomes_silent_after_some_events(server: FaultyServer, session: Session) -> None:
    server.on("GET", "/w", Stream(({"type": "ADDED"},)), Stream(({"type": "ADDED"},), half=True))
    with closing(session.stream("/w", {}, 20)) as whole, closing(session.stream("/w", {}, 20)) as broken:
        assert wait_for(lambda: whole.read()[0]) == [b'{"type": "ADDED"}']
        assert wait_for(lambda: broken.read()[0]) == [b'{"type": "ADDED"}']
        assert len(server.calls) == 2
        server.release()
        wait_for(lambda: whole.read() == ([], True))
        wait_for(lambda: broken.read() == ([], True))


@pytest.mark.parametrize(("name", "trusted"), [("kubernetes.default.svc", True), ("other.invalid", False)])
def test_calls_and_later_streams_check_the_tls_server_name(tmp_path: Path, name: str, trusted: bool) -> None:
    authority = Authority(tmp_path / "pki")
    with FaultyServer(lambda _: Reply(), authority.issue("server", "server")) as server:
        path = server.kubeconfig(tmp_path / "kubeconfig", authority.path)
        content = json.loads(path.read_text())
        content["clusters"][0]["cluster"]["tls-server-name"] = name
        path.write_text(json.dumps(content))
        session = Session(str(path))
        for ask in (call, lambda one: one.stream("/", {}, 20).close()):
            with nullcontext() if trusted else pytest.raises(Unreachable, match=r"[Hh]ostname mismatch"):
                ask(session)


def test_https_with_a_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    with FaultyServer(lambda _: Reply(), authority.issue("server", "server")) as server:
        session = Session(load(str(server.kubeconfig(tmp_path / "kubeconfig", authority.path))))
        assert session.call("GET", "/", timeout_s=20) == b"{}"
        with pytest.raises(Unreachable, match="certificate"):
            Session(load(str(server.kubeconfig(tmp_path / "other")))).call("GET", "/", timeout_s=20)
