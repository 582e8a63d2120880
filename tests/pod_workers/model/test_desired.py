"""Wanted pods over all sources."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from actors.pod_workers.model.desired import Change, Desired
from proto.cri.labels import CONFIG_SEEN
from proto.pods.pod_workers import PodUpdate
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


def test_second_pod_of_a_uid_waits_until_the_first_is_removed():
    desired = Desired(("file", "http"))
    desired.apply(update("SET", pod("a")))
    assert desired.apply(update("SET", pod("a", "2"), pod("b"), source="http")) == Change(("b",), contested=("a",))
    assert desired.apply(update("SET", pod("a", "2"), pod("b"), source="http")) == Change()
    assert desired.apply(update("REMOVE", pod("a", "2"), source="http")) == Change()
    assert desired.pods["a"] == pod("a")
    assert desired.apply(update("ADD", pod("a", "3"), source="http")) == Change(contested=("a",))
    assert desired.apply(update("SET")) == Change(added=("a",), removed=("a",))
    assert (desired.pods["a"], desired.source_of["a"]) == (pod("a", "3"), "http")
    assert desired.apply(update("REMOVE", pod("a"), source="file")) == Change()
    assert desired.apply(update("SET", source="http")) == Change(removed=("a", "b"))


STEPS = st.tuples(
    st.sampled_from(["file", "http"]), st.sampled_from(["SET", "ADD", "REMOVE"]), st.sets(st.sampled_from("abc"))
)


@given(st.lists(STEPS))
def test_pods_of_two_sources_are_wanted_while_one_names_them(steps):
    desired = Desired(("file", "http"))
    named = {"file": set(), "http": set()}
    for source, op, uids in steps:
        known = named[source]
        named[source] = uids if op == "SET" else known | uids if op == "ADD" else known - uids
        desired.apply(update(op, *[pod(uid) for uid in sorted(uids)], source=source))
        assert desired.pods.keys() == named["file"] | named["http"]
        assert all(uid in named[desired.source_of[uid]] for uid in desired.pods)


@given(st.lists(st.tuples(st.sampled_from(["SET", "ADD", "UPDATE", "REMOVE"]), st.sets(st.sampled_from("abcd")))))
def test_a_repeated_update_changes_nothing(steps):
    desired = Desired()
    for op, uids in steps:
        message = update(op, *[pod(uid) for uid in sorted(uids)])
        desired.apply(message)
        assert desired.apply(message) == Change()


def test_checkpointed_pods_are_wanted_until_their_source_reports():
    desired = Desired(("file", "api"))
    desired.restore([pod("a"), pod("b"), pod("c")])
    assert desired.restored == {"a", "b", "c"}
    assert not desired.ready()
    assert desired.from_api("a")
    assert desired.apply(update("SET", pod("f"))) == Change(added=("f",))
    assert not desired.from_api("f")
    assert desired.apply(update("ADD", pod("c"), source="api")) == Change()
    assert desired.restored == {"a", "b"}
    assert desired.apply(update("SET", pod("a"), pod("c", "2"), source="api")) == Change((), ("c",), ("b",))
    assert desired.restored == set()
    assert desired.ready()


def test_a_pod_keeps_the_time_it_was_first_seen_at():
    def seen(time, label="1"):
        one = pod("a", label)
        return replace(one, metadata=replace(one.metadata, annotations={CONFIG_SEEN: time}))

    desired = Desired()
    desired.apply(update("ADD", seen("1")))
    assert desired.apply(update("SET", seen("2"))) == Change()
    assert desired.apply(update("UPDATE", seen("3", "new"))) == Change(updated=("a",))
    assert desired.pods["a"] == seen("1", "new")
    desired.apply(update("REMOVE", seen("1")))
    desired.apply(update("ADD", seen("4")))
    assert desired.pods["a"] == seen("4")


def test_no_pod_waits_for_a_remote_source() -> None:
    desired = Desired(("file", "http", "api"))
    assert not desired.local_seen()
    desired.apply(PodUpdate(source="file", op="SET", pods=()))
    assert desired.local_seen()
    assert not desired.ready()
