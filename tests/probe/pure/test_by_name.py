"""Probes of a host by its name: which lookups count as the container's failure, and redirects within the host."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from actors._base import Future
from actors._net.probing.http import redirect_of
from actors._net.probing.outcome import Outcome
from actors._net.probing.target import Url
from actors.probe.runner import Runner
from actors.probe.timer_queue import TimerQueue


class Names:
    def __init__(self, error: OSError) -> None:
        self._error = error

    def addresses(self, _: str) -> Future[tuple[str, ...]]:
        future: Future[tuple[str, ...]] = Future()
        future.set_error(self._error)
        return future


class Actor:
    """Its timers never fire."""

    def after(self, *_: Any) -> Any:
        return self

    def cancel(self) -> None:
        pass


def outcome(error: OSError) -> Outcome:
    runner = object.__new__(Runner)
    runner._names = Names(error)  # type: ignore[assignment]
    runner._timers = TimerQueue(Actor())  # type: ignore[arg-type]
    work = runner._by_name("db.example", 1.0, lambda *_: pytest.fail("there is no address"))
    work.send(None)
    with pytest.raises(StopIteration) as ended:
        work.send(None)
    found: Outcome = ended.value.value
    return found


def test_own_limit_of_lookups_is_no_failure_of_a_container() -> None:
    assert outcome(OSError(errno.EAGAIN, "64 other names are being looked up")).kind == "errored"
    assert outcome(OSError(-2, "Name or service not known")).kind == "failure"


@pytest.mark.parametrize(
    ("location", "followed"),
    [
        ("/login", True),
        ("http://App.Example.com/login", True),
        ("http://app.example.com/login", False),  # as in Go, which compares the text
        ("http://other/login", False),
        ("http://App.Example.com:81/login", True),
    ],
)
def test_redirect_within_a_host_keeps_its_case(location: str, followed: bool) -> None:
    url = Url("http", "App.Example.com", 80, "/", "App.Example.com:80")
    assert (redirect_of(url, location, url.host) is not None) is followed


def test_address_in_a_redirect_has_no_brackets() -> None:
    url = Url("http", "fd00::1", 80, "/", "[fd00::1]:80")
    target = redirect_of(url, "/login", url.host)
    assert target is not None
    assert target.host == "fd00::1"


def test_cancelled_timers_of_long_timeouts_take_no_memory() -> None:
    queue = TimerQueue(Actor())  # type: ignore[arg-type]
    for _ in range(10_000):
        queue.at(10.0**9, lambda: None).cancel()
        queue.at(10.0**8, lambda: None).cancel()
    assert len(queue._heap) < 1000
