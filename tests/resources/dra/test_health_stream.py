"""Reports of devices' health are read one after the other, however fast drivers send them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import Queue
from typing import Any

from actors.resources.dra.health_stream import HealthStream
from proto.plugins import drahealth_pb2 as pb
from tests.harness import wait_for

Taken = Callable[[float], None]


class Source:
    """The client of a driver that reports without end."""

    def __init__(self) -> None:
        self.read = 0

    def stream(self, *_: Any) -> Iterator[Any]:
        while True:
            self.read += 1
            yield pb.NodeWatchResourcesResponse()


def started(source: Any, reports: Queue[Taken], lock: threading.Lock) -> tuple[HealthStream, threading.Event]:
    """The stream, and the event of its end."""
    ended = threading.Event()
    stream = HealthStream("dra.test", source, lambda _, taken: reports.put(taken), ended.set, lock)
    stream.start()
    return stream, ended


def test_the_next_report_is_read_once_one_is_taken() -> None:
    source, reports = Source(), Queue[Taken]()
    stream, ended = started(source, reports, threading.Lock())
    for number in range(1, 6):
        taken = reports.get(timeout=20)
        assert (source.read, reports.qsize()) == (number, 0)
        taken(0.0)
    stream.close()
    assert ended.wait(20)


def test_one_report_of_all_plugins_waits_at_a_time() -> None:
    reports, lock = Queue[Taken](), threading.Lock()
    sources = [Source() for _ in range(3)]
    streams = [started(one, reports, lock) for one in sources]
    for _ in range(9):
        taken = reports.get(timeout=20)
        assert reports.qsize() == 0
        taken(0.0)
    wait_for(lambda: all(one.read for one in sources), 20, "each is read")
    for stream, _ in streams:
        stream.close()
    assert all(ended.wait(20) for _, ended in streams)


def test_a_stream_ends_while_its_report_waits() -> None:
    reports, lock = Queue[Taken](), threading.Lock()
    stream, ended = started(Source(), reports, lock)
    reports.get(timeout=20)
    stream.close()
    assert ended.wait(20)
    assert not lock.locked(), "others may report"
