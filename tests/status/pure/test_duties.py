"""What is done at the API server next, and what it is known to have."""

from __future__ import annotations

from typing import Any

import pytest

from actors.status.api_view import ApiView, Seen, key_of, seen
from actors.status.duties import (
    CreateMirror,
    DeleteObject,
    Known,
    Order,
    WriteStatus,
    Written,
    mirror_duty,
    mirror_object,
    order_of,
    status_duty,
)
from actors.status.own_part import digest, own_part, same_part
from proto.v1 import ObjectMeta, Pod, PodCondition, PodStatus

HASH, MIRROR, SOURCE = "kubernetes.io/config.hash", "kubernetes.io/config.mirror", "kubernetes.io/config.source"
PHASES = ("Pending", "Running", "Succeeded", "Failed")
STAGES = ("sync", "terminating", "terminated", "released")


def pod(uid: str = "u", phase: str = "Running", name: str = "p", ready: str = "False", **meta: Any) -> Pod:
    conditions = (PodCondition(type="Ready", status=ready, last_transition_time="2026-01-01T00:00:01Z"),)
    return Pod(
        metadata=ObjectMeta(namespace="n", name=name, uid=uid, **meta),
        status=PodStatus(phase=phase, conditions=conditions),
    )


def static(version: str = "h1", phase: str = "Running") -> Pod:
    return pod("static", phase, annotations={HASH: version, SOURCE: "file"})


def mirror(version: str = "h1", uid: str = "m", phase: str = "Running", **meta: Any) -> Pod:
    return pod(uid, phase, annotations={HASH: version, MIRROR: version, SOURCE: "file"}, **meta)


def deleted(grace_s: int = 30, **meta: Any) -> dict[str, Any]:
    return {"deletion_timestamp": "2026-01-01T00:00:09Z", "deletion_grace_period_seconds": grace_s, **meta}


HALFWAY = deleted(0)
"""A deletion whose caller was killed before the server came to its second part."""
HELD = deleted(0, finalizers=("example.com/kept",))


def view(*pods: Pod) -> ApiView:
    made = ApiView()
    made.replace(pods)
    return made


# Statuses


def test_what_is_the_same_is_not_written_and_what_differs_is():
    known = Known(pod(), "sync")
    assert status_duty(known, seen(pod()), None, overwritten=True) is None
    duty = status_duty(known, seen(pod(phase="Pending")), None, overwritten=False)
    assert isinstance(duty, WriteStatus)
    assert duty.own.phase == "Running"


def test_what_the_server_drops_or_writes_otherwise_is_not_written_again():
    known = Known(pod(ready="True"), "sync")
    stored = pod(ready="weird")
    own = own_part(known.pod, "sync", stored.status)
    written = Written(digest(own), digest(same_part(stored.status, own)))
    assert status_duty(known, seen(stored), written, overwritten=True) is None
    assert isinstance(status_duty(known, seen(stored), None, overwritten=False), WriteStatus)


def test_what_somebody_has_overwritten_is_written_again_when_it_is_looked_for():
    known = Known(pod(ready="True"), "sync")
    own = own_part(known.pod, "sync", known.pod.status)
    written = Written(digest(own), digest(own))
    spoilt = seen(pod(ready="False"))
    assert status_duty(known, spoilt, written, overwritten=False) is None
    assert isinstance(status_duty(known, spoilt, written, overwritten=True), WriteStatus)
    changed = Known(pod(ready="Unknown"), "sync")
    assert isinstance(status_duty(changed, spoilt, written, overwritten=False), WriteStatus)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("marks", [{}, deleted(), HALFWAY, HELD])
def test_an_object_goes_when_its_end_is_on_record_and_nothing_is_left_here(stage, phase, marks):
    known = Known(pod(phase=phase, **marks), stage)
    duty = status_duty(known, seen(pod(phase=phase, **marks)), None, overwritten=False)
    gone = stage == "released" and phase in ("Succeeded", "Failed") and marks in (deleted(), HALFWAY)
    assert isinstance(duty, DeleteObject) is gone


def test_the_last_status_is_written_before_the_object_goes():
    known = Known(pod(phase="Succeeded", **deleted()), "released")
    there = seen(pod(phase="Running", **deleted()))
    assert isinstance(status_duty(known, there, None, overwritten=False), WriteStatus)
    after = seen(pod(phase="Succeeded", **deleted()))
    assert isinstance(status_duty(known, after, None, overwritten=False), DeleteObject)


# Mirror pods


def mirrored(known: Pod | None, *there: Pod, stage: Any = "sync", complete: bool = True) -> Any:
    duty = mirror_duty(Known(known, stage) if known is not None else None, "n/p", view(*there), complete=complete)
    match duty:
        case CreateMirror():
            return "create"
        case DeleteObject():
            return f"delete {duty.seen.uid}"
        case Seen():
            return f"status of {duty.uid}"
    return duty


@pytest.mark.parametrize(
    ("known", "there", "duty"),
    [
        (static(), (), "create"),
        (static(), (mirror(),), "status of m"),
        (static("h2"), (mirror("h1"),), "delete m"),
        (static(), (mirror(**deleted()),), "delete m"),
        (static(), (mirror(**HALFWAY),), "delete m"),
        (static(), (mirror(**HELD),), None),
        (static(), (mirror(**deleted()), mirror(uid="m2")), "status of m2"),
        (static(), (mirror(phase="Succeeded"),), "delete m"),
        (static(phase="Succeeded"), (mirror(phase="Succeeded"),), "status of m"),
        (static(), (pod("foreign"),), None),
        (static(), (pod("foreign"), mirror()), "status of m"),
        (static(), (pod("other", name="q"),), "create"),
        (None, (mirror(),), "delete m"),
        (None, (mirror(**HALFWAY),), "delete m"),
        (None, (mirror(**HELD),), None),
        (None, (), None),
        (None, (pod("foreign"),), None),
    ],
)
def test_a_static_pod_has_one_mirror_of_its_very_version(known, there, duty):
    assert mirrored(known, *there) == duty


@pytest.mark.parametrize("stage", ["terminating", "terminated", "released"])
def test_a_static_pod_that_ends_gets_no_new_mirror_and_keeps_the_one_it_has(stage):
    assert mirrored(static(), stage=stage) is None
    assert mirrored(static(), mirror(), stage=stage) == "status of m"
    assert mirrored(static("h2"), mirror("h1"), stage=stage) is None


def test_no_mirror_is_a_leftover_before_every_pod_is_known():
    assert mirrored(None, mirror(), complete=False) is None
    assert mirrored(static("h2"), mirror("h1"), complete=False) == "delete m"


def test_no_mirror_is_made_before_it_is_known_what_there_is():
    assert mirror_duty(Known(static(), "sync"), "n/p", ApiView(), complete=True) is None


def test_a_mirror_as_the_kubelet_makes_it():
    made = mirror_object(static("h1"), "vm", "node-uid")
    meta = made["metadata"]
    assert meta["annotations"] == {HASH: "h1", MIRROR: "h1", SOURCE: "file"}
    assert meta["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "vm", "uid": "node-uid", "controller": True}
    ]
    assert "uid" not in meta
    assert "status" not in made


# Order


@pytest.mark.parametrize(
    ("known", "stage", "there", "order"),
    [
        (pod(), "sync", pod(), Order.REST),
        (pod(ready="True"), "sync", pod(), Order.READINESS),
        (pod(), "sync", pod(ready="True"), Order.READINESS),
        (pod(ready="True"), "sync", None, Order.READINESS),
        (pod(phase="Failed"), "sync", pod(), Order.FINAL),
        (pod(), "terminated", pod(), Order.FINAL),
        (pod(), "terminating", pod(), Order.REST),
    ],
)
def test_ends_before_readiness_before_the_rest(known, stage, there, order):
    assert order_of(Known(known, stage), seen(there) if there is not None else None) == order
    assert order_of(None, None) == Order.REST


# The view


def versioned(version: str, phase: str = "Running", uid: str = "u") -> Pod:
    return pod(uid, phase, resource_version=version)


def test_the_newer_word_counts_whoever_says_it():
    known = view(versioned("7"))
    assert known.change([versioned("9", "Failed")]) == {"u", "n/p"}
    assert known.change([versioned("8")]) == set()
    assert known.change([versioned("9", "Failed")]) == set()
    assert known.pods["u"].phase == "Failed"
    assert known.replace([versioned("2")]) == {"u"}  # another etcd
    assert known.pods["u"].version == 2


def test_an_object_that_we_have_deleted_does_not_come_back():
    known = view(versioned("7"))
    known.deleted_by_us("u")
    assert known.change([versioned("8")]) == set()
    assert known.replace([versioned("8"), versioned("9", uid="v")]) == {"v"}
    assert set(known.pods) == {"v"}
    assert known.remove(["u", "v"]) == {"v", "n/p"}
    assert known.pods == {}


def test_mirrors_go_by_name_and_others_by_uid():
    assert key_of(seen(pod())) == "u"
    assert key_of(seen(mirror())) == "n/p"
    known = view(pod(), mirror())
    assert known.remove(["u"]) == {"u", "n/p"}
    assert known.replace([]) == {"n/p"}


def test_a_status_is_kept_whole():
    given = pod(ready="True")
    assert seen(given).status == given.status
