"""Messages for status and the pod workers from the API server's lists and events."""

from __future__ import annotations

from typing import Any

import pytest

from actors.config.sources.api_policy import ApiView, BadPod, SeenVersion, decode, is_mirror, judge_list, view_of
from proto.v1 import Pod
from proto.v1.pod import NO_SPEC

SEEN = "2026-01-01T00:00:00.000000000Z"
MIRROR = {"kubernetes.io/config.mirror": "hash"}


def item(uid: str = "u", *, spec: Any = None, status: Any = None, **meta: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": uid, "namespace": "default", "uid": uid, "resourceVersion": "7", **meta},
        "spec": spec if spec is not None else {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
        "status": status if status is not None else {"phase": "Pending"},
    }


def pod(uid: str = "u", **parts: Any) -> Pod:
    found = decode(item(uid, **parts), SEEN)
    assert isinstance(found, Pod)
    return found


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ({"uid": "../../etc"}, "metadata.uid"),
        ({"uid": ""}, "metadata.uid"),
        ({"name": "../p"}, "metadata.name"),
        ({"namespace": "a/b"}, "metadata.namespace"),
        ({"spec": {"containers": [{"name": "../../c", "image": "i"}]}}, "spec.containers.name"),
        ({"spec": {"initContainers": [{"name": "a\nb"}], "containers": []}}, "spec.containers.name"),
        ({"spec": {"containers": [], "volumes": [{"name": "..", "emptyDir": {}}]}}, "spec.volumes.name"),
    ],
)
def test_pod_whose_names_leave_a_directory_is_refused(parts: dict[str, Any], field: str) -> None:
    one = item(spec=parts.get("spec"))
    one["metadata"] |= {key: value for key, value in parts.items() if key != "spec"}
    found = decode(one, SEEN)
    assert isinstance(found, BadPod)
    assert found.problem.startswith(f"{field}: ")


def condition(kind: str, status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status}


# Decoding


def test_decode_allows_unknown_fields_and_drops_managed_fields() -> None:
    found = decode(
        item(
            managedFields=[{"manager": "kubectl"}],
            annotations={"kubernetes.io/config.source": "file", "a": "b"},
            status={"phase": "Pending", "conditions": [condition("PodScheduled") | {"lastProbeTime": None}]},
        )
        | {"newer": 1},
        SEEN,
    )
    assert isinstance(found, Pod)
    assert found.metadata.managed_fields == ()
    assert found.metadata.resource_version == "7"
    assert found.metadata.annotations == {
        "a": "b",
        "kubernetes.io/config.source": "api",  # although the object has one
        "kubernetes.io/config.seen": SEEN,
    }
    assert (
        found.spec.containers[0].termination_message_path == "/dev/termination-log"
    )  # a server may leave defaults out


def test_object_that_is_no_pod_names_the_field() -> None:
    spec = {"containers": [{"name": "c", "image": 5}]}
    found = decode(item(spec=spec), SEEN)
    assert isinstance(found, BadPod)
    assert (found.uid, found.name, found.namespace) == ("u", "u", "default")
    assert found.problem.startswith("spec.containers[0].image: must be text")


@pytest.mark.parametrize("meta", ["x", ["x"], 5, True])
def test_object_whose_metadata_is_no_object_is_no_pod(meta: Any) -> None:
    found = decode(item() | {"metadata": meta}, SEEN)
    assert isinstance(found, BadPod)
    assert found.problem.startswith("metadata: must be a mapping")


def test_status_gets_all_but_the_spec() -> None:
    one = pod(annotations=MIRROR)
    assert is_mirror(one)
    assert not is_mirror(pod())
    assert view_of(one).spec == NO_SPEC
    assert (view_of(one).metadata, view_of(one).status) == (one.metadata, one.status)


# Events

FOREIGN = {"phase": "Running", "conditions": [condition("example.com/gate")]}
OWN = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [condition("Ready"), condition("PodScheduled")]}


@pytest.mark.parametrize(
    ("after", "op"),
    [
        ({"status": OWN}, None),
        ({"resourceVersion": "8"}, None),
        ({"managedFields": [{"manager": "m"}]}, None),
        ({"finalizers": ["example.com/f"]}, None),
        ({"status": FOREIGN}, "RECONCILE"),
        ({"status": {"phase": "Failed"}}, "RECONCILE"),
        ({"labels": {"a": "b"}}, "UPDATE"),
        ({"annotations": {"a": "b"}}, "UPDATE"),
        ({"spec": {"nodeName": "n", "containers": [{"name": "c", "image": "other"}]}}, "UPDATE"),
        (
            {"spec": {"nodeName": "n", "activeDeadlineSeconds": 5, "containers": [{"name": "c", "image": "i"}]}},
            "UPDATE",
        ),
        ({"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}, "DELETE"),
    ],
)
def test_pod_workers_get_only_the_changes_they_act_on(after: dict[str, Any], op: str | None) -> None:
    view = ApiView()
    assert [(one, len(pods)) for one, pods in view.changed("ADDED", pod()).updates] == [("ADD", 1)]
    change = view.changed("MODIFIED", pod(**after))
    assert change.shown == [pod(**after)]  # status hears of everything
    assert change.updates == ([] if op is None else [(op, (pod(**after),))])


def test_shorter_grace_period_and_deletion_are_updates() -> None:
    view = ApiView()
    view.changed("ADDED", pod())
    view.changed("MODIFIED", pod(deletionTimestamp="2026-01-01T00:10:00Z", deletionGracePeriodSeconds=600))
    shorter = pod(deletionTimestamp="2026-01-01T00:00:03Z", deletionGracePeriodSeconds=3)
    assert view.changed("MODIFIED", shorter).updates == [("DELETE", (shorter,))]
    change = view.changed("DELETED", shorter)
    assert (change.gone, change.updates) == (["u"], [("REMOVE", (shorter,))])
    assert view.changed("DELETED", shorter).updates == []


def test_mirror_pod_goes_to_status_and_is_never_run() -> None:
    view = ApiView()
    mirror = pod(annotations=MIRROR)
    assert (view.changed("ADDED", mirror).shown, view.changed("ADDED", mirror).updates) == ([mirror], [])
    assert view.shown() == [mirror]
    change = view.changed("DELETED", mirror)
    assert (change.gone, change.updates, view.shown()) == (["u"], [], [])


def test_bad_version_is_reported_once_and_last_good_one_stands() -> None:
    view, bad = ApiView(), BadPod("u", "u", "default", "wrong")
    view.changed("ADDED", pod())
    assert view.changed("MODIFIED", bad).bad == [bad]
    assert view.changed("MODIFIED", bad).bad == []
    change = view.replaced([bad], keep_missing=False)
    assert (change.bad, change.gone, change.updates, list(view.pods)) == ([], [], [], ["u"])
    assert view.changed("MODIFIED", pod(labels={"a": "b"})).updates[0][0] == "UPDATE"
    assert view.bad == {}
    view.changed("MODIFIED", bad)
    assert view.changed("DELETED", bad).gone == ["u"]
    assert view.bad == {}


# Lists


def test_list_becomes_the_changes_since_the_last_one() -> None:
    view = ApiView()
    for one in (pod("stays"), pod("goes"), pod("again"), pod("m", annotations=MIRROR)):
        view.changed("ADDED", one)
    found = [pod("stays", status=OWN), pod("new", name="again"), pod("n", annotations=MIRROR)]
    change = view.replaced(found, keep_missing=False)
    assert {(op, one.metadata.uid) for op, pods in change.updates for one in pods} == {
        ("REMOVE", "goes"), ("REMOVE", "again"), ("ADD", "new"),
    }  # fmt: skip
    assert change.updates[0][0] == "REMOVE"  # before another pod of its name comes
    assert set(change.gone) == {"goes", "again", "m"}
    assert {one.metadata.uid for one in change.shown} == {"stays", "new", "n"}
    assert view.replaced(found, keep_missing=False).updates == []


def test_pods_missing_after_time_travel_run_on_until_an_event() -> None:
    view = ApiView()
    for name in ("a", "b", "c"):
        view.changed("ADDED", pod(name))
    change = view.replaced([pod("a")], keep_missing=True)
    assert (change.updates, set(change.gone)) == ([], {"b", "c"})  # status is told that the server has them no more
    assert (view.missing, set(view.pods)) == ({"b", "c"}, {"a", "b", "c"})
    assert [one.metadata.uid for one in view.shown()] == ["a"]
    view.changed("ADDED", pod("b"))
    assert view.missing == {"c"}
    assert view.changed("DELETED", pod("c")).updates == [("REMOVE", (pod("c"),))]
    assert view.replaced([pod("a")], keep_missing=False).updates == [("REMOVE", (pod("b"),))]


@pytest.mark.parametrize(
    ("seen", "version", "from_etcd", "verdict", "after"),
    [
        (SeenVersion(), 0, False, "take", SeenVersion(0)),  # a version that is no number
        (SeenVersion(), 5, False, "take", SeenVersion(5)),
        (SeenVersion(5), 5, False, "take", SeenVersion(5)),
        (SeenVersion(5), 4, False, "ask_newest", SeenVersion(5)),  # perhaps a cache that lags behind
        (SeenVersion(5), 6, True, "take", SeenVersion(6)),  # the cache lagged
        (SeenVersion(5), 4, True, "keep_missing", SeenVersion(5, True)),
        (SeenVersion(5, True), 4, False, "keep_missing", SeenVersion(5, True)),
        # A higher version later proves nothing.
        (SeenVersion(5, True), 9, False, "keep_missing", SeenVersion(5, True)),
    ],
)
def test_list_of_a_server_gone_back_in_time_is_recognised(
    seen: SeenVersion, version: int, from_etcd: bool, verdict: str, after: SeenVersion
) -> None:
    assert judge_list(seen, version, from_etcd=from_etcd) == (verdict, after)
