"""The choice of the next dedicated job of the volume helpers."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from actors.volume.helper.dedicated import EACH, MOST, SHARED, SHOWN, DedicatedJobs, owner_of
from actors.volume.reconcile.devices import batches
from actors.volume.steps import csi, volumes
from actors.volume.steps.codec import SetUp


def begun(jobs: DedicatedJobs[int]) -> list[tuple[str, int]]:
    found = []
    while (taken := jobs.take()) is not None:
        found.append(taken)
    return found


def filled(*owners: tuple[str, int]) -> DedicatedJobs[int]:
    jobs: DedicatedJobs[int] = DedicatedJobs()
    for owner, count in owners:
        for number in range(count):
            jobs.add(owner, number)
    return jobs


def test_hanging_owner_leaves_room_for_others() -> None:
    jobs = filled(("hangs", 300))
    assert begun(jobs) == [("hangs", number) for number in range(EACH)]
    jobs.add("good", 1)
    assert begun(jobs) == [("good", 1)]


def test_owner_without_a_job_under_way_begins_one_past_the_shared_bound() -> None:
    jobs = filled(*((f"hangs{number}", 300) for number in range(4)))
    assert Counter(owner for owner, _ in begun(jobs)) == {f"hangs{number}": SHARED // 4 for number in range(4)}
    jobs.add("good", 1)
    jobs.add("good", 2)
    assert begun(jobs) == [("good", 1)]
    jobs.ended("good")
    assert begun(jobs) == [("good", 2)]


def test_number_of_all_jobs_is_bounded_with_any_number_of_owners() -> None:
    jobs = filled(*((f"disk{number}", 2) for number in range(300)))
    first = begun(jobs)
    assert len({owner for owner, _ in first}) == len(first) == MOST
    assert jobs.describe()["queued"] == 600 - MOST
    assert len(jobs.describe()["owners"]) == SHOWN
    jobs.ended(first[0][0])
    ((owner, _),) = begun(jobs)
    assert owner == f"disk{MOST}", "the owner that has waited longest"


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=300))
def test_jobs_of_an_owner_begin_in_order_and_each_once(work: list[tuple[str, bool]]) -> None:
    jobs: DedicatedJobs[int] = DedicatedJobs()
    under_way: list[str] = []
    order: dict[str, list[int]] = {}
    for number, (owner, ends) in enumerate(work):
        if not ends:
            jobs.add(owner, number)
        elif owner in under_way:
            under_way.remove(owner)
            jobs.ended(owner)
        for begins, job in begun(jobs):
            under_way.append(begins)
            order.setdefault(begins, []).append(job)
        assert max(Counter(under_way).values(), default=0) <= EACH
        assert jobs.describe()["busy"] == len(under_way) <= MOST
    while under_way:
        jobs.ended(under_way.pop())
        for begins, job in begun(jobs):
            under_way.append(begins)
            order.setdefault(begins, []).append(job)
    assert jobs.describe() == {"busy": 0, "queued": 0, "owners": {}}
    wanted = {owner: [i for i, one in enumerate(work) if one == (owner, False)] for owner in "abcd"}
    assert order == {owner: numbers for owner, numbers in wanted.items() if numbers}


def test_withdrawn_jobs_do_not_begin() -> None:
    jobs = filled(("a", 4), ("b", 1))
    assert jobs.withdraw(lambda number: number % 2 == 1) == [0, 2, 0]
    assert begun(jobs) == [("a", 1), ("a", 3)]


def test_owner_is_what_may_keep_the_job_waiting() -> None:
    volume = csi.Volume("u", "pv", "csi.example.com", "h")
    mount = volumes.Mount("u", "kubernetes.io~nfs", "v", "[fd00::1]:/export", "nfs")
    assert owner_of((csi.CsiUnmount(volume, "/s"),)) == "driver csi.example.com"
    assert owner_of((csi.CsiUnstage(csi.Staged("d", "h"), "/s"),)) == "driver d"
    assert owner_of((csi.Describe(csi.DriverInfo("d", "/s", "1", "n")),)) == "driver d"
    assert owner_of((csi.Register("/s"),)) == "plugin /s"
    assert owner_of((volumes.EmptyDir("u", "k", "e"), mount)) == "server [fd00::1]"
    assert owner_of((volumes.Block("u", "k", "v", "/dev/sdx"),)) == "disk /dev/sdx"
    assert owner_of((volumes.Measure("u", 0.0),)) == "usage"


def test_each_server_and_disk_of_a_pod_has_a_batch_of_its_own() -> None:
    steps: dict[str, SetUp] = {
        "n1": volumes.Mount("u", "k", "n1", "one:/a", "nfs"),
        "e": volumes.EmptyDir("u", "k", "e"),
        "l1": volumes.Local("u", "k", "pv1", "/mnt/x"),
        "n2": volumes.Mount("u", "k", "n2", "two:/a", "nfs"),
        "n3": volumes.Mount("u", "k", "n3", "one:/b", "nfs"),
        "h": volumes.HostPath("h", "/x"),
        "l2": volumes.Local("u", "k", "pv2", "/mnt/x"),
        "b": volumes.Block("u", "k", "b", "/dev/sdx"),
    }
    assert [list(one) for one in batches(steps)] == [["e", "h"], ["n1", "n3"], ["l1"], ["n2"], ["l2"], ["b"]]
    assert batches({}) == []
