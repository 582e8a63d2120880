import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors._host.files import checkpoint
from actors._host.files.checkpoint import CheckpointFile, load, save
from proto.wire.errors import AskTimeout


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

    monkeypatch.setattr(checkpoint, "write_file", slow_once)
    first, *later = [threading.Thread(target=save, args=(path, 1, number)) for number in range(4)]
    first.start()
    assert begun.wait(20)
    for thread in later:
        thread.start()
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
    given = iter(outcomes)

    async def blocking(timeout_s: float, function: Callable[..., None], *args: Any) -> None:
        assert timeout_s == 3.0
        if (error := next(given)) is not None:
            raise error
        function(*args)

    async def saved() -> list[bool]:
        return [await file.save({"number": number}) for number in range(len(outcomes))]

    file = CheckpointFile(blocking, str(tmp_path / "probe.json"), 1, "a restart forgets it", deadline_s=3.0)
    assert asyncio.run(saved()) == results
    assert file.failed is not results[-1]
    assert len(own_records(caplog)) == lines
    assert all(record.getMessage().endswith("; a restart forgets it") for record in own_records(caplog))
    done = [number for number, result in enumerate(results) if result]
    assert file.load() == ({"number": done[-1]} if done else None)
