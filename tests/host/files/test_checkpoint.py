import asyncio
import errno
import functools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from actors._host.files import checkpoint
from actors._host.files.checkpoint import RETRY_S, CheckpointFile, load, save
from proto.wire.errors import AskTimeout
from tests.harness import wait_for

T = TypeVar("T")


class Result(msgspec.Struct):
    name: str
    at: float = 0.0


def test_saved_data_is_loaded_as_plain_values(tmp_path: Path) -> None:
    path = tmp_path / "not" / "there" / "probe.json"
    save(path, 1, {"results": [Result("ä", 1.5)], "none": None})
    assert load(path, 1) == {"results": [{"name": "ä", "at": 1.5}], "none": None}


@pytest.mark.parametrize("sync", [True, False])
def test_newest_checkpoint_wins_and_only_one_file_stays(tmp_path: Path, sync: bool) -> None:
    path = tmp_path / "probe.json"
    for number in range(3):
        save(path, 1, number, sync=sync)
    assert load(path, 1) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["probe.json"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_write_past_its_deadline_replaces_no_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write_file = tmp_path / "probe.json", checkpoint.write_file
    begun, disk_answers = threading.Event(), threading.Event()

    def slow_once(*arguments: Any, **options: Any) -> None:
        if not begun.is_set():
            begun.set()
            assert disk_answers.wait(20)
        write_file(*arguments, **options)

    turn, turns = checkpoint._turn, []

    def noted(target: Path) -> Any:
        turns.append(turn(target))
        return turns[-1]

    monkeypatch.setattr(checkpoint, "write_file", slow_once)
    monkeypatch.setattr(checkpoint, "_turn", noted)
    first, *later = [threading.Thread(target=save, args=(path, 1, number)) for number in range(4)]
    first.start()
    assert begun.wait(20)
    for count, thread in enumerate(later, 2):
        thread.start()
        wait_for(lambda count=count: len(turns) == count, what="it is the latest caller")
        thread.join(0.2)  # where it does not wait for the first, it is done by then
    disk_answers.set()
    for thread in (first, *later):
        thread.join(20)
    assert load(path, 1) == 3


def own_records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Without records of threads that other tests have left."""
    return [record for record in caplog.records if record.name == checkpoint.__name__]


def test_missing_checkpoint_is_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert load(tmp_path / "nothing.json", 1) is None
    assert not own_records(caplog)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text[: len(text) // 2], "truncated"),
        (lambda text: text.replace("kept", "lost"), "checksum"),
        (lambda _: "", "truncated"),
        (lambda _: "null", "null"),
        (lambda text: text.replace('"version":1', '"version":2'), "version 2"),
    ],
)
def test_damaged_checkpoint_or_other_version_is_none_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage, said: str
) -> None:
    path = tmp_path / "probe.json"
    save(path, 1, {"word": "kept"})
    path.write_text(damage(path.read_text()))
    assert load(path, 1) is None
    assert said in caplog.text
    save(path, 1, "again")
    assert load(path, 1) == "again"


def test_directory_as_checkpoint_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert load(tmp_path, 1) is None
    assert "cannot read the checkpoint" in caplog.text


def test_a_writer_killed_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "probe.json"
    code = (
        "import itertools, sys; from actors._host.files.checkpoint import save\n"
        "for n in itertools.count(): save(sys.argv[1], 1, [n] * 20000, sync=False)"
    )
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", code, str(path)])
        deadline = time.monotonic() + 20
        before = path.stat().st_mtime_ns if path.exists() else 0
        while not path.exists() or path.stat().st_mtime_ns == before:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        found = load(path, 1)
        assert found is not None
        assert len(found) == 20000
        assert len(set(found)) == 1


def test_checkpoint_irregular_or_too_large_is_none_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fifo, sparse, directory = tmp_path / "fifo", tmp_path / "sparse", tmp_path / "directory"
    os.mkfifo(fifo)
    directory.mkdir()
    with sparse.open("wb") as file:
        file.truncate(2 << 30)
    for path, said in ((fifo, "no regular file"), (directory, "no regular file"), (sparse, "2147483648 bytes")):
        caplog.clear()
        assert load(path, 1) is None
        assert said in caplog.text


class Owner:
    """An actor whose writes end with the given outcomes, and whose timers run when the test says so."""

    def __init__(self, outcomes: Sequence[Exception | None]) -> None:
        self.outcomes = list(outcomes)
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.hung: list[Callable[[], object]] = []
        """Writes that were past their deadline."""

    async def blocking(self, timeout_s: float, function: Callable[..., T], *args: Any) -> T:
        assert timeout_s == 3.0
        error = self.outcomes.pop(0)
        if isinstance(error, AskTimeout):
            self.hung.append(functools.partial(function, *args))
        if error is not None:
            raise error
        return function(*args)

    def after(self, delay_s: float, function: Callable[[], None]) -> None:
        self.timers.append((delay_s, function))

    def spawn(self, coroutine: Coroutine[Any, None, T], _: str) -> None:
        asyncio.run(coroutine)

    def elapse(self) -> None:
        """Run the one timer."""
        [(delay_s, function)] = self.timers
        assert delay_s == RETRY_S
        self.timers.clear()
        function()


def file_of(owner: Owner, directory: Path) -> CheckpointFile:
    return CheckpointFile(owner, str(directory / "probe.json"), 1, "a restart forgets it", deadline_s=3.0)


def test_an_old_failure_that_is_told_late_changes_nothing(tmp_path: Path) -> None:
    owner = Owner([OSError("full"), None])
    file = file_of(owner, tmp_path)

    async def told_late() -> None:
        blocking, done = owner.blocking, asyncio.Event()

        async def late(*args: Any) -> None:
            owner.blocking = blocking  # type: ignore[method-assign]
            try:
                await blocking(*args)
            finally:
                await done.wait()

        owner.blocking = late  # type: ignore[method-assign]
        old = asyncio.create_task(file.save("old"))
        await asyncio.sleep(0)
        assert await file.save("new")
        done.set()
        assert not await old

    asyncio.run(told_late())
    assert (file.failed, file.load(), owner.timers) == (False, "new", [])


@pytest.mark.parametrize(
    ("outcomes", "results", "lines"),
    [
        ([None, None], [True, True], 0),
        ([OSError("full"), OSError("full"), OSError("other")], [False, False, False], 1),
        ([AskTimeout("late"), None, AskTimeout("late")], [False, True, False], 2),
    ],
)
def test_failed_writes_are_logged_once_until_one_succeeds(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    outcomes: list[Exception | None],
    results: list[bool],
    lines: int,
) -> None:
    async def saved() -> list[bool]:
        return [await file.save({"number": number}) for number in range(len(outcomes))]

    file = file_of(Owner(outcomes), tmp_path)
    assert asyncio.run(saved()) == results
    assert file.failed is not results[-1]
    assert len(own_records(caplog)) == lines
    assert all(record.getMessage().endswith("; a restart forgets it; trying again") for record in own_records(caplog))
    done = [number for number, result in enumerate(results) if result]
    assert file.load() == ({"number": done[-1]} if done else None)


def test_newest_data_is_tried_again_until_it_is_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    owner = Owner([OSError("full")] * 4 + [None])
    file = file_of(owner, tmp_path)
    for data in ("old", "new"):
        assert not asyncio.run(file.save(data))
    for _ in range(2):
        owner.elapse()
        assert file.failed
    assert len(own_records(caplog)) == 1
    owner.elapse()
    assert (file.failed, file.load()) == (False, "new")
    assert not owner.timers, "nothing wakes the process any more"


def test_no_write_is_tried_again_after_a_newer_one_succeeded(tmp_path: Path) -> None:
    owner = Owner([OSError("full"), None])
    file = file_of(owner, tmp_path)
    for data in ("old", "new"):
        asyncio.run(file.save(data))
    owner.elapse()
    assert (file.failed, file.load(), owner.timers) == (False, "new", [])


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_a_value_that_was_taken_back_is_not_written_later(tmp_path: Path, failures: int) -> None:
    owner = Owner([None, *[OSError("full")] * failures, None])
    file = file_of(owner, tmp_path)
    for data in ("well", "pressure", "well"):
        asyncio.run(file.save_changed(data))
    while owner.timers:
        owner.elapse()
    assert (file.failed, file.load(), owner.outcomes) == (False, "well", [])


def test_a_value_that_was_asked_for_is_written_once(tmp_path: Path) -> None:
    owner = Owner([None, OSError("full"), None, None, None])
    file = file_of(owner, tmp_path)
    file.holds("read")
    for data in ("read", "a", "a", "b", "b"):
        asyncio.run(file.save_changed(data))
    assert (file.failed, len(owner.timers), owner.outcomes) == (True, 1, [None] * 3), "its retry is due"
    owner.elapse()
    asyncio.run(file.save_changed("b"))
    assert (file.failed, file.load(), owner.outcomes) == (False, "b", [None] * 2)
    asyncio.run(file.save("other"))
    asyncio.run(file.save_changed("b"))
    assert (file.load(), owner.outcomes) == ("b", [])


def test_a_write_that_hangs_takes_one_thread(tmp_path: Path) -> None:
    owner = Owner([AskTimeout("late"), None])
    file = file_of(owner, tmp_path)
    asyncio.run(file.save("data"))
    for _ in range(5):
        owner.elapse()
    assert (len(owner.hung), len(owner.outcomes)) == (1, 1), "no further write has begun"
    owner.hung[0]()
    owner.elapse()
    assert (file.failed, file.load(), owner.outcomes) == (False, "data", [])


def test_an_old_write_that_goes_on_undoes_no_newer_one(tmp_path: Path) -> None:
    owner = Owner([AskTimeout("late"), None])
    file = file_of(owner, tmp_path)
    for data in ("old", "new"):
        asyncio.run(file.save(data))
    owner.hung[0]()
    assert (file.failed, file.load()) == (False, "new")


def test_a_failed_write_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, written = os.write, list[int]()

    def half(descriptor: int, content: bytes) -> int:
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(write(descriptor, content[:10]))
        return written[0]

    (tmp_path / "directory.json").mkdir()
    with pytest.raises(IsADirectoryError):
        save(tmp_path / "directory.json", 1, "data")
    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        save(tmp_path / "probe.json", 1, "data")
    monkeypatch.undo()
    assert [one.name for one in tmp_path.iterdir()] == ["directory.json"]


def test_reads_tell_no_file_from_one_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    assert checkpoint.read(path, 1) is None
    save(path, 2, "newer")
    with pytest.raises(checkpoint.Unusable, match="it has version 2, this agent reads version 1") as newer:
        checkpoint.read(path, 1)
    assert not isinstance(newer.value, checkpoint.Damaged)
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    with pytest.raises(checkpoint.Damaged):
        checkpoint.read(path, 2)
    path.write_bytes(whole.replace(b"newer", b"never"))
    with pytest.raises(checkpoint.Damaged, match="its checksum does not match"):
        checkpoint.read(path, 2)
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match="it is no regular file"):
        checkpoint.read(path, 2)
