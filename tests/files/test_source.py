"""The source of files with real files and inotify; a writer is stopped at the moment that matters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from actors._files import source
from actors._files.problems import FileError
from actors._files.scan import MOST_SKIPPED, Kind, Listing, scan
from actors._files.source import FileSource


class LoopActor:
    """Runs a source on an event loop, as an actor does on its mailbox. Timers never fire: events alone count."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        self.bus = self

    def watch_fd(self, descriptor: int, readable: Callable[[], None]) -> None:
        self._loop.add_reader(descriptor, readable)

    def every(self, _: object, run: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self.spawn(run(), name)

    def after(self, delay_s: float, run: Callable[[], None]) -> None:
        pass

    def spawn(self, run: Coroutine[Any, Any, None], _: str) -> None:
        task = self._loop.create_task(run)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def post(self, run: Callable[..., None], *arguments: object) -> None:
        self._loop.call_soon_threadsafe(run, *arguments)

    async def blocking(self, _: float, run: Callable[..., Any], *arguments: object) -> Any:
        return await self._loop.run_in_executor(None, run, *arguments)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


async def _contents(directory: Path, wanted: bytes) -> list[bytes | FileError]:
    """Contents that a source passes on, up to `wanted`."""
    passed_on: list[bytes | FileError] = []
    complete = asyncio.Event()

    async def take(listing: Listing) -> None:
        passed_on.extend(listing.contents.values())
        if wanted in passed_on:
            complete.set()

    actor: Any = LoopActor(asyncio.get_running_loop())
    FileSource(actor, str(directory), Kind(1000, FileError), take, "").start(60)
    await asyncio.wait_for(complete.wait(), 60)
    return passed_on


def test_half_that_was_read_is_held_back_though_its_writer_has_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan, writer = source.scan, (tmp_path / "a.yaml").open("w")

    def scan_meanwhile(*arguments: Any) -> Listing:
        """Half of the file is written when the scan reads it; the rest and the close follow before it returns."""
        if not writer.closed:
            writer.write("first")
            writer.flush()
        listing = scan(*arguments)
        if not writer.closed:
            writer.write(" second")
            writer.close()
        return listing

    monkeypatch.setattr(source, "scan", scan_meanwhile)
    assert asyncio.run(_contents(tmp_path, b"first second")) == [b"first second"]


def test_file_whose_parser_was_too_slow_is_read_again_a_few_times(tmp_path: Path) -> None:
    """Until it changes, which counts anew."""
    read: list[bytes | FileError] = []

    async def run() -> None:
        async def take(listing: Listing) -> None:
            read.extend(listing.contents.values())
            for path in listing.contents:
                files.read_again(path)

        actor: Any = LoopActor(asyncio.get_running_loop())
        files = FileSource(actor, str(tmp_path), Kind(1000, FileError), take, "")
        for content in ("one", "another"):
            (tmp_path / "slow.yaml").write_text(content)
            for _ in range(source.MOST_TRIES + 3):
                await files._scan()

    asyncio.run(run())
    assert read == [b"one"] * source.MOST_TRIES + [b"another"] * source.MOST_TRIES


def test_skipped_files_that_are_logged_are_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def run() -> None:
        async def take(_: Listing) -> None:
            pass

        actor: Any = LoopActor(asyncio.get_running_loop())
        files = FileSource(actor, str(tmp_path), Kind(1000, FileError), take, "")
        for round_ in range(3):
            for number in range(50):
                (tmp_path / f"{round_}-{number}~").touch()
            await files._scan()

    asyncio.run(run())
    assert len([record for record in caplog.records if "is not read" in record.message]) == MOST_SKIPPED


@pytest.mark.parametrize(
    "spelling", ["{0}", "{0}/", "{0}//", "{0}/.", "/{0}", "{1}//{2}", "{1}/./{2}", "{1}/{2}/../{2}"]
)
def test_files_have_one_path_however_their_directory_is_spelled(tmp_path: Path, spelling: str) -> None:
    """A static pod's UID comes from the path, and a kubelet's is of the shortest form."""
    (tmp_path / "web.yaml").write_text("x")
    path = spelling.format(tmp_path, tmp_path.parent, tmp_path.name)
    assert list(scan(path, Kind(100, FileError), {}, {}).stamps) == [f"{tmp_path}/web.yaml"]
