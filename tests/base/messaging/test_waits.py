"""The table of waits: what one process writes, others read, also after its end."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._base.messaging import waits
from proto.common.machine import procfs
from proto.waits import table
from proto.waits.record import Wait
from tests.harness import wait_for


@pytest.fixture
def slots(tmp_path: Path) -> Iterator[table.Slots]:
    made = table.Slots(tmp_path / "volume", "volume", 3, 42)
    yield made
    made.close()


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """This process has a table."""
    monkeypatch.setattr(waits, "_slots", None)
    monkeypatch.setattr(waits, "_itself", waits.Subject("actor/"))
    waits.open_table(str(tmp_path), "volume", 1, os.getpid())
    yield tmp_path / "waits" / "volume"
    opened = waits.table()
    assert opened is not None
    opened.close()


def found(path: Path) -> list[Wait]:
    read = table.read(path)
    assert read is not None
    return list(read.waits)


def test_written_wait_is_read(tmp_path: Path, slots: table.Slots) -> None:
    wait = Wait(kind="ask", waiter="pod/a/b", target="actor/pleg", what="Ping", since=1.5, ask=("x", 1, 2), number=9)
    slots.write(slots.take(), wait)
    slots.handling(7)
    read = table.read(tmp_path / "volume")
    assert read is not None
    assert read.waits == (wait,)
    assert (read.name, read.incarnation, read.start_time, read.mailbox, read.handled) == ("volume", 3, 42, 7, 1)


def test_few_waits_map_few_pages(tmp_path: Path, slots: table.Slots) -> None:
    for _ in range(3):
        slots.write(slots.take(), Wait(kind="ask", waiter="a"))
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    assert any(line.endswith(str(tmp_path / "volume")) for line in lines), "its mapping"
    resident = next(line for line in lines if line.startswith("Rss:"))
    assert int(resident.split()[1]) * 1024 <= 2 * table.PAGE


def test_freed_slot_is_empty_and_taken_again(tmp_path: Path, slots: table.Slots) -> None:
    slot = slots.take()
    slots.write(slot, Wait(kind="ask", waiter="a"))
    slots.free(slot)
    assert found(tmp_path / "volume") == []
    assert slots.take() == slot


def test_slot_in_the_middle_of_a_write_is_torn(tmp_path: Path, slots: table.Slots) -> None:
    slots.write(slots.take(), Wait(kind="ask", waiter="a"))
    slots._map[table.PAGE + table.SLOT] |= 1
    read = table.read(tmp_path / "volume")
    assert read is not None
    assert (read.waits, read.torn) == ((), 1)


def test_damaged_slot_is_torn(tmp_path: Path, slots: table.Slots) -> None:
    slots.write(slots.take(), Wait(kind="ask", waiter="a" * 20))
    slots._map[table.PAGE + table.SLOT + 20] ^= 0x20
    read = table.read(tmp_path / "volume")
    assert read is not None
    assert (read.waits, read.torn) == ((), 1)


def test_long_texts_are_cut(tmp_path: Path, slots: table.Slots) -> None:
    slots.write(slots.take(), Wait(kind="ask", waiter="ü" * 900, what="w" * 5000, error="e" * 5000, uid="u" * 900))
    (wait,) = found(tmp_path / "volume")
    assert len(wait.waiter.encode()) == 240
    assert wait.error == "e" * 120


def test_wait_of_a_long_asker_stays_in_its_slot(tmp_path: Path, slots: table.Slots) -> None:
    first, second = slots.take(), slots.take()
    slots.write(second, Wait(kind="ask", waiter="b"))
    slots.write(first, Wait(kind="handler", waiter="a", ask=("s" * 5000, 1, 2)))
    assert [(one.waiter, one.ask) for one in found(tmp_path / "volume")] == [("a", ("s" * 120, 1, 2)), ("b", None)]


def test_wait_that_is_too_large_is_left_out(tmp_path: Path, slots: table.Slots) -> None:
    first, second = slots.take(), slots.take()
    slots.write(second, Wait(kind="ask", waiter="b"))
    slots.write(first, Wait(kind="ask", waiter="a"))
    slots.write(first, Wait(kind="k" * 2000, waiter="a"))  # type: ignore[arg-type] - no field that is cut
    assert [one.waiter for one in found(tmp_path / "volume")] == ["b"]
    assert slots.take() not in (first, second)


def test_full_table_counts_further_waits(tmp_path: Path, slots: table.Slots) -> None:
    taken = [slots.take() for _ in range(table.SLOTS + 1)]
    assert taken[-2:] == [-1, -1]
    for slot in taken[:-2]:
        slots.write(slot, Wait(kind="ask", waiter="a"))
    read = table.read(tmp_path / "volume")
    assert read is not None
    assert (len(read.waits), read.lost) == (table.SLOTS - 1, 2)  # one is kept for the handler
    assert (tmp_path / "volume").stat().st_size == table.MAX_FILE


def test_small_table_allocates_little(tmp_path: Path, slots: table.Slots) -> None:
    slots.write(slots.take(), Wait(kind="ask", waiter="a"))
    assert (tmp_path / "volume").stat().st_blocks * 512 <= 64 * 1024


@pytest.mark.parametrize("content", [b"", b"x" * 5000, table.MAGIC + b"\xff" * 4088])
def test_foreign_file_is_no_table(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "volume").write_bytes(content)
    read = table.read(tmp_path / "volume")
    assert read is None or read.waits == ()


def test_link_is_not_followed(tmp_path: Path, slots: table.Slots) -> None:
    (tmp_path / "other").symlink_to("volume")
    assert table.read(tmp_path / "other") is None


@pytest.mark.parametrize("room", [0, 1], ids=["no room at all", "room of the former table"])
def test_no_table_of_a_former_incarnation_stays(
    tmp_path: Path, slots: table.Slots, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """The run directory is full. Without the former table's room the new incarnation has none, which is logged."""
    slots.write(slots.take(), Wait(kind="ask", waiter="a"))
    allocate, path, tries = os.posix_fallocate, tmp_path / "volume", []

    def full(*arguments: int) -> None:
        tries.append(path.exists())
        if path.exists() or not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(*arguments)

    monkeypatch.setattr(os, "posix_fallocate", full)
    if room:
        table.Slots(path, "volume", 4, 43).close()
        assert found(path) == []
    else:
        with pytest.raises(OSError, match="No space left"):
            table.Slots(path, "volume", 4, 43)
        assert list(tmp_path.iterdir()) == []
    assert tries == [True, False]


def test_waits_have_the_subject_of_their_task(own: Path) -> None:
    waits.SUBJECT.set(waits.Subject("pod/a/b", "u", ("config", 1, 2)))
    waiting = waits.begin("cri", "cri", "Version", timeout_s=5)
    waits.SUBJECT.set(None)
    other = waits.begin("timer")
    first, second = found(own)
    assert (first.waiter, first.uid, first.ask, first.what) == ("pod/a/b", "u", ("config", 1, 2), "Version")
    assert first.deadline - first.since == pytest.approx(5)
    assert second.waiter == "actor/volume"
    waiting.end()
    waiting.end()
    other.end()
    assert found(own) == []


def test_standing_wait_keeps_its_start(own: Path) -> None:
    standing, pod = waits.Standing(), waits.Subject("pod/a/b")
    standing.put("app", pod, "retry", "app", error="one", next_try=1.0)
    (before,) = found(own)
    standing.put("app", pod, "retry", "app", error="two", next_try=2.0)
    (after,) = found(own)
    assert (after.since, after.error, after.next_try) == (before.since, "two", 2.0)
    standing.keep(set())
    assert found(own) == []


def test_reader_sees_whole_waits_while_threads_write(own: Path) -> None:
    stop = threading.Event()

    def write(number: int) -> None:
        while not stop.is_set():
            waits.begin("ask", f"actor/{number}", "x" * (number * 50)).end()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(300):
            assert all(len(one.what) == 50 * int(one.target[6:]) for one in found(own))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


WRITER = """
import os, sys, time
from actors._base.messaging import waits
waits.open_table(sys.argv[1], "volume", 1, os.getpid())
waits.begin("ask", "actor/pleg", "CallRuntime")
print("ready", flush=True)
time.sleep(600)
"""


def test_stopped_and_killed_process_is_read(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        start = procfs.start_time(writer.pid)
        writer.send_signal(signal.SIGSTOP)
        wait_for(lambda: " T " in Path(f"/proc/{writer.pid}/stat").read_text(), 10, "stopped")
        assert [one.what for one in found(tmp_path / "waits" / "volume")] == ["CallRuntime"]
        writer.kill()
    read = table.read_all(tmp_path)["volume"]
    assert [one.what for one in read.waits] == ["CallRuntime"]
    assert read.start_time == start


def test_record_of_an_ask_costs_microseconds(own: Path) -> None:
    def cost_us() -> float:
        began = time.thread_time()
        for number in range(2000):
            waits.begin("ask", "actor/volume", "MountPod", timeout_s=5, number=number).end()
        return (time.thread_time() - began) / 2000 * 1e6

    best = min(cost_us() for _ in range(5))
    assert best < 20
