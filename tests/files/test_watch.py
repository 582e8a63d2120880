"""Watches while the kernel has no inotify instance for us, and once it has."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inotify_simple import INotify

from actors._files import watch
from actors._files.problems import FileError
from actors._files.scan import Kind, Listing
from actors._files.source import FileSource
from actors._files.watch import Change, Watch
from proto.agent.actor import Describe
from tests.files.test_source import LoopActor
from tests.harness import ActorProcess

NONE_FREE = """
import errno
from actors._files import watch
def no_instance(**_):
    raise OSError(errno.EMFILE, "Too many open files")
watch.INotify = no_instance
"""


class Kernel:
    """Has no instance until `errors` are used up."""

    def __init__(self, errors: list[int]) -> None:
        self.errors = errors
        self.made: list[Any] = []

    def inotify(self, **options: Any) -> Any:
        if self.errors:
            number = self.errors.pop(0)
            raise OSError(number, os.strerror(number))
        self.made.append(INotify(**options))
        return self.made[-1]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    one = Kernel([])
    monkeypatch.setattr(watch, "INotify", one.inotify)
    yield one
    for made in one.made:
        made.close()


def test_a_watch_begins_once_an_instance_is_free(
    tmp_path: Path, kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    kernel.errors = [errno.EMFILE, errno.EMFILE, errno.ENOMEM]
    one, opened = Watch(str(tmp_path)), list[int]()
    one.start(20, opened.append)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    for _ in range(3):
        one.ensure()
        assert (one.add_below(descriptor), one.active, one.read(), opened) == (-1, False, [], [])
        one.retain_below(())
    os.close(descriptor)
    lines = [record.getMessage() for record in caplog.records if record.name == watch.__name__]
    free = "no inotify instance is free; raise the sysctl fs.inotify.max_user_instances"
    assert lines == [
        f"cannot watch {tmp_path}: {free}; it is listed every 20 s",
        f"cannot watch {tmp_path}: Cannot allocate memory; it is listed every 20 s",
    ]
    for _ in range(2):
        one.ensure()
    (tmp_path / "a").touch()
    assert one.active
    assert opened == [kernel.made[0].fileno()]
    assert Change("a", created=True) in one.read()


def test_a_source_lists_files_without_an_instance_and_notices_them_with_one(tmp_path: Path, kernel: Kernel) -> None:
    kernel.errors = [errno.EMFILE]
    found: list[str] = []

    async def run() -> None:
        more = asyncio.Event()

        async def take(listing: Listing) -> None:
            found.extend(os.path.basename(path) for path in listing.contents)
            more.set()

        async def found_more() -> None:
            await asyncio.wait_for(more.wait(), 60)
            more.clear()

        actor: Any = LoopActor(asyncio.get_running_loop())
        files = FileSource(actor, str(tmp_path), Kind(1000, FileError), take, "")
        (tmp_path / "a.yaml").touch()
        files.start(60)
        await found_more()
        assert not files.watched
        await files.relist()
        await found_more()
        assert files.watched
        (tmp_path / "b.yaml").touch()
        while "b.yaml" not in found:
            await found_more()

    asyncio.run(run())
    assert found == ["a.yaml", "a.yaml", "b.yaml"]


@pytest.mark.parametrize("name", ["config", "volume", "resources"])
def test_actors_start_without_an_instance(tmp_path: Path, name: str) -> None:
    peers = ("pod_workers", "objects", "events", "node", "status")
    with ActorProcess(name, None, peers, prelude=NONE_FREE, pod_manifest_path=str(tmp_path)) as actor:
        assert actor.ask(Describe()).state
