"""Evictions under way: the checkpoint's data, and when the next look may evict again."""

from typing import Any

import msgspec
import pytest

from actors.eviction.under_way import (
    CLEANUP_S,
    Saved,
    Stage,
    Victim,
    has_begun,
    is_over,
    kill_wait_s,
    left_s,
    parse,
    stages,
    still_overdue,
    waited_for,
)
from proto.pods.pod_workers import PodWorkerState, PodWorkerStates
from proto.v1 import ObjectReference

NOW = 1000.0
VICTIM = Victim(
    uid="b",
    until=NOW + 5,
    signal="memory.available",
    involved=ObjectReference(kind="Pod", namespace="ns", name="p", uid="b"),
    message="The node was low on resource: memory.",
)
ENDING = msgspec.structs.replace(VICTIM, ending=True)
SAVED = Saved(conditions=("MemoryPressure",), boot_id="this", victims=(VICTIM,), overdue={"c": 1})


def worker(uid: str, stage: Any, *, released: bool = False) -> PodWorkerState:
    return PodWorkerState(
        uid=uid, namespace="ns", name=uid, stage=stage, released=released, deleted=False, static=False
    )


def plain(saved: Saved) -> Any:
    return msgspec.json.decode(msgspec.json.encode(saved))


def test_saved_evictions_are_read_back() -> None:
    assert parse(plain(SAVED), "this", NOW) == SAVED


def test_conditions_of_an_earlier_version_are_read() -> None:
    assert parse(["MemoryPressure", "DiskPressure", 5, {}], "this", NOW) == Saved(
        conditions=("MemoryPressure", "DiskPressure")
    )
    assert parse(None, "this", NOW) == Saved()


@pytest.mark.parametrize("boot_id", ["another", ""])
def test_evictions_of_another_boot_are_forgotten(boot_id: str) -> None:
    for saved, now in ((SAVED, boot_id), (msgspec.structs.replace(SAVED, boot_id=boot_id), boot_id + "x")):
        assert parse(plain(saved), now, NOW) == Saved(conditions=SAVED.conditions, boot_id=saved.boot_id)
    assert parse(plain(msgspec.structs.replace(SAVED, boot_id="")), "", NOW) == Saved(conditions=SAVED.conditions)


@pytest.mark.parametrize(
    ("grace_s", "killed", "longest_s"), [(0, False, 10), (1, False, 10), (120, False, 180), (120, True, CLEANUP_S)]
)
def test_no_saved_deadline_is_later_than_a_new_one(grace_s: int, killed: bool, longest_s: float) -> None:
    victim = msgspec.structs.replace(VICTIM, until=1e300, grace_period_s=grace_s, killed=killed)
    far = msgspec.structs.replace(SAVED, victims=(victim,))
    assert parse(plain(far), "this", NOW).victims[0].until == NOW + longest_s


@pytest.mark.parametrize(
    "data",
    [
        5,
        "x",
        {"victims": 5},
        {"victims": [{}]},
        {"conditions": [{}]},
        {"victims": [{**plain(SAVED)["victims"][0], "grace_period_s": 2**31}]},
        {"overdue": {"c": 2**31}},
    ],
)
def test_data_of_another_form_is_an_error(data: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        parse(data, "this", NOW)


@pytest.mark.parametrize(
    ("stage", "released", "ready", "expected"),
    [
        ("terminating", False, False, "terminating"),
        ("terminated", False, True, "terminated"),
        ("terminated", True, True, "released"),
        (None, False, True, "gone"),
        (None, False, False, "unknown"),
        ("waiting", False, True, "unknown"),
    ],
)
def test_stage_of_a_pod(stage: Any, released: bool, ready: bool, expected: Stage) -> None:
    pods = [worker("a", "sync")]
    waiting = ("b",) if stage == "waiting" else ()
    if stage is not None and not waiting:
        pods.append(worker("b", stage, released=released))
    answer = PodWorkerStates(pods=tuple(pods), sources_ready=ready, waiting=waiting)
    assert stages(["b"], answer) == {"b": expected}


@pytest.mark.parametrize(
    ("before", "now", "over", "begun"),
    [
        (None, "sync", False, False),
        ("sync", "sync", True, False),
        ("unknown", "sync", False, False),
        ("sync", "terminating", False, True),
        ("terminating", "terminating", False, True),
        ("terminating", "terminated", False, True),
        (None, "terminated", False, True),
        ("terminated", "terminated", False, True),
        ("terminated", "released", True, True),
        (None, "released", True, True),
        (None, "gone", True, False),
        (None, "unknown", False, False),
        ("sync", None, False, False),
    ],
)
def test_wait_for_a_pod(before: Stage | None, now: Stage | None, over: bool, begun: bool) -> None:
    first: dict[str, Stage] = {} if before is None else {"b": before}
    second: dict[str, Stage] = {} if now is None else {"b": now}
    assert is_over(VICTIM, second, first) is over
    assert has_begun(VICTIM, now or "unknown") is begun


@pytest.mark.parametrize(
    ("now", "told", "over"),
    [
        ("terminating", True, False),
        ("terminating", False, True),  # it may have ended so without the request, which is sent again
        ("terminated", False, False),
        ("unknown", False, False),
        ("released", False, True),
        ("gone", False, True),
    ],
)
def test_wait_for_a_pod_that_ended_before_the_request(now: Stage, told: bool, over: bool) -> None:
    assert is_over(msgspec.structs.replace(ENDING, told=told), {"b": now}, {}) is over
    assert not has_begun(ENDING, now)


def test_pod_is_overdue_until_it_has_ended() -> None:
    workers = [worker("a", "terminating"), worker("b", "terminated"), worker("c", "sync"), worker("d", "terminating")]
    answer = PodWorkerStates(pods=tuple(workers), sources_ready=True, waiting=("f",))
    assert still_overdue({"a": 1, "b": 1, "c": 1, "e": 1, "f": 1}, answer) == {"a": 1, "f": 1}
    starting = PodWorkerStates(pods=tuple(workers), sources_ready=False)
    assert still_overdue({"a": 1, "b": 1, "e": 1}, starting) == {"a": 1, "e": 1}


@pytest.mark.parametrize(("grace_s", "wait_s"), [(-1, 10), (0, 10), (1, 10), (7, 10), (20, 30), (21, 31), (120, 180)])
def test_wait_for_a_kill_follows_the_grace_period(grace_s: int, wait_s: float) -> None:
    assert kill_wait_s(grace_s) == wait_s


def seconds_of_wait(grace_s: int, *, ended_s: float, released_s: float = float("inf"), restart_s: float = -1) -> float:
    """The wait for a victim whose processes end after `ended_s`, and which is released after `released_s`.

    In virtual time, with a look each second. After `restart_s` the actor reads its checkpoint.
    """
    victim = msgspec.structs.replace(VICTIM, until=NOW + kill_wait_s(grace_s), grace_period_s=grace_s)
    for second in range(1, 10_000):
        now = NOW + second
        if second == restart_s:
            (victim,) = parse(plain(msgspec.structs.replace(SAVED, victims=(victim,))), "this", now).victims
        stage: Stage = "released" if second >= released_s else "terminated" if second >= ended_s else "terminating"
        left = waited_for(victim, stage, now)
        if left is None or is_over(victim, {victim.uid: stage}, {}):
            return second
        victim = left
    raise AssertionError("it is waited for without end")


@pytest.mark.parametrize("restart_s", [-1, 5, 100, 130])
def test_soft_eviction_waits_for_the_whole_grace_period(restart_s: float) -> None:
    assert seconds_of_wait(120, ended_s=119, released_s=140, restart_s=restart_s) == 140
    assert seconds_of_wait(120, ended_s=3, released_s=5, restart_s=restart_s) == 5


@pytest.mark.parametrize("restart_s", [-1, 5, 35, 185])
def test_clean_up_has_its_own_time_after_the_kill(restart_s: float) -> None:
    assert seconds_of_wait(120, ended_s=119, restart_s=restart_s) == 119 + CLEANUP_S
    assert seconds_of_wait(1, ended_s=3, restart_s=restart_s) == 3 + CLEANUP_S
    assert seconds_of_wait(120, ended_s=float("inf"), restart_s=restart_s) == 180 + CLEANUP_S
    assert seconds_of_wait(1, ended_s=float("inf"), restart_s=restart_s) == 10 + CLEANUP_S


def test_wait_that_ended_while_the_actor_was_down_stays_over() -> None:
    assert waited_for(VICTIM, "terminating", VICTIM.until + CLEANUP_S) is None
    late = waited_for(VICTIM, "terminating", VICTIM.until + 10)
    assert late is not None
    assert late.until == VICTIM.until + CLEANUP_S


def test_seconds_left_are_those_of_the_last_deadline() -> None:
    early = msgspec.structs.replace(VICTIM, until=NOW - 1)
    assert left_s([], NOW) == left_s([early], NOW) == 0
    assert left_s([VICTIM, early], NOW) == 5
