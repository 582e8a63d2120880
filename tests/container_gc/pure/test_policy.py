"""Selection of containers and sandboxes to remove: tables of the kubelet's rules, and properties."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from actors.container_gc import foreign, listing
from actors.container_gc.policy import (
    ContainerView,
    Limits,
    Pods,
    SandboxView,
    containers_to_remove,
    log_directory_uid,
    rule,
    sandboxes_to_remove,
    stale_links,
    symlink_container_id,
)
from proto.cri import api_pb2 as pb
from proto.pods.pod_workers import PodWorkerState, PodWorkerStates


def worker(uid: str, stage: Any = "sync", *, deleted: bool = False) -> PodWorkerState:
    return PodWorkerState(uid=uid, namespace="n", name="p", stage=stage, deleted=deleted, static=True)


OWN = frozenset({"p", "q", "r", "ghost"})
LIVE = Pods.of(PodWorkerStates(pods=(worker("p"), worker("q")), sources_ready=True), OWN)


def container(identity: str, attempt: int, uid: str = "p", name: str = "c", **more: Any) -> ContainerView:
    return ContainerView(
        identity, uid, name, attempt, more.pop("created", float(attempt)), "s", **{"state": "exited"} | more
    )


def ids(items: Any) -> list[str]:
    return [item.id for item in items]


@pytest.mark.parametrize(
    ("state", "ready", "gone", "ended"),
    [
        (None, False, False, False),
        (None, True, True, True),
        (worker("x"), True, False, False),
        (worker("x", "terminating", deleted=True), True, False, False),
        (worker("x", "terminated"), True, False, True),
        (worker("x", "terminated", deleted=True), True, True, True),
        (worker("x", "terminated", deleted=True), False, False, False),
    ],
)
def test_pods_that_are_gone_or_have_ended(state: PodWorkerState | None, ready: bool, gone: bool, ended: bool) -> None:
    pods = Pods({"x": state} if state else {}, ready, own={"x"})
    assert (pods.is_gone("x"), pods.has_ended("x")) == (gone, ended)
    assert not pods.is_foreign("x")


def test_pod_that_gets_a_worker_soon_is_not_gone() -> None:
    pods = Pods.of(PodWorkerStates(pods=(), sources_ready=True, waiting=("p",)), OWN)
    assert not pods.is_gone("p")
    assert not pods.has_ended("p")
    assert pods.is_gone("q")
    assert not pods.is_foreign("p")


@pytest.mark.parametrize(("ready", "ended_too"), [(False, False), (True, False), (True, True)])
def test_pod_without_worker_and_mark_is_foreign_and_untouched(ready: bool, ended_too: bool) -> None:
    pods = Pods({"p": worker("p")}, ready, own={"mine"})
    assert pods.is_foreign("theirs")
    assert not pods.is_gone("theirs")
    assert not pods.has_ended("theirs")
    lives = [container(str(number), number, uid="theirs") for number in range(5)]
    assert not containers_to_remove(lives, pods, Limits(0, 0, 0), 1000.0, ended_too=ended_too)
    sandboxes = [SandboxView(str(number), "theirs", number, float(number), ready=False) for number in range(3)]
    assert not sandboxes_to_remove(sandboxes, lambda _: False, pods, ended_too=ended_too)
    links = {f"p_ns_c-{'a' * 64}.log": "ns_p_theirs", f"p_ns_c-{'b' * 64}.log": "ns_p_mine"}
    assert stale_links(links, (), pods) == [f"p_ns_c-{'b' * 64}.log"]


def test_foreign_pods_do_not_count_for_the_limit_over_all() -> None:
    ours = [container(f"ours-{number}", number, name=str(number)) for number in range(2)]
    theirs = [container(f"theirs-{number}", number, uid="theirs", name=str(number)) for number in range(50)]
    assert containers_to_remove([*ours, *theirs], LIVE, Limits(0, 1, 2), 1000.0) == []


SEEN = {"directory": {"p"}, "logs": {"theirs", "p"}, "cgroup": {"theirs", "other"}, "runtime": set[str]()}


def test_foreign_pods_are_named_with_their_places() -> None:
    assert foreign.foreign_pods(SEEN, LIVE) == {"theirs": ("logs", "cgroup"), "other": ("cgroup",)}
    assert foreign.foreign_pods(SEEN, Pods({}, sources_ready=False)) == {}, "the sources have not answered"


def test_many_foreign_pods_are_one_line_of_the_log() -> None:
    line = foreign.foreign_line({f"uid-{number:04}\n": ("logs",) for number in range(1000)})
    assert "\n" not in line
    assert "and 995 more" in line
    assert "--take-over" in line
    assert len(line) < 700


THREE = [container("new", 2), container("old", 0), container("mid", 1)]


@pytest.mark.parametrize(
    ("limits", "containers", "expected"),
    [
        (Limits(), THREE, ["old", "mid"]),
        (Limits(max_per_pod_container=2), THREE, ["old"]),
        (Limits(max_per_pod_container=0), THREE, ["old", "mid", "new"]),
        (Limits(max_per_pod_container=-1), THREE, []),
        (Limits(min_age_s=99.0), THREE, ["old"]),  # the newest is too young to be counted
        (Limits(min_age_s=99.5), THREE, []),
        (Limits(), [*THREE, container("other", 0, name="d")], ["old", "mid"]),
        (Limits(), [container("a", 0, state="running"), container("b", 1, state="running")], []),
        (Limits(), [container("a", 0, state="unknown"), container("b", 1, state="created", created=-50.0)], ["a"]),
        # about to run: until it does, the one before keeps its log
        (Limits(), [container("a", 0), container("b", 1, state="created", created=99.0)], []),
        (Limits(), [*THREE, container("b", 3, state="created", created=99.0)], ["old", "mid"]),
        # the attempt counts, not the clock
        (Limits(), [container("a", 0, created=50.0), container("b", 1, created=1.0)], ["a"]),
        # of one attempt the clock decides
        (Limits(), [container("a", 0, created=2.0), container("b", 0, created=1.0)], ["b"]),
    ],
)
def test_limits_per_container_of_a_pod(limits: Limits, containers: list[ContainerView], expected: list[str]) -> None:
    assert ids(containers_to_remove(containers, LIVE, limits, 100.0)) == expected


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (-1, []),
        (6, []),
        (5, ["p0", "q0"]),  # an equal share each is two
        (4, ["p0", "q0"]),
        (2, ["p0", "q0", "p1", "q1"]),
        (0, None),
    ],
)
def test_limit_over_all(most: int, expected: list[str] | None) -> None:
    dead = [container(f"{uid}{n}", n, uid, created=n + (uid == "q") / 2) for n in range(3) for uid in "pq"]
    removed = ids(containers_to_remove(dead, LIVE, Limits(max_per_pod_container=-1, max_containers=most), 100.0))
    if expected is None:
        assert len(removed) == 6
    else:
        assert removed == expected


def test_limit_over_all_takes_the_oldest_not_the_first_attempt() -> None:
    dead = [container("old", 5, "p", created=1.0), container("new", 0, "q", created=50.0)]
    assert ids(containers_to_remove(dead, LIVE, Limits(max_containers=1), 100.0)) == ["old"]


def test_all_dead_containers_of_a_pod_that_is_gone() -> None:
    dead = [container("a", 0, "ghost"), container("b", 1, "ghost"), container("run", 2, "ghost", state="running")]
    assert ids(containers_to_remove(dead, LIVE, Limits(), 100.0)) == ["a", "b"]
    unready = Pods({}, sources_ready=False, own=OWN)
    assert ids(containers_to_remove(dead, unready, Limits(), 100.0)) == ["a"]


def test_reclaim_takes_ended_pods_and_keeps_the_last_of_others() -> None:
    pods = Pods({"p": worker("p", "terminated"), "q": worker("q")}, True)
    dead = [container("a", 0, "p"), container("b", 0, "q"), container("c", 1, "q")]
    assert ids(containers_to_remove(dead, pods, Limits(), 100.0)) == ["b"]
    assert ids(containers_to_remove(dead, pods, Limits(), 100.0, ended_too=True)) == ["a", "b"]


def evicted(uid: str, *, released: bool = True) -> PodWorkerState:
    return replace(worker(uid, "terminated"), evicted=True, released=released)


def test_evicted_pods_keep_nothing_once_their_end_is_reported() -> None:
    pods = Pods({"p": evicted("p"), "q": evicted("q", released=False), "r": worker("r", "terminated")}, True)
    dead = [container(uid, 0, uid) for uid in "pqr"]
    assert ids(containers_to_remove(dead, pods, Limits(), 100.0)) == ["p"]
    sandboxes = [sandbox(uid, 0, uid) for uid in "pqr"]
    assert ids(sandboxes_to_remove(sandboxes, lambda _: False, pods)) == ["p"]
    assert rule(dead[0], pods) == rule(sandboxes[0], pods) == "its pod was evicted"
    assert not pods.is_gone("p"), "its directory stays"
    assert not Pods(pods.states, sources_ready=False).has_no_use("p")


VIEWS = st.lists(
    st.builds(
        ContainerView,
        id=st.uuids().map(str),
        pod_uid=st.sampled_from("pqr"),
        name=st.sampled_from("cd"),
        attempt=st.integers(0, 5),
        created=st.floats(0, 100),
        sandbox_id=st.just("s"),
        state=st.sampled_from(["created", "running", "exited", "unknown"]),
    ),
    max_size=20,
    unique_by=lambda view: view.id,
)


@given(VIEWS, st.integers(-1, 3), st.integers(-1, 6), st.booleans())
def test_running_containers_stay_and_limits_hold(
    views: list[ContainerView], per: int, most: int, ended_too: bool
) -> None:
    removed = containers_to_remove(views, LIVE, Limits(0.0, per, most), 1000.0, ended_too=ended_too)
    assert len(ids(removed)) == len(set(ids(removed)))
    assert not [view for view in removed if view.state == "running"]
    left = [view for view in views if view not in removed and view.state != "running"]
    assert not [view for view in left if view.pod_uid == "r"], "pod r has no worker"
    for uid in "pq":
        for name in "cd":
            unit = [view for view in left if (view.pod_uid, view.name) == (uid, name)]
            assert per < 0 or len(unit) <= per
    assert most < 0 or len(left) <= most


def sandbox(identity: str, attempt: int, uid: str = "p", *, ready: bool = False) -> SandboxView:
    return SandboxView(identity, uid, attempt, float(attempt), ready)


@pytest.mark.parametrize(
    ("sandboxes", "holding", "expected"),
    [
        ([sandbox("a", 0)], set(), []),
        ([sandbox("a", 0), sandbox("b", 1)], set(), ["a"]),
        ([sandbox("a", 0), sandbox("b", 1, ready=True)], set(), ["a"]),
        ([sandbox("a", 0), sandbox("b", 1)], {"a"}, []),
        ([sandbox("a", 0, ready=True), sandbox("b", 1)], set(), []),
        ([sandbox("a", 0, "ghost"), sandbox("b", 1, "ghost")], set(), ["a", "b"]),
        ([sandbox("a", 0, "ghost", ready=True), sandbox("b", 1, "ghost")], {"b"}, []),
    ],
)
def test_sandboxes(sandboxes: list[SandboxView], holding: set[str], expected: list[str]) -> None:
    assert ids(sandboxes_to_remove(sandboxes, holding.__contains__, LIVE)) == expected


def test_names_of_log_directories_and_symlinks() -> None:
    assert log_directory_uid("ns_web-0_5a1ea0a8-649c") == "5a1ea0a8-649c"
    assert log_directory_uid("5a1ea0a8") == "5a1ea0a8"
    assert symlink_container_id(f"web-0_ns_main-{'a' * 64}.log") == "a" * 64
    assert symlink_container_id(f"{'x' * 251}.log") == ""
    assert symlink_container_id(f"web_ns_main-{'a' * 30}.log") == ""


def test_labels_that_lead_out_of_a_directory_are_ignored() -> None:
    good = {listing.POD_UID: "u", listing.POD_NAME: "p", listing.POD_NAMESPACE: "n", listing.CONTAINER_NAME: "c"}
    bad = [good | {name: text} for name in good for text in ("../..", "a/b", "..")]
    for labels in bad:
        assert listing.container_views([pb.Container(id="1", labels=labels)], "/l") == []
        assert listing.sandbox_views([pb.PodSandbox(id="1", labels=labels)]) == []
    counted = {listing.RESTART_COUNT: "3"}
    (one,) = listing.container_views([pb.Container(id="1", labels=good, annotations=counted)], "/l")
    assert one.log_path == "/l/n_p_u/c/3.log"
    many = {listing.RESTART_COUNT: "9" * 5000}
    (one,) = listing.container_views([pb.Container(id="1", labels=good, annotations=many)], "/l")
    assert one.log_path == ""
