"""Crash-loop back-off as the kubelet's: 10 s doubling to 5 min, forgotten after 10 min of running."""

import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors._host.files import checkpoint as files
from actors.pod_workers import checkpoint
from actors.pod_workers.model.back_off import (
    Replaced,
    RestartDelay,
    definition_of,
    from_plain,
    raised,
    raises,
    replaced_from_plain,
    replaced_to_plain,
    standing,
    to_plain,
    wait_until,
)
from actors.pod_workers.worker import PodWorker
from proto.agent.settings import Settings
from proto.common.backoff import Backoff
from proto.v1 import Container, ResourceRequirements

DELAYS = Backoff(10.0, cap_s=300.0, reset_after_s=600.0)


def test_delays_double_from_10_s_to_5_min():
    now, entry, delays = 1000.0, None, []
    for _ in range(8):
        finished = now + 1
        now = max(finished, wait_until(entry, finished, DELAYS))
        delays.append(now - finished)
        entry = raised(entry, finished, now, DELAYS)
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300]


@pytest.mark.parametrize(
    ("life_s", "waits"),
    [
        (5, [0, 0, 10, 20, 40, 80, 160, 300, 0, 300]),  # a wait of the cap has passed at the next kill
        (15, [0, 0, 0, 20, 40, 80, 160, 300, 0, 300]),
        (30, [0, 0, 0, 0, 40, 80, 160, 300, 0, 300]),
        (601, [0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ],
)
def test_after_a_kill_the_end_before_it_decides_on_a_wait(life_s, waits):
    """The kubelet's SyncPod decides on the pod's status from before its kills."""
    now, entry, end, found = 1000.0, None, 0.0, []
    for _ in waits:
        killed = now = now + life_s
        replaced = Replaced("i", end)
        if wait_until(entry, killed, DELAYS, replaced) > now:  # a later step starts it, and sees the killed one's end
            replaced, now = None, wait_until(entry, killed, DELAYS)
        if raises(entry, killed, replaced):
            entry = raised(entry, killed, now, DELAYS)
        found.append(now - killed)
        end = killed
    assert found == waits


@pytest.mark.parametrize(
    ("updated", "replaced", "raises_it"),
    [
        (None, None, True),
        (999.0, None, True),
        (1000.0, None, False),
        (None, Replaced("i", 0.0), False),
        (999.0, Replaced("i", 900.0), True),
        (950.0, Replaced("i", 940.0), True),
        (1001.0, Replaced("i", 900.0), False),
    ],
)
def test_a_start_raises_the_back_off_once(updated, replaced, raises_it):
    """Of an instance that ended at 1000 s."""
    entry = None if updated is None else RestartDelay(10.0, updated)
    assert raises(entry, 1000.0, replaced) == raises_it


def test_a_pod_that_failed_2000_times_is_tried_in_10_s():
    worker = Mock(_failures=1999)
    assert PodWorker._failed(worker, "no") == 10


def test_a_run_of_over_10_minutes_starts_over():
    entry = RestartDelay(delay_s=160, updated=1000.0)
    assert wait_until(entry, 1601.0, DELAYS) == 0
    assert raised(entry, 1601.0, 1602.0, DELAYS).delay_s == 10


def test_a_run_of_10_minutes_does_not():
    entry = RestartDelay(delay_s=160, updated=1000.0)
    assert wait_until(entry, 1600.0, DELAYS) == 1760.0
    assert raised(entry, 1600.0, 1760.0, DELAYS).delay_s == 300


@given(
    st.dictionaries(
        st.tuples(st.text(), st.text()), st.builds(RestartDelay, st.floats(0, 300), st.floats(0, 2e9), st.text())
    )
)
def test_the_checkpoint_gives_back_what_it_was_given(back_offs):
    assert from_plain(to_plain(back_offs)) == back_offs


@given(
    st.dictionaries(
        st.text(),
        st.dictionaries(st.text(), st.builds(Replaced, st.text(), st.floats(0, 2e9)), min_size=1),
    )
)
def test_the_checkpoint_gives_back_kills(replaced):
    assert replaced_from_plain(replaced_to_plain(replaced)) == replaced


LIMITED = ResourceRequirements(limits={"memory": "64Mi"})


@pytest.mark.parametrize(
    ("container", "stands"),
    [
        (Container(name="c", image="a", command=("other",)), True),
        (Container(name="c", image="b"), False),
        (Container(name="c", image="a", resources=LIMITED), False),
    ],
)
def test_another_image_or_other_resources_start_over(container, stands):
    entry = raised(None, 1000.0, 1001.0, DELAYS, definition_of(Container(name="c", image="a")))
    assert (standing(entry, definition_of(container)) is entry) == stands


def test_an_older_checkpoint_is_read():
    assert from_plain([["u", "c", 20, 1000]]) == {("u", "c"): RestartDelay(20.0, 1000.0)}


def test_a_checkpoint_of_the_release_before_is_read(tmp_path):
    rows = {"back_offs": [["u", "c", 20, 1000, "d"]], "rejected": []}
    files.save(checkpoint.path(str(tmp_path)), checkpoint.VERSION, rows)
    saved = checkpoint.load(str(tmp_path))
    assert (saved.back_offs, saved.replaced) == ({("u", "c"): RestartDelay(20.0, 1000.0, "d")}, {})


@pytest.fixture
def hung_disk(monkeypatch) -> Iterator[threading.Event]:
    """fsync hangs; the event is set when it begins."""
    begun, goes_on = threading.Event(), threading.Event()

    def hang(descriptor: int) -> None:
        begun.set()
        assert goes_on.wait(30)

    monkeypatch.setattr(os, "fsync", hang)
    yield begun
    goes_on.set()


def made(root: Path) -> checkpoint.Checkpoint:
    async def at_once(deadline_s: float, write: Callable[[], None]) -> None:
        write()

    return checkpoint.Checkpoint(Mock(settings=Settings(root_dir=str(root)), blocking=at_once))


@pytest.mark.parametrize("write", ["save", "_save_in_thread"])
def test_a_raise_outlives_a_kill_while_the_disk_hangs(tmp_path, hung_disk, write):
    kept = made(tmp_path)
    save = getattr(kept, write)
    before = threading.Thread(target=save if write == "save" else lambda: run(save()), daemon=True)
    before.start()
    assert hung_disk.wait(30)
    kept.saved.back_offs["u", "c"] = RestartDelay(20.0, 1000.0, "d")
    run(kept.outlive_kill())
    assert checkpoint.load(str(tmp_path)).back_offs == kept.saved.back_offs
    assert before.is_alive()


def test_at_most_one_write_waits_for_the_disk():
    later, begun = [], []
    actor = Mock(settings=Settings(), after=lambda _, function: later.append(function))
    actor.spawn = lambda coroutine, _: begun.append(coroutine)
    kept = checkpoint.Checkpoint(actor)
    kept.save_soon()
    later.pop()()
    kept.save_soon()
    assert (len(begun), later) == (1, [])
    begun[0].close()


def test_the_newer_of_two_checkpoints_counts(tmp_path):
    kept = made(tmp_path)
    for number, write in enumerate([lambda: run(kept.outlive_kill()), kept.save, lambda: run(kept.outlive_kill())]):
        kept.saved.back_offs["u", "c"] = RestartDelay(float(number), 1000.0, "d")
        write()
        assert made(tmp_path).saved.back_offs == kept.saved.back_offs
    Path(checkpoint.recent_path(str(tmp_path))).write_bytes(b"")  # as after a power cut
    assert made(tmp_path).saved.back_offs["u", "c"].delay_s == 1.0


def test_calls_that_come_together_share_a_write(tmp_path, monkeypatch):
    kept, writes = made(tmp_path), Mock()
    monkeypatch.setattr(files, "save", writes)
    waiting: list[Callable[[], None]] = []

    async def queued(deadline_s: float, write: Callable[[], None]) -> None:
        waiting.append(write)

    kept._actor.blocking = queued
    for _ in range(100):
        run(kept.outlive_kill())
    for write in waiting:
        write()
    assert writes.call_count == 1
    run(kept.outlive_kill())
    waiting[-1]()
    assert writes.call_count == 2


def run(coroutine: Coroutine[None, None, None]) -> None:
    """One that waits for nothing."""
    with pytest.raises(StopIteration):
        coroutine.send(None)
