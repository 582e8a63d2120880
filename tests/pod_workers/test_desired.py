"""Wanted pods over all sources."""

from hypothesis import given
from hypothesis import strategies as st

from actors.pod_workers.desired import Change, Desired
from proto.pod_workers import PodUpdate
from proto.v1 import ObjectMeta, Pod


def pod(uid, label="1"):
    return Pod(metadata=ObjectMeta(name=uid, namespace="d", uid=uid, labels={"v": label}))


def update(op, *pods, source="file"):
    return PodUpdate(source=source, op=op, pods=pods)


def test_set_replaces_what_its_source_had():
    desired = Desired()
    assert not desired.ready()
    assert desired.apply(update("SET", pod("a"), pod("b"))) == Change(added=("a", "b"))
    assert desired.ready()
    assert desired.apply(update("SET", pod("b", "2"), pod("c"))) == Change(("c",), ("b",), ("a",))


def test_a_set_of_one_source_leaves_the_others_alone():
    desired = Desired()
    desired.apply(update("SET", pod("a"), source="http"))
    assert desired.apply(update("SET", pod("b"))) == Change(added=("b",))
    assert set(desired.pods) == {"a", "b"}


@given(st.lists(st.tuples(st.sampled_from(["SET", "ADD", "UPDATE", "REMOVE"]), st.sets(st.sampled_from("abcd")))))
def test_a_repeated_update_changes_nothing(steps):
    desired = Desired()
    for op, uids in steps:
        message = update(op, *[pod(uid) for uid in sorted(uids)])
        desired.apply(message)
        assert desired.apply(message) == Change()
