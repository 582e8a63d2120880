"""What the API server's lists and events mean for status and for the pod workers."""

from __future__ import annotations

from typing import Any

import pytest

from actors.config.sources.api_policy import ApiView, BadPod, Doubt, decoded, is_mirror, judged, view_of
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
    found = decoded(item(uid, **parts), SEEN)
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
def test_a_pod_whose_names_lead_out_of_a_directory_is_not_run(parts: dict[str, Any], field: str) -> None:
    one = item(spec=parts.get("spec"))
    one["metadata"] |= {key: value for key, value in parts.items() if key != "spec"}
    found = decoded(one, SEEN)
    assert isinstance(found, BadPod)
    assert found.problem.startswith(f"{field}: ")


def condition(kind: str, status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status}


# Decoding


def test_a_pod_is_taken_with_unknown_fields_nulls_and_without_what_the_server_keeps_for_itself() -> None:
    found = decoded(
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
        "kubernetes.io/config.source": "api",  # whatever the object says
        "kubernetes.io/config.seen": SEEN,
    }
    assert (
        found.spec.containers[0].termination_message_path == "/dev/termination-log"
    )  # a server may leave defaults out


def test_an_object_that_is_no_pod_says_where() -> None:
    spec = {"containers": [{"name": "c", "image": 5}]}
    found = decoded(item(spec=spec), SEEN)
    assert isinstance(found, BadPod)
    assert (found.uid, found.name, found.namespace) == ("u", "u", "default")
    assert found.problem.startswith("spec.containers[0].image: must be text")


def test_status_is_told_all_but_the_spec() -> None:
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
def test_a_change_is_told_to_the_pod_workers_if_it_is_their_business(after: dict[str, Any], op: str | None) -> None:
    view = ApiView()
    assert [(one, len(pods)) for one, pods in view.changed("ADDED", pod()).updates] == [("ADD", 1)]
    news = view.changed("MODIFIED", pod(**after))
    assert news.shown == [pod(**after)]  # status hears of everything
    assert news.updates == ([] if op is None else [(op, (pod(**after),))])


def test_a_shorter_grace_period_is_told_and_the_object_s_end_too() -> None:
    view = ApiView()
    view.changed("ADDED", pod())
    view.changed("MODIFIED", pod(deletionTimestamp="2026-01-01T00:10:00Z", deletionGracePeriodSeconds=600))
    shorter = pod(deletionTimestamp="2026-01-01T00:00:03Z", deletionGracePeriodSeconds=3)
    assert view.changed("MODIFIED", shorter).updates == [("DELETE", (shorter,))]
    news = view.changed("DELETED", shorter)
    assert (news.gone, news.updates) == (["u"], [("REMOVE", (shorter,))])
    assert view.changed("DELETED", shorter).updates == []


def test_a_mirror_pod_is_shown_to_status_and_never_run() -> None:
    view = ApiView()
    mirror = pod(annotations=MIRROR)
    assert (view.changed("ADDED", mirror).shown, view.changed("ADDED", mirror).updates) == ([mirror], [])
    assert view.shown() == [mirror]
    news = view.changed("DELETED", mirror)
    assert (news.gone, news.updates, view.shown()) == (["u"], [], [])


def test_a_bad_version_is_told_once_and_the_last_good_one_stands() -> None:
    view, bad = ApiView(), BadPod("u", "u", "default", "wrong")
    view.changed("ADDED", pod())
    assert view.changed("MODIFIED", bad).bad == [bad]
    assert view.changed("MODIFIED", bad).bad == []
    news = view.replaced([bad], keep_missing=False)
    assert (news.bad, news.gone, news.updates, list(view.pods)) == ([], [], [], ["u"])
    assert view.changed("MODIFIED", pod(labels={"a": "b"})).updates[0][0] == "UPDATE"
    assert view.bad == {}
    view.changed("MODIFIED", bad)
    assert view.changed("DELETED", bad).gone == ["u"]
    assert view.bad == {}


# Lists


def test_a_list_is_told_as_what_has_changed_since() -> None:
    view = ApiView()
    for one in (pod("stays"), pod("goes"), pod("again"), pod("m", annotations=MIRROR)):
        view.changed("ADDED", one)
    found = [pod("stays", status=OWN), pod("new", name="again"), pod("n", annotations=MIRROR)]
    news = view.replaced(found, keep_missing=False)
    assert {(op, one.metadata.uid) for op, pods in news.updates for one in pods} == {
        ("REMOVE", "goes"), ("REMOVE", "again"), ("ADD", "new"),
    }  # fmt: skip
    assert news.updates[0][0] == "REMOVE"  # before another pod of its name comes
    assert set(news.gone) == {"goes", "again", "m"}
    assert {one.metadata.uid for one in news.shown} == {"stays", "new", "n"}
    assert view.replaced(found, keep_missing=False).updates == []


def test_what_a_server_that_went_back_in_time_lacks_runs_on_until_it_says_something_of_it() -> None:
    view = ApiView()
    for name in ("a", "b", "c"):
        view.changed("ADDED", pod(name))
    news = view.replaced([pod("a")], keep_missing=True)
    assert (news.updates, set(news.gone)) == ([], {"b", "c"})  # status is told that the server has them no more
    assert (view.missing, set(view.pods)) == ({"b", "c"}, {"a", "b", "c"})
    assert [one.metadata.uid for one in view.shown()] == ["a"]
    view.changed("ADDED", pod("b"))
    assert view.missing == {"c"}
    assert view.changed("DELETED", pod("c")).updates == [("REMOVE", (pod("c"),))]
    assert view.replaced([pod("a")], keep_missing=False).updates == [("REMOVE", (pod("b"),))]


@pytest.mark.parametrize(
    ("doubt", "version", "newest", "verdict", "after"),
    [
        (Doubt(), 0, False, "take", Doubt(0)),  # a version that is no number
        (Doubt(), 5, False, "take", Doubt(5)),
        (Doubt(5), 5, False, "take", Doubt(5)),
        (Doubt(5), 4, False, "ask_newest", Doubt(5)),  # perhaps a cache that lags behind
        (Doubt(5), 6, True, "take", Doubt(6)),  # it was
        (Doubt(5), 4, True, "keep_missing", Doubt(5, True)),
        (Doubt(5, True), 4, False, "keep_missing", Doubt(5, True)),
        (Doubt(5, True), 9, False, "keep_missing", Doubt(5, True)),  # grown since, and no more to be believed
    ],
)
def test_lists_of_a_server_that_has_gone_back_are_found_out(
    doubt: Doubt, version: int, newest: bool, verdict: str, after: Doubt
) -> None:
    assert judged(doubt, version, newest=newest) == (verdict, after)
