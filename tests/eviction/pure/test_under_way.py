"""Evictions under way: the checkpoint's data, and when the next look may evict again."""

from typing import Any

import msgspec
import pytest

from actors.eviction.under_way import CLEANUP_S, Saved, Stage, Victim, ends, is_over, left_s, parse, stages
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
SAVED = Saved(conditions=("MemoryPressure",), boot_id="this", victims=(VICTIM,))


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
    assert parse(plain(SAVED), boot_id, NOW).victims == ()
    assert parse(plain(msgspec.structs.replace(SAVED, boot_id=boot_id)), boot_id + "x", NOW).victims == ()
    assert parse(plain(msgspec.structs.replace(SAVED, boot_id="")), "", NOW).victims == ()


def test_no_saved_deadline_is_later_than_a_new_one() -> None:
    far = msgspec.structs.replace(SAVED, victims=(msgspec.structs.replace(VICTIM, until=1e300),))
    assert parse(plain(far), "this", NOW).victims[0].until == NOW + CLEANUP_S


@pytest.mark.parametrize("data", [5, "x", {"victims": 5}, {"victims": [{}]}, {"conditions": [{}]}])
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
    ],
)
def test_stage_of_a_pod(stage: Any, released: bool, ready: bool, expected: Stage) -> None:
    pods = [PodWorkerState(uid="a", namespace="ns", name="a", stage="sync", deleted=False, static=False)]
    if stage is not None:
        pods.append(
            PodWorkerState(
                uid="b", namespace="ns", name="b", stage=stage, released=released, deleted=False, static=False
            )
        )
    assert stages(["b"], PodWorkerStates(pods=tuple(pods), sources_ready=ready)) == {"b": expected}


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
    assert is_over("b", second, first) is over
    assert ends(now or "unknown") is begun


def test_seconds_left_are_those_of_the_last_deadline() -> None:
    early = msgspec.structs.replace(VICTIM, until=NOW - 1)
    assert left_s([], NOW) == left_s([early], NOW) == 0
    assert left_s([VICTIM, early], NOW) == 5
