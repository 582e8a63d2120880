"""The next call for a pod, and the view of the API server's pods."""

from __future__ import annotations

from typing import Any

import pytest

from actors.status.api_view import ApiPod, ApiView, api_pod, key_of
from actors.status.status_patch import comparable, digest, node_status
from actors.status.sync_actions import (
    CreateMirror,
    DeleteObject,
    LocalPod,
    Priority,
    WriteStatus,
    WrittenDigests,
    mirror_action,
    mirror_object,
    priority_of,
    status_action,
)
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


def test_equal_status_is_not_written_and_different_one_is():
    known = LocalPod(pod(), "sync")
    assert status_action(known, api_pod(pod()), None, check_stored=True) is None
    action = status_action(known, api_pod(pod(phase="Pending")), None, check_stored=False)
    assert isinstance(action, WriteStatus)
    assert action.status.phase == "Running"


def test_field_that_the_server_changes_is_not_written_again():
    known = LocalPod(pod(ready="True"), "sync")
    stored = pod(ready="weird")
    own = node_status(known.pod, "sync", stored.status)
    written = WrittenDigests(digest(own), digest(comparable(stored.status, own)))
    assert status_action(known, api_pod(stored), written, check_stored=True) is None
    assert isinstance(status_action(known, api_pod(stored), None, check_stored=False), WriteStatus)


def test_overwritten_status_is_written_again_at_a_check():
    known = LocalPod(pod(ready="True"), "sync")
    own = node_status(known.pod, "sync", known.pod.status)
    written = WrittenDigests(digest(own), digest(own))
    spoilt = api_pod(pod(ready="False"))
    assert status_action(known, spoilt, written, check_stored=False) is None
    assert isinstance(status_action(known, spoilt, written, check_stored=True), WriteStatus)
    changed = LocalPod(pod(ready="Unknown"), "sync")
    assert isinstance(status_action(changed, spoilt, written, check_stored=False), WriteStatus)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("marks", [{}, deleted(), HALFWAY, HELD])
def test_object_is_deleted_once_ended_there_and_released_here(stage, phase, marks):
    known = LocalPod(pod(phase=phase, **marks), stage)
    action = status_action(known, api_pod(pod(phase=phase, **marks)), None, check_stored=False)
    gone = stage == "released" and phase in ("Succeeded", "Failed") and marks in (deleted(), HALFWAY)
    assert isinstance(action, DeleteObject) is gone


def test_last_status_is_written_before_the_deletion():
    known = LocalPod(pod(phase="Succeeded", **deleted()), "released")
    there = api_pod(pod(phase="Running", **deleted()))
    assert isinstance(status_action(known, there, None, check_stored=False), WriteStatus)
    after = api_pod(pod(phase="Succeeded", **deleted()))
    assert isinstance(status_action(known, after, None, check_stored=False), DeleteObject)


# Mirror pods


def mirrored(known: Pod | None, *there: Pod, stage: Any = "sync", complete: bool = True) -> Any:
    action = mirror_action(
        LocalPod(known, stage) if known is not None else None, "n/p", view(*there), complete=complete
    )
    match action:
        case CreateMirror():
            return "create"
        case DeleteObject():
            return f"delete {action.target.uid}"
        case ApiPod():
            return f"status of {action.uid}"
    return action


@pytest.mark.parametrize(
    ("known", "there", "action"),
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
def test_static_pod_has_one_mirror_of_its_version(known, there, action):
    assert mirrored(known, *there) == action


@pytest.mark.parametrize("stage", ["terminating", "terminated", "released"])
def test_ending_static_pod_keeps_its_mirror_and_gets_no_new_one(stage):
    assert mirrored(static(), stage=stage) is None
    assert mirrored(static(), mirror(), stage=stage) == "status of m"
    assert mirrored(static("h2"), mirror("h1"), stage=stage) is None


def test_no_mirror_is_a_leftover_before_all_pods_are_known():
    assert mirrored(None, mirror(), complete=False) is None
    assert mirrored(static("h2"), mirror("h1"), complete=False) == "delete m"


def test_no_mirror_is_created_before_the_view_is_complete():
    assert mirror_action(LocalPod(static(), "sync"), "n/p", ApiView(), complete=True) is None


def test_mirror_object_equals_the_kubelets():
    made = mirror_object(static("h1"), "vm", "node-uid")
    meta = made["metadata"]
    assert meta["annotations"] == {HASH: "h1", MIRROR: "h1", SOURCE: "file"}
    assert meta["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "vm", "uid": "node-uid", "controller": True}
    ]
    assert "uid" not in meta
    assert "status" not in made


# Priority


@pytest.mark.parametrize(
    ("known", "stage", "there", "priority"),
    [
        (pod(), "sync", pod(), Priority.REST),
        (pod(ready="True"), "sync", pod(), Priority.READINESS),
        (pod(), "sync", pod(ready="True"), Priority.READINESS),
        (pod(ready="True"), "sync", None, Priority.READINESS),
        (pod(phase="Failed"), "sync", pod(), Priority.FINAL),
        (pod(), "terminated", pod(), Priority.FINAL),
        (pod(), "terminating", pod(), Priority.REST),
    ],
)
def test_priority_is_end_then_readiness_then_rest(known, stage, there, priority):
    assert priority_of(LocalPod(known, stage), api_pod(there) if there is not None else None) == priority
    assert priority_of(None, None) == Priority.REST


# The view


def versioned(version: str, phase: str = "Running", uid: str = "u") -> Pod:
    return pod(uid, phase, resource_version=version)


def test_higher_resource_version_wins_in_the_view():
    known = view(versioned("7"))
    assert known.change([versioned("9", "Failed")]) == {"u", "n/p"}
    assert known.change([versioned("8")]) == set()
    assert known.change([versioned("9", "Failed")]) == set()
    assert known.pods["u"].phase == "Failed"
    assert known.replace([versioned("2")]) == {"u"}  # another etcd
    assert known.pods["u"].version == 2


def test_deleted_object_does_not_come_back_into_the_view():
    known = view(versioned("7"))
    known.deleted_by_us("u")
    assert known.change([versioned("8")]) == set()
    assert known.replace([versioned("8"), versioned("9", uid="v")]) == {"v"}
    assert set(known.pods) == {"v"}
    assert known.remove(["u", "v"]) == {"v", "n/p"}
    assert known.pods == {}


def test_key_of_mirror_is_its_name_and_of_others_the_uid():
    assert key_of(api_pod(pod())) == "u"
    assert key_of(api_pod(mirror())) == "n/p"
    known = view(pod(), mirror())
    assert known.remove(["u"]) == {"u", "n/p"}
    assert known.replace([]) == {"n/p"}


def test_view_keeps_the_whole_status():
    given = pod(ready="True")
    assert api_pod(given).status == given.status
