"""Tables of the ends that a restarted actor goes on with."""

import pytest

from actors.pod_workers.model.end_record import (
    MAX_CAUSE,
    ContainerEnd,
    EndRecord,
    HookRecord,
    KillRecord,
    containers_from_plain,
    containers_to_plain,
    from_plain,
    kill_cause,
    kills_from_plain,
    kills_to_plain,
    remaining_grace_s,
    remaining_hook,
    to_plain,
)
from actors.pod_workers.shared.ends import Ends
from proto.v1 import ExecAction, LifecycleHandler
from proto.v1.containers.probe import SleepAction

EXEC = LifecycleHandler(exec=ExecAction(command=("drain",)))


@pytest.fixture
def writes():
    return []


@pytest.fixture
def ends(writes):
    return Ends({}, {}, lambda: writes.append(1))


@pytest.mark.parametrize(("now", "left"), [(0.0, 30), (0.5, 30), (29.9, 1), (30.0, 0), (99.0, 0)])
def test_remaining_grace(now, left):
    assert remaining_grace_s(EndRecord(30.0), now) == left


@pytest.mark.parametrize(
    ("hook", "handler", "left"),
    [
        (None, EXEC, EXEC),
        (HookRecord(100.0), EXEC, EXEC),
        (HookRecord(100.0, done=True), EXEC, None),
        (None, LifecycleHandler(sleep=SleepAction(seconds=60)), LifecycleHandler(sleep=SleepAction(seconds=60))),
        (
            HookRecord(100.0),
            LifecycleHandler(sleep=SleepAction(seconds=60)),
            LifecycleHandler(sleep=SleepAction(seconds=50)),
        ),
        (
            HookRecord(10.0),
            LifecycleHandler(sleep=SleepAction(seconds=60)),
            LifecycleHandler(sleep=SleepAction(seconds=0)),
        ),
        (HookRecord(100.0, done=True), LifecycleHandler(sleep=SleepAction(seconds=60)), None),
    ],
)
def test_remaining_hook(hook, handler, left):
    assert remaining_hook(handler, hook, 110.0) == left


def test_records_survive_the_checkpoint():
    records = {"u": EndRecord(5.0, {"c": HookRecord(1.0), "d": HookRecord(2.0, done=True)}), "v": EndRecord(7.0)}
    assert from_plain(to_plain(records)) == records


def test_earlier_deadline_stands(ends, writes):
    assert [ends.end_by("u", at) for at in (30.0, 40.0, 20.0, 25.0)] == [30.0, 30.0, 20.0, 20.0]
    assert len(writes) == 2


def test_shorter_deadline_keeps_the_hooks(ends):
    ends.end_by("u", 30.0)
    ends.hook_began("u", "c", 1.0)
    ends.end_by("u", 20.0)
    assert ends.hook("u", "c") == HookRecord(1.0)


def test_first_begin_of_a_hook_stands(ends):
    ends.end_by("u", 30.0)
    ends.hook_began("u", "c", 1.0)
    ends.hook_began("u", "c", 2.0)
    ends.hook_done("u", "c")
    assert ends.hook("u", "c") == HookRecord(1.0, done=True)


def test_hook_without_a_recorded_end_is_not_recorded(ends, writes):
    ends.hook_began("u", "c", 1.0)
    ends.hook_done("u", "c")
    assert (ends.records, writes) == ({}, [])


def test_ended_and_unknown_pods_are_forgotten(ends, writes):
    for uid in "uvw":
        ends.container_end_by(uid, f"{uid}1", 30.0)
        ends.end_by(uid, 30.0)
    ends.forget("u")
    ends.forget("u")
    ends.keep({"w", "x"})
    assert (list(ends.records), list(ends.containers), len(writes)) == (["w"], [("w", "w1")], 10)


def test_container_that_ends_alone_keeps_first_deadline_and_hook(ends):
    assert [ends.container_end_by("u", "c", at) for at in (30.0, 40.0, 20.0)] == [30.0, 30.0, 20.0]
    ends.hook_began("u", "c", 1.0)
    ends.hook_done("u", "c")
    assert ends.hook("u", "c") == HookRecord(1.0, done=True)
    assert containers_from_plain(containers_to_plain(ends.containers)) == ends.containers
    assert ends.containers == {("u", "c"): ContainerEnd(20.0, HookRecord(1.0, done=True))}


def test_end_of_the_pod_sets_the_deadline_of_a_container_and_knows_its_hook(ends):
    ends.container_end_by("u", "c", 5.0)
    ends.hook_began("u", "c", 1.0)
    ends.end_by("u", 30.0)
    assert ends.container_end_by("u", "c", 30.0) == 30.0
    assert ends.hook("u", "c") == HookRecord(1.0)


def test_pod_that_is_to_run_keeps_only_ends_of_its_containers(ends):
    ends.container_end_by("u", "c", 5.0)
    ends.container_end_by("u", "d", 5.0)
    ends.container_end_by("v", "e", 5.0)
    ends.begin("u", 30.0)
    ends.is_to_run("u")
    ends.keep_containers("u", {"d"})
    assert (ends.records, list(ends.containers)) == ({}, [("u", "d"), ("v", "e")])


def test_begun_end_keeps_an_earlier_deadline_and_the_hooks(ends):
    ends.begin("u", 30.0)
    ends.hook_began("u", "c", 1.0)
    for at in (20.0, 25.0):
        ends.begin("u", at)
    assert ends.end_by("u", 40.0) == 20.0
    assert ends.hook("u", "c") == HookRecord(1.0)


def test_cause_of_a_kill_is_that_of_one_instance(ends, writes):
    ends.killed("u", "a", "c1", "Liveness probe failed: broken")
    ends.killed("u", "a", "c1", "definition changed")
    assert ends.kill_cause("u", "a", "c1") == "Liveness probe failed: broken", "the first cause stands"
    assert (ends.kill_cause("u", "a", "c2"), ends.kill_cause("u", "b", "c1"), len(writes)) == ("", "", 1)
    assert kills_from_plain(kills_to_plain(ends.kills)) == ends.kills
    ends.killed("u", "a", "c2", "other")
    ends.killed("v", "a", "c3", "other")
    assert ends.kills["u", "a"] == KillRecord("c2", "other"), "no more than one for a container"
    ends.keep({"v"})
    assert list(ends.kills) == [("v", "a")]
    ends.forget("v")
    assert ends.kills == {}


def test_note_is_added_to_the_cause_of_that_instance_alone(ends, writes):
    ends.add_to_cause("u", "a", "c1", "throttled")
    assert ends.kills == {}
    ends.killed("u", "a", "c1", "Liveness probe failed: timeout")
    ends.add_to_cause("u", "a", "c1", "throttled")
    ends.add_to_cause("u", "a", "c0", "of another run")
    assert ends.kill_cause("u", "a", "c1") == "Liveness probe failed: timeout (throttled)"
    assert len(writes) == 2


@pytest.mark.parametrize("said", ["x" * 5000, "\u00e9" * 5000, "a\n\tb: "])
def test_cause_of_a_kill_is_one_short_line(said):
    note = "throttled in 4 of its 5 CPU periods"
    found = kill_cause(said, note)
    assert len(found.encode()) <= MAX_CAUSE + 3
    assert found.endswith(f" ({note})")
    assert "\n" not in found
    assert kill_cause("a\n\tb: ") == "a b"
