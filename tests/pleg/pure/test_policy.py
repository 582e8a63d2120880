import pytest

from actors._metrics import kubelet as metrics
from actors.pleg import listing
from actors.pleg.policy import Entry, changes, is_another
from proto.cri import api_pb2 as pb
from proto.cri.labels import POD_UID

A, B = "a" * 64, "b" * 64
RUN, END, NEW = Entry("pod", "running"), Entry("pod", "ended"), Entry("pod", "other")


@pytest.mark.parametrize(
    ("name", "before", "now", "watched", "told", "is_change"),
    [
        ("the first list shows a running one nobody watches", None, RUN, False, False, True),
        ("the first list shows a running one that is watched", None, RUN, True, False, False),
        ("the first list shows a dead one", None, END, False, False, False),
        ("the first list shows a dead one that is watched", None, END, True, False, True),
        ("the first list lacks a watched one", None, None, True, False, True),
        ("nothing changed", RUN, RUN, True, False, False),
        ("nothing changed, and nobody watches", RUN, RUN, False, False, False),
        ("it runs, unknown before", ..., RUN, False, False, True),
        ("it runs, and the pod workers know", ..., RUN, True, False, False),
        ("it was started by somebody", NEW, RUN, False, False, True),
        ("it is being made", ..., NEW, False, False, False),
        ("it ended unseen", RUN, END, True, False, True),
        ("it ended unseen and unwatched", RUN, END, False, False, True),
        ("it ended and the pidfd told", RUN, END, False, True, False),
        ("it was made and ended between the lists", ..., END, False, False, True),
        ("it stays dead", END, END, False, False, False),
        ("it vanished while it ran", RUN, None, True, False, True),
        ("it vanished, and its end was told", RUN, None, False, True, False),
        ("a dead one was removed", END, None, False, False, True),
        ("it ended while the list was on its way", RUN, RUN, False, True, False),
    ],
)
def test_list_reports_only_unreported_changes(name, before, now, watched, told, is_change) -> None:
    first = before is None
    old = {} if before in (None, ...) else {A: before}
    found = changes(
        None if first else old, {A: now} if now else {}, {A: "pod"} if watched else {}, {A} if told else set()
    )
    assert (found.pod_uids == {"pod"}) is is_change, name


def test_reported_end_is_not_reported_by_the_next_list() -> None:
    first = changes({A: RUN, B: RUN}, {A: END}, {A: "pod", B: "pod"}, set())
    assert first.ended == {A, B}
    again = changes({A: END}, {A: END}, {A: "pod", B: "pod"}, first.ended)
    assert not again.pod_uids


@pytest.mark.parametrize(
    ("cgroup", "own", "expected"),
    [
        (f"5:memory:/kubepods/pod1/{A}\n", "", False),
        (f"0::/kubepods.slice/cri-containerd-{A}.scope\n", "", False),
        (f"5:memory:/kubepods/pod1/{B}\n", "", True),
        ("0::/system.slice/ssh.service\n", "", True),
        ("0::/\n1:name=systemd:/\n", "", False),
        ("", "", False),
        (f"0::/docker/{B}/kubepods/{A}\n", f"0::/docker/{B}\n", False),
        (f"0::/docker/{B}\n", f"0::/docker/{B}\n", False),
        (f"0::/docker/{B}/kubepods/{'c' * 64}\n", f"0::/docker/{B}\n", True),
    ],
)
def test_pid_is_reused_only_if_its_cgroup_names_another_owner(cgroup: str, own: str, expected: bool) -> None:
    assert is_another(cgroup, A, own) is expected


def test_states_of_a_newer_runtime_count_as_unknown() -> None:
    states = (pb.CONTAINER_RUNNING, pb.CONTAINER_UNKNOWN, 7)
    containers = [pb.Container(id=str(state), state=state, labels={POD_UID: "u"}) for state in states]
    listing.set_gauges([], containers)
    assert metrics.RUNNING_CONTAINERS.take() == {("running",): (1.0,), ("unknown",): (2.0,)}
    assert [one.state for one in listing.snapshot([], containers).values()] == ["running", "other", "other"]
