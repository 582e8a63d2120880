"""The pods of a source's files, and the changes since the last merge."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from actors.config.defaulting.defaults import default_pod
from actors.config.pods.static_pods import load, mark_seen, static_pod
from actors.config.policy import Changes, FileState, merge, next_state, resolve
from actors.config.validation.problems import ManifestError
from proto import v1
from proto.v1 import ObjectMeta, Pod, PodSpec, PodStatus


def pod(name: str, uid: str | None = None, **spec: Any) -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace="default", uid=uid or name), spec=PodSpec(**spec))


def annotated(name: str, key: str) -> Pod:
    one = pod(name)
    return replace(one, metadata=replace(one.metadata, annotations={key: "1"}))


BAD = ManifestError("/m/a", 1, "", "bad")


def test_bad_version_keeps_the_last_good_pod() -> None:
    good = next_state(None, pod("a"))
    assert good == FileState(pod("a"), None)
    assert next_state(good, BAD) == FileState(pod("a"), BAD)
    assert next_state(None, BAD) == FileState(None, BAD)
    assert next_state(next_state(good, BAD), pod("b")) == FileState(pod("b"), None)


def test_two_files_with_one_pod_the_last_by_name_wins() -> None:
    files = {
        "/m/b": FileState(pod("x", "2"), None),
        "/m/a": FileState(pod("x", "1"), None),
        "/m/c": FileState(pod("y"), None),
    }
    resolved = resolve(files)
    assert {one.metadata.uid for one in resolved.pods.values()} == {"2", "y"}
    assert list(resolved.errors) == ["/m/a"]
    assert "/m/b defines pod x_default, too" in resolved.errors["/m/a"].problem


def test_two_files_with_one_uid_the_last_by_name_wins() -> None:
    resolved = resolve({"/m/a": FileState(pod("x", "1"), None), "/m/b": FileState(pod("y", "1"), None)})
    assert list(resolved.pods) == ["y_default"]
    assert list(resolved.errors) == ["/m/a"]
    assert resolved.errors["/m/a"].field == "metadata.uid"
    assert "/m/b has a pod with the UID 1, too" in resolved.errors["/m/a"].problem


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ([], [pod("a")], Changes(added=(pod("a"),))),
        ([pod("a")], [], Changes(removed=(pod("a"),))),
        ([pod("a")], [pod("a")], Changes()),
        ([pod("a", "1")], [pod("a", "2")], Changes(added=(pod("a", "2"),), removed=(pod("a", "1"),))),
        ([pod("a")], [pod("a", hostname="h")], Changes(updated=(pod("a", hostname="h"),))),
        ([mark_seen(pod("a"), "file", "1")], [mark_seen(pod("a"), "file", "2")], Changes()),
        ([pod("a")], [annotated("a", "kubernetes.io/config.mirror")], Changes()),
        ([pod("a")], [annotated("a", "x")], Changes(updated=(annotated("a", "x"),))),
    ],
)
def test_merge_sorts_changes_by_kind(old: list[Pod], new: list[Pod], changes: Changes) -> None:
    assert merge(old, new) == changes
    assert bool(merge(old, new)) is (changes != Changes())


def test_pod_that_was_absent_in_between_is_removed_and_added() -> None:
    changes = merge([pod("a"), pod("b")], [pod("a"), pod("b")], {"a"})
    assert changes == Changes(added=(pod("a"),), removed=(pod("a"),))
    assert merge([], [pod("a")], {"a"}) == Changes(added=(pod("a"),))


def test_change_of_status_alone_is_reconciled() -> None:
    other = replace(pod("a"), status=PodStatus(phase="Running"))
    assert merge([pod("a")], [other]) == Changes(reconciled=(other,))


PODS = st.lists(
    st.builds(pod, st.sampled_from("abc"), st.sampled_from("123456")), unique_by=lambda one: one.metadata.uid
)


@given(PODS, PODS)
def test_changes_applied_to_old_give_new(old: list[Pod], new: list[Pod]) -> None:
    changes = merge(old, new)
    state = {one.metadata.uid: one for one in old}
    for one in changes.removed:
        del state[one.metadata.uid]
    for one in (*changes.added, *changes.updated, *changes.reconciled):
        state[one.metadata.uid] = one
    assert {uid: one.metadata.uid for uid, one in state.items()} == {one.metadata.uid: one.metadata.uid for one in new}
    assert not merge(new, new)


MANIFEST = b"{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}"


def test_static_pod_equals_the_kubelets() -> None:
    made = load("/m/a.yaml", MANIFEST, "node-1").pod
    assert (made.metadata.name, made.metadata.namespace) == ("web-node-1", "default")
    assert made.spec.node_name == "node-1"
    assert made.metadata.annotations == {"kubernetes.io/config.hash": made.metadata.uid}
    assert len(made.metadata.uid) == 32
    assert [v1.to_dict(one) for one in made.spec.tolerations] == [{"operator": "Exists", "effect": "NoExecute"}]
    assert made.status.phase == "Pending"


def test_uid_of_the_manifest_is_kept() -> None:
    made = load("/m/a.yaml", MANIFEST.replace(b"name: web", b"name: web, uid: mine"), "n").pod
    assert made.metadata.uid == made.metadata.annotations["kubernetes.io/config.hash"] == "mine"


def test_uid_depends_on_manifest_path_and_node() -> None:
    variants = [
        ("/a", MANIFEST, "n"),
        ("/b", MANIFEST, "n"),
        ("/a", MANIFEST, "m"),
        ("/a", MANIFEST.replace(b"web", b"w"), "n"),
    ]
    uids = [load(*variant).pod.metadata.uid for variant in variants]
    assert len(set(uids)) == 4
    assert load("/a", b"# comment\n" + MANIFEST, "n").pod.metadata.uid == uids[0]


def test_the_toleration_is_added_once() -> None:
    plain = default_pod(
        pod("a", tolerations=(v1.Toleration(operator="Exists", effect="NoExecute", toleration_seconds=1),))
    )
    (only,) = static_pod(plain, "/a", "n").spec.tolerations
    assert only.toleration_seconds is None
