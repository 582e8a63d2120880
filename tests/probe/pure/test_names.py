"""Names to addresses: a slow name delays no other, and concurrent requests share a lookup."""

import socket
import threading
from typing import Any

import pytest

from actors._net import names
from actors._net.names import Names


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Answers for `quick` and `none`; `slow...` waits until it is released."""
    released, asked = threading.Event(), []

    def answer(host: str, *_: Any, **__: Any) -> Any:
        asked.append(host)
        if host.startswith("slow"):
            assert released.wait(10)
        if host == "none":
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))]

    monkeypatch.setattr(names.socket, "getaddrinfo", answer)
    yield asked, released
    released.set()


def test_slow_name_lookup_delays_no_other(resolver: Any) -> None:
    subject = Names()
    slow = [subject.addresses(f"slow{number}") for number in range(20)]
    assert subject.addresses("quick").result(5) == ("192.0.2.1",)
    with pytest.raises(OSError, match="Name or service not known"):
        subject.addresses("none").result(5)
    assert not any(one.done() for one in slow)
    resolver[1].set()
    assert [one.result(5) for one in slow] == [("192.0.2.1",)] * 20


def test_concurrent_requests_share_one_lookup(resolver: Any) -> None:
    asked, released = resolver
    subject = Names()
    futures = [subject.addresses("slow") for _ in range(50)]
    released.set()
    assert {one.result(5) for one in futures} == {("192.0.2.1",)}
    assert asked == ["slow"]


def test_addresses_of_one_name_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner of the name chooses them: they are tried one after the other."""
    listed = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"192.0.2.{number}", 0)) for number in range(200)]
    monkeypatch.setattr(names.socket, "getaddrinfo", lambda *_, **__: listed)
    assert len(Names().addresses("many").result(5)) == names.MAX_ADDRESSES


def test_missing_thread_refuses_one_lookup(resolver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: object) -> None:
        raise RuntimeError("can't start new thread")

    subject = Names()
    with monkeypatch.context() as patch:
        patch.setattr(names.threading.Thread, "start", start)
        with pytest.raises(OSError, match="can't start new thread"):
            subject.addresses("quick").result(5)
    assert subject.addresses("quick").result(5) == ("192.0.2.1",)


def test_lookups_past_the_bound_are_refused(resolver: Any) -> None:
    subject = Names()
    slow = [subject.addresses(f"slow{number}") for number in range(names.MAX_AT_ONCE)]
    with pytest.raises(OSError, match="other names are being looked up"):
        subject.addresses("quick").result(5)
    resolver[1].set()
    assert slow[0].result(5) == ("192.0.2.1",)
