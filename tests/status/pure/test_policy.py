"""Settling a status: times kept, terminal phases kept, nothing else changed."""

import pytest
from msgspec.structs import replace

from actors.status.policy import MAX_POD_MESSAGE_BYTES, ordered, settled, timestamp
from proto.v1 import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStatus,
    ObjectMeta,
    Pod,
    PodCondition,
    PodStatus,
)

T1, T2, T3 = "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", "2026-01-01T00:00:03Z"


def status(ready: str = "True", phase: str = "Running", **more) -> PodStatus:
    return PodStatus(phase=phase, conditions=(PodCondition(type="Ready", status=ready),), **more)


def test_a_new_condition_gets_the_time_now():
    assert settled(status(), None, T1).conditions[0].last_transition_time == T1


def test_a_condition_keeps_its_time_while_its_status_stays():
    first = settled(status("False"), None, T1)
    again = settled(replace(status("False"), message="another message"), first, T2)
    assert again.conditions[0].last_transition_time == T1


def test_changed_condition_gets_the_time_of_its_change():
    first = settled(status("False"), None, T1)
    turned = settled(status("True"), first, T2)
    assert turned.conditions[0].last_transition_time == T2
    assert settled(status("False"), turned, T3).conditions[0].last_transition_time == T3


def test_new_condition_keeps_a_time_that_it_comes_with():
    given = PodStatus(conditions=(PodCondition(type="Gate", status="True", last_transition_time=T1),))
    assert settled(given, None, T3).conditions[0].last_transition_time == T1


def test_first_start_time_stays():
    first = settled(status(), None, T1)
    assert first.start_time == T1
    assert settled(status(start_time=T3), first, T2).start_time == T1
    assert settled(status(start_time=T2), None, T3).start_time == T2


@pytest.mark.parametrize("ended", ["Succeeded", "Failed"])
@pytest.mark.parametrize("later", ["Pending", "Running", "Succeeded", "Failed"])
def test_terminal_phase_stays_with_its_reason(ended, later):
    first = settled(status(phase=ended, reason="Evicted", message="no memory"), None, T1)
    after = settled(status(phase=later), first, T2)
    assert after.phase == ended
    assert later == ended or (after.reason, after.message) == ("Evicted", "no memory")


def test_settling_twice_changes_nothing():
    first = settled(status(), None, T1)
    assert settled(first, first, T2) == first
    assert settled(status(), first, T2) == first


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        (T1, T1),
        ("2026-01-01T00:00:01.123456789Z", T1),
        ("2026-01-01T01:00:01+01:00", T1),
        ("2026-01-01T00:00:01.5+00:00", T1),
        ("", None),
        (None, None),
        ("yesterday", "yesterday"),
        ("0001-01-01T00:00:00", "0001-01-01T00:00:00"),
        ("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00+14:00"),
    ],
)
def test_timestamps_are_utc_in_whole_seconds(given, normal):
    assert timestamp(given) == normal


def test_times_of_containers_are_normalised():
    running = ContainerState(running=ContainerStateRunning(started_at="2026-01-01T00:00:01.9Z"))
    ended = ContainerState(terminated=ContainerStateTerminated(started_at=T1, finished_at="2026-01-01T00:00:02.2Z"))
    one = ContainerStatus(name="c", state=running, last_state=ended)
    (kept,) = settled(PodStatus(container_statuses=(one,)), None, T3).container_statuses
    assert kept.state.running.started_at == T1
    assert (kept.last_state.terminated.started_at, kept.last_state.terminated.finished_at) == (T1, T2)


def test_termination_messages_share_twelve_kibibytes():
    ended = ContainerState(terminated=ContainerStateTerminated(message="ä" * 5000))
    both = tuple(ContainerStatus(name=name, state=ended) for name in "ab")
    kept = settled(PodStatus(container_statuses=both), None, T1).container_statuses
    sizes = [len(one.state.terminated.message.encode()) for one in kept]
    assert sizes == [MAX_POD_MESSAGE_BYTES // 2] * 2


def test_pods_are_ordered_by_namespace_and_name():
    names = [("b", "a"), ("a", "z"), ("a", "b")]
    pods = [Pod(metadata=ObjectMeta(namespace=namespace, name=name, uid=name)) for namespace, name in names]
    assert [(pod.metadata.namespace, pod.metadata.name) for pod in ordered(pods)] == sorted(names)
