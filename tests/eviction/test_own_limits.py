"""Pods above their own limits of storage: when they are looked for, and that they go."""

import pytest

from actors.eviction.actor import SPECS_AT_ONCE
from proto.agent.supervisor import Started
from proto.pods.pod_workers import ListPodWorkers
from tests.eviction.fake_node import FakeNode, pass_looks
from tests.harness import wait_for


def test_pods_above_their_limits_go_without_node_pressure(fake: FakeNode) -> None:
    for uid in ("small", "large"):
        fake.pod(uid, 0, limit="1Mi")
    fake.volumes = {"small": 1 << 20, "large": 2 << 20}
    wait_for(fake.evictions, 10, "an eviction")
    (request,) = fake.evictions()
    assert (request.pod_uid, request.reason, request.grace_period_s) == ("large", "Evicted", 1)
    assert request.message == 'Usage of EmptyDir volume "v" exceeds the limit "1Mi". '
    wait_for(lambda: fake.annotations() == [{}], 10, "its event, without annotations as the kubelet's")
    assert fake.pressure().conditions == ()
    fake.stage("large", "terminated", released=True)
    fake.pod("ends", 0, limit="1Mi", stage="terminating")
    fake.pod("deleted", 0, limit="1Mi", stage="terminating", deleted=True)
    fake.volumes |= {"ends": 2 << 20, "deleted": 2 << 20}
    wait_for(lambda: len(fake.evictions()) == 2, 10, "a pod that ends slowly has its limit, too")
    assert fake.evictions()[1].pod_uid == "ends"
    fake.stage("ends", "terminated", released=True)
    fake.volumes["small"] = 2 << 20
    wait_for(lambda: len(fake.evictions()) == 3, 10, "the other grows too")
    assert fake.evictions()[2].pod_uid == "small"


def test_specs_are_asked_for_once_and_few_at_a_time() -> None:
    fake = FakeNode()
    for number in range(SPECS_AT_ONCE + 5):
        fake.pod(f"{number}", 0, limit="1Mi" if number in (3, SPECS_AT_ONCE + 3) else "")
    fake.pod("new", 0, limit="1Mi")
    new = fake.pods.pop("new")
    with fake.actor as actor:
        wait_for(lambda: len(fake.order) >= 2, 10, "usages of the limited pods, measured twice")
        asked = [one for one in actor.peers["pod_workers"].of(ListPodWorkers) if one.with_pods]
        assert [len(one.uids) for one in asked] == [SPECS_AT_ONCE, 5]
        fake.volumes["new"] = 2 << 20
        fake.pods["new"] = new
        wait_for(fake.evictions, 10, "the pod that came later")
        assert fake.evictions()[0].pod_uid == "new"
        asked = [one for one in actor.peers["pod_workers"].of(ListPodWorkers) if one.with_pods]
        assert [one.uids for one in asked[2:]] == [("new",)]


def lists(fake: FakeNode) -> int:
    return len(fake.actor.peers["pod_workers"].of(ListPodWorkers))


def wait_until_quiet(fake: FakeNode) -> int:
    """Wait until looks do not ask for pods. Returns how often they have asked."""

    def quiet() -> int:
        asked = lists(fake)
        pass_looks(fake)
        return asked if lists(fake) == asked else 0

    return wait_for(quiet, 10, "it is sure that there are no other pods")


def test_without_limits_only_a_new_directory_makes_a_look_ask_for_pods() -> None:
    fake = FakeNode()
    fake.pod("unlimited", 0)
    with fake.actor:
        asked = wait_until_quiet(fake)
        (fake.directories / "new").mkdir()
        wait_for(lambda: lists(fake) >= asked + 3, 10, "it asks until the new pod has a worker")
        fake.pod("new", 0)
        (fake.directories / ".removed-1").mkdir()
        wait_until_quiet(fake)
        fake.pod("limited", 0, limit="1Mi")
        fake.volumes["limited"] = 2 << 20
        wait_for(fake.evictions, 10, "an eviction")


@pytest.mark.parametrize("sources_ready", [False, True])
def test_pods_that_begin_in_their_old_directories_are_found(*, sources_ready: bool) -> None:
    """Pod_workers has just started: it does not know them yet, or is still admitting them."""
    fake = FakeNode()
    fake.pod("limited", 0, limit="1Mi")
    fake.volumes["limited"] = 2 << 20
    pods, fake.pods, fake.sources_ready = fake.pods, {}, sources_ready
    with fake.actor:
        wait_for(lambda: lists(fake) > 2, 10, "it asks and asks")
        fake.sources_ready, fake.pods = True, pods
        wait_for(fake.evictions, 10, "an eviction")


def test_limits_are_known_after_an_incomplete_list() -> None:
    """And a complete list without the pod forgets them only with its directory."""
    fake = FakeNode()
    fake.pod("limited", 0, limit="1Mi")
    with fake.actor:
        wait_for(lambda: fake.order, 10, "it measures")
        asked = len(fake.actor.peers["pod_workers"].of(ListPodWorkers))
        pods, fake.pods, fake.sources_ready = fake.pods, {}, False
        pass_looks(fake)
        fake.sources_ready = True
        pass_looks(fake)
        fake.volumes["limited"] = 2 << 20
        fake.pods = pods
        wait_for(fake.evictions, 10, "an eviction")
        later = fake.actor.peers["pod_workers"].of(ListPodWorkers)[asked:]
        assert not any(one.with_pods for one in later)
        fake.pods = {}
        (fake.directories / "limited").rmdir()
        wait_until_quiet(fake)


def test_new_pod_workers_are_asked_until_they_name_each_directory() -> None:
    fake = FakeNode()
    fake.pod("unlimited", 0)
    with fake.actor:
        asked = wait_until_quiet(fake)
        pods, fake.pods = fake.pods, {}
        fake.actor.peers["pod_workers"].incarnation = 2
        fake.actor.publish(Started(name="pod_workers", incarnation=2))
        wait_for(lambda: lists(fake) > asked + 4, 10, "it asks at each look while a directory has no pod")
        fake.pods = pods
        wait_until_quiet(fake)
        asked = lists(fake)
        fake.actor.peers["pod_workers"].incarnation = 3
        fake.actor.publish(Started(name="pod_workers", incarnation=3))
        wait_for(lambda: lists(fake) > asked, 10, "it asks though each directory had a pod before")


def test_pod_that_comes_back_after_its_orphan_has_its_own_limit() -> None:
    """A static pod has the UID of its orphan, which has no spec. No actor listed the pods in between."""
    fake = FakeNode()
    fake.pod("back", 0)
    fake.stage("back", "terminating")
    with fake.actor:
        wait_until_quiet(fake)
        (fake.directories / "back").rmdir()
        fake.pod("back", 0, limit="1Mi")
        fake.volumes["back"] = 2 << 20
        wait_for(fake.evictions, 10, "an eviction")
