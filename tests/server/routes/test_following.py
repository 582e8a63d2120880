"""A followed log through rotations and compression: nothing lost, nothing doubled.

Rotated and compressed every 0.4 s, where the node does it every 10 s at most: 600 s have more rotations than two hours.
`NODEVISOR_FOLLOW_S=600` is that; otherwise some seconds.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors._base.messaging.futures import Future
from actors._cgroup.migration_prewarm import MigrationPrewarm
from actors._logs.reading import LogReader
from actors.server.base.http import Request, Response
from actors.server.base.read_budget import BLOCKS_AT_ONCE, BLOCKS_OF_ALL, ReadBudget
from actors.server.context import Context
from actors.server.policy import Route
from actors.server.routes import containerlogs
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from tests.server.site import Site, client, site

SECONDS = float(os.environ.get("NODEVISOR_FOLLOW_S", "6"))
LINES_A_SECOND = 5000
LEAST_ROTATIONS = SECONDS / 2
"""A slow disk delays the writer."""


class Writer(threading.Thread):
    """A container: numbered lines into its log, which is rotated and compressed meanwhile."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path, self.count, self.rotations, self.ended = path, 0, 0, False

    def run(self) -> None:
        file = self.path.open("ab", buffering=0)
        end, old = time.monotonic() + SECONDS, None
        turn = time.monotonic()
        while time.monotonic() < end or self.rotations < LEAST_ROTATIONS:
            lines = []
            for _ in range(LINES_A_SECOND // 50):
                self.count += 1
                stream = b"stderr" if self.count % 3 == 0 else b"stdout"
                lines.append(b"2026-11-21T23:09:45.%09dZ %b F line %d\n" % (self.count, stream, self.count))
            text = b"".join(lines)
            cut = len(text) // 3
            file.write(text[:cut])  # in the middle of a line
            file.write(text[cut:])
            if self.count % 2000 == 0:
                file, old = self._rotate(file), self._compress(old)
                old = self.path.with_name(f"0.log.{self.rotations:06d}")
            # Lines missed while the machine paused are not caught up: no node rotates several times at once, and a
            # follower could not read the files that this removes.
            turn = max(turn + 0.02, time.monotonic())
            time.sleep(max(0.0, turn - time.monotonic()))
        file.close()
        self.ended = True

    def _rotate(self, file: Any) -> Any:
        self.rotations += 1
        self.path.rename(self.path.with_name(f"0.log.{self.rotations:06d}"))
        file.write(b"")
        opened = self.path.open("ab", buffering=0)
        file.close()
        return opened

    @staticmethod
    def _compress(old: Path | None) -> None:
        if old is not None:
            temporary = old.with_suffix(old.suffix + ".tmp")
            temporary.write_bytes(gzip.compress(old.read_bytes(), 1))
            temporary.rename(old.with_suffix(old.suffix + ".gz"))
            old.unlink()
            for excess in sorted(old.parent.glob("*.gz"))[:-3]:
                excess.unlink()


class Runtime:
    """Says whether the container runs."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def container_status(self, _: str) -> Future[Any]:
        state = pb.CONTAINER_EXITED if self.writer.ended else pb.CONTAINER_RUNNING
        answer: Future[Any] = Future()
        answer.set(pb.ContainerStatusResponse(status=pb.ContainerStatus(state=state)))
        return answer


def blocking(_: float, function: Any, *args: Any) -> Future[Any]:
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set(function(*args))
        except BaseException as error:
            future.set_error(error)

    threading.Thread(target=work, daemon=True).start()
    return future


@pytest.fixture
def following(tmp_path: Path) -> Iterator[tuple[Site, Writer]]:
    path = tmp_path / "0.log"
    path.write_bytes(b"")
    writer = Writer(path)
    made: list[Site] = []

    async def logs(_: Any, request: Request) -> Response:
        context = Context(made[0].loop, Settings(), None, blocking, cri=Runtime(writer), moves=MigrationPrewarm())  # type: ignore[arg-type]
        options = containerlogs.Options(request)
        return Response(200, containerlogs._follow(context, LogReader(path), path, options, "id"))

    with site(Route("GET", "/log", logs)) as started:
        made.append(started)
        yield started, writer


@pytest.fixture(autouse=True)
def _rotated_seven_times_as_often_as_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containerlogs, "LOOK_S", containerlogs.LOOK_S / 10)


@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("slow", [False, True], ids=["client keeps up", "client stalls"])
def test_fast_log_through_rotations_arrives_complete_and_once(following: tuple[Site, Writer], slow: bool) -> None:
    started, writer = following
    with client(started.plain) as connected:
        connected.settimeout(60)
        connected.sendall(b"GET /log?follow=true HTTP/1.0\r\n\r\n")
        writer.start()
        if slow:
            time.sleep(min(3.0, SECONDS / 2))
        with connected.makefile("rb") as answer:
            while answer.readline().strip():
                pass  # the head
            last = 0
            for line in answer:
                assert line == b"line %d\n" % (last + 1)
                last += 1
    assert last == writer.count
    assert writer.rotations >= LEAST_ROTATIONS


def test_options_are_checked_as_the_kubelet_checks_them() -> None:
    def options(**query: str) -> Any:
        return containerlogs.Options(Request("GET", "/x", {name: [value] for name, value in query.items()}, {}))

    assert vars(options()) | {"since": 0} == vars(
        SimpleNamespace(tail=None, follow=False, previous=False, timestamps=False, limit=None, stream="", since=0)
    )
    assert options(tail="all", tailLines="3").tail is None
    assert options(tail="2").tail == 2
    assert options(follow="true", previous="1").follow
    assert [options(follow=value).follow for value in ("", "x", "0", "FALSE")] == [True, True, False, False]
    assert options(sinceTime="2026-11-20T13:00:00Z").since == 1795179600.0
    assert options(stream="Stderr").stream == "stderr"
    for wrong in (
        {"tailLines": "-1"},
        {"limitBytes": "0"},
        {"stream": "both"},
        {"sinceSeconds": "0"},
        {"stream": "Stdout", "tailLines": "1"},
        {"sinceSeconds": "1", "sinceTime": "2026-11-20T13:00:00Z"},
    ):
        with pytest.raises(containerlogs.Invalid):
            options(**wrong)
    for wrong in (
        {"tailLines": "x"},
        {"tailLines": "1_0"},
        {"tailLines": "\u0663"},
        {"limitBytes": "1.5"},
        {"sinceSeconds": str(1 << 63)},
        {"sinceTime": "yesterday"},
        {"sinceTime": "2026-11-20"},
        {"sinceTime": "2026-11-20T13:00:00"},
    ):
        with pytest.raises(containerlogs.Undecodable):
            options(**wrong)


def test_log_is_followed_without_an_inotify_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(**_: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(containerlogs, "INotify", none_left)
    monkeypatch.setattr(containerlogs, "RUNS_S", 0.2)
    path = tmp_path / "0.log"
    path.write_bytes(b"2026-11-21T23:09:45.1Z stdout F 0\n")
    writer = Writer(path)  # never started: it only is over when the test says so

    async def logs(_: Any, request: Request) -> Response:
        context = Context(started.loop, Settings(), None, blocking, cri=Runtime(writer), moves=MigrationPrewarm())  # type: ignore[arg-type]
        return Response(
            200, containerlogs._follow(context, LogReader(path), path, containerlogs.Options(request), "id")
        )

    with site(Route("GET", "/log", logs)) as started, client(started.plain) as connected:
        connected.sendall(b"GET /log?follow=true HTTP/1.0\r\n\r\n")
        with connected.makefile("rb") as answer:
            while answer.readline().strip():
                pass  # the head
            for number in range(10):
                assert answer.readline() == b"%d\n" % number
                if number == 5:
                    path.rename(path.with_name("0.log.20261121-230945"))
                with path.open("ab") as file:
                    file.write(b"2026-11-21T23:09:45.1Z stdout F %d\n" % (number + 1))
            assert answer.readline() == b"10\n"
            writer.ended = True
            assert answer.readline() == b""


def test_many_readers_read_fewer_blocks_each() -> None:
    budget = ReadBudget()
    with contextlib.ExitStack() as stack:
        blocks = [stack.enter_context(budget).blocks for _ in range(5000)]
    assert blocks[0] == BLOCKS_AT_ONCE
    assert blocks[-1] == 1
    assert all(each * (number + 1) <= BLOCKS_OF_ALL or each == 1 for number, each in enumerate(blocks))
    assert budget.blocks == BLOCKS_AT_ONCE
