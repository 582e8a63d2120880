"""Crash-loop back-off as the kubelet's: 10 s doubling to 5 min, forgotten after 10 min of running."""

import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors._host import other_agent
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
    waiting,
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
        if raises(entry, killed, now, replaced):
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
    assert raises(entry, 1000.0, 1010.0, replaced) == raises_it


def test_clock_set_back_lengthens_no_wait():
    """By a year, while an instance waits for 20 s."""
    year, entry = 365 * 86400.0, RestartDelay(20.0, 1000.0)
    until = wait_until(entry, 1005.0, DELAYS)
    before = waiting(None, "i", until, 1005.0, 7.0, entry.delay_s)
    assert (before.left_s(1005.0, 7.0), before.left_s(1010.0 - year, 12.0)) == (20.0, 15.0)
    after = waiting(None, "i", until, 1010.0 - year, 2.0, entry.delay_s)  # the next process starts after the step
    assert after.left_s(1010.0 - year, 2.0) == 20.0
    again = waiting(after, "i", until, 1025.0 - year, 17.0, entry.delay_s)
    assert (again, again.left_s(1030.0 - year, 22.0)) == (after, 0.0), "a look begins no other wait"
    assert again.left_s(1025.5, 3.0) == -0.5, "a clock that is right again"
    assert waiting(again, "j", until, 1025.0 - year, 17.0, entry.delay_s).due == 37.0


def test_clock_set_back_keeps_no_back_off_from_growing():
    now, entry = 1000.0, RestartDelay(20.0, 5000.0)
    assert raises(entry, 990.0, now)
    entry = raised(entry, 990.0, now, DELAYS)
    assert entry == RestartDelay(40.0, now)
    ahead = 1500.0  # it ended just before the step
    assert raises(entry, ahead, now)
    entry = raised(entry, ahead, now, DELAYS)
    assert (entry.delay_s, raises(entry, ahead, now + 1)) == (80.0, False), "a failed start has raised it"
    assert raises(entry, now + 50, now + 60)


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


@pytest.mark.parametrize(
    "shape",
    [
        [],
        "text",
        {"number": "1"},
        {"back_offs": {"u": 1}},
        {"back_offs": [["u", "c", "long", 1]]},
        {"replaced": [["u", "c"]]},
        {"ends": [["u", 1.0, [["c"]]]]},
        {"container_ends": [["u", "c", 1.0, [2.0]]]},
        {"rejected": ["u"]},
        {"rejected_before": 1},
        {"other_agent": 1},
        {"outdated": "u"},
    ],
)
def test_checkpoint_of_another_shape_is_not_used(tmp_path, caplog, shape):
    kept = made(tmp_path)
    kept.saved.back_offs["u", "c"] = RestartDelay(20.0, 1000.0, "d")
    run(kept.outlive_kill())
    files.save(checkpoint.path(str(tmp_path)), checkpoint.VERSION, shape)
    assert checkpoint.load(str(tmp_path)).back_offs == kept.saved.back_offs, "the other file is whole"
    assert f"cannot use the checkpoint {checkpoint.path(str(tmp_path))}: " in caplog.text
    files.save(checkpoint.recent_path(str(tmp_path)), checkpoint.VERSION, shape)
    assert checkpoint.load(str(tmp_path), "agent") == checkpoint.Saved()


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


def made(root: Path, agent: str = "") -> checkpoint.Checkpoint:
    async def at_once(deadline_s: float, write: Callable[[], None]) -> None:
        write()

    return checkpoint.Checkpoint(Mock(settings=Settings(root_dir=str(root)), blocking=at_once), agent)


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


@pytest.mark.parametrize("write", ["save", "_save_in_thread", "outlive_kill"])
def test_what_a_full_disk_refused_is_written_once_it_has_room(tmp_path, caplog, write):
    root, timers = tmp_path / "root", []
    root.write_bytes(b"")  # no directory: each write fails
    kept = made(root)
    kept._actor.after = lambda delay_s, function: timers.append((delay_s, function))
    kept._actor.spawn = lambda coroutine, _: run(coroutine)
    kept.saved.rejected["u"] = ("NodePorts", "m")
    for _ in range(3):
        save = getattr(kept, write)()
        run(save) if save is not None else None
    assert [delay_s for delay_s, _ in timers] == [files.RETRY_S]
    assert len([record for record in caplog.records if "cannot write" in record.message]) == 1
    root.unlink()
    while timers:
        timers.pop()[1]()
    assert made(root).saved.rejected == kept.saved.rejected


def test_only_a_start_of_the_agent_makes_rejections_old(tmp_path):
    first = made(tmp_path, "first")
    first.saved.rejected["a"] = ("NodePorts", "m")
    first.save()
    assert made(tmp_path, "first").saved.rejected_before == set(), "only the actor was killed"
    assert made(tmp_path).saved.rejected_before == set(), "a replay does not know the agent"
    second = made(tmp_path, "second")
    assert second.saved.rejected_before == {"a"}
    second.saved.rejected["b"] = ("NodePorts", "m")
    second.save()
    killed = made(tmp_path, "second").saved
    assert (killed.rejected.keys(), killed.rejected_before) == ({"a", "b"}, {"a"}), (
        "the source may not have answered yet"
    )


NOT_KNOWN = checkpoint.Saved(rejected={"a": ("Evicted", "m")})
KNOWN = replace(NOT_KNOWN, other_agent="1 1")
SERVED = {"awaits_server": True, "rejected_before": {"a"}, "served_by_other_agent": {"a"}}


@pytest.mark.parametrize(
    ("saved", "noted", "expected"),
    [
        (NOT_KNOWN, "", replace(NOT_KNOWN, other_agent="")),
        (NOT_KNOWN, "1 1", KNOWN),
        (KNOWN, "", KNOWN),
        (KNOWN, "1 1", KNOWN),
        (KNOWN, "2 2", replace(KNOWN, other_agent="2 2", **SERVED)),
        (replace(KNOWN, is_settled=True), "2 2", replace(KNOWN, other_agent="2 2", **SERVED)),
        (replace(KNOWN, other_agent=""), "1 1", replace(KNOWN, **SERVED)),
        (replace(KNOWN, awaits_server=True), "1 1", replace(KNOWN, awaits_server=True)),
    ],
)
def test_another_agent_has_served_if_a_new_one_is_noted(saved, noted, expected):
    assert checkpoint.after_other_agent(saved, noted) == expected


def note(root: Path, identity: str) -> None:
    files.save(other_agent.path(str(root)), other_agent.VERSION, identity)


def test_service_of_another_agent_counts_until_the_server_answers(tmp_path):
    first = made(tmp_path, "first")
    first.saved.rejected["a"] = ("Evicted", "m")
    first.save()
    note(tmp_path, "1 1")
    for _ in range(2):
        second = made(tmp_path, "second")
        assert (second.saved.awaits_server, second.saved.served_by_other_agent) == (True, {"a"}), (
            "also before the first write"
        )
    second.saved.served_by_other_agent.discard("a")
    second.saved.rejected["b"] = ("Evicted", "m")
    second.save()
    third = made(tmp_path, "third")
    assert third.saved.awaits_server, "the server has not answered"
    assert third.saved.served_by_other_agent == set(), "b was evicted after the other agent's time"
    third._actor.after = lambda _, save: save()
    third._actor.spawn = lambda write, _: run(write)
    third.has_begun("runs")
    assert made(tmp_path, "third").saved.ran == {"runs"}, "a reboot ends it, no other agent"
    third.server_answered()
    assert not made(tmp_path, "third").saved.awaits_server
    assert made(tmp_path, "third").saved.ran == set()
    assert not made(tmp_path, "fourth").saved.awaits_server
    note(tmp_path, "2 2")
    assert made(tmp_path, "fifth").saved.served_by_other_agent == {"a", "b"}


def test_upgraded_agent_writes_what_its_former_release_did_not_know(tmp_path):
    """A healthy node may write nothing else before the next kubelet."""
    rows = {"agent": "first", "settled": True, "rejected": [["a", "Evicted", "m"]]}
    files.save(checkpoint.path(str(tmp_path)), checkpoint.VERSION, rows)
    note(tmp_path, "1 1")
    upgraded = made(tmp_path, "first")
    assert (upgraded.saved.is_settled, upgraded.saved.awaits_server) == (True, False)
    upgraded._actor.after = lambda _, save: save()
    upgraded._actor.spawn = lambda write, _: run(write)
    upgraded.settled()
    note(tmp_path, "2 2")
    assert made(tmp_path, "second").saved.awaits_server


def test_a_start_is_over_once_it_has_settled(tmp_path):
    first = made(tmp_path, "first")
    first.save()
    assert not made(tmp_path, "first").saved.is_settled, "a kill in the wait for the server"
    first._actor.after = lambda _, save: save()
    first._actor.spawn = lambda write, _: run(write)
    first.settled()
    assert made(tmp_path, "first").saved.is_settled, "without any other change"
    assert not made(tmp_path, "second").saved.is_settled


def test_forgiven_rejections_outlive_a_kill(tmp_path):
    kept = made(tmp_path, "first")
    kept.saved.rejected_by_earlier_start["a"] = ("NodePorts", "m")
    kept.save()
    assert made(tmp_path, "first").saved.rejected_by_earlier_start == {"a": ("NodePorts", "m")}


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
    """A back-off that waits for nothing."""
    with pytest.raises(StopIteration):
        coroutine.send(None)


def test_a_loop_began_with_its_first_end():
    first = raised(None, 1000.0, 1001.0, DELAYS)
    second = raised(first, 1020.0, 1030.0, DELAYS)
    assert (first.since, second.since, from_plain(to_plain({("u", "c"): second}))) == (
        1000.0,
        1000.0,
        {("u", "c"): second},
    )
    assert raised(second, 5000.0, 5001.0, DELAYS).since == 5000.0, "a long run begins a new one"
    assert raised(None, 1000.0, 1001.0, DELAYS, "", Replaced("i", 900.0)).since == 900.0, "a kill had no back-off"
