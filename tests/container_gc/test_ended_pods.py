"""The directory and cgroup of an ended pod go at once, unless a worker still needs them."""

from pathlib import Path

import msgspec
import pytest

from actors._cgroup import fs
from actors._cgroup.hierarchy import hierarchy
from proto.agent.actor import Describe
from proto.node.container_gc import CollectGarbage
from proto.pods.pod_workers import ListPodWorkers
from tests.container_gc.node import NO_PASS, Node, everywhere, nowhere
from tests.harness import wait_for
from tests.image_gc.runtime import ListRuntime


@pytest.mark.needs("cgroups")
def test_pods_that_end_together_are_cleaned_up_in_one_pass(node: Node) -> None:
    uids = [f"u{number}" for number in range(50)]
    for uid in uids:
        node.leave(uid)
        node.worker(uid, "terminated", deleted=True)
    node.leave("live")
    node.worker("live")
    asked = len(node.actor.peers["pod_workers"].of(ListPodWorkers))
    for uid in uids:
        node.terminated(uid)
    wait_for(lambda: node.left()["pods"] == node.left()["cgroups"] == ["live"], 10, "all that ended is gone")
    state = node.actor.ask(Describe()).state
    assert 1 <= state["pod_passes"] <= 2
    requests = node.actor.peers["pod_workers"].of(ListPodWorkers)[asked:]
    assert len(requests) == state["pod_passes"]
    assert sorted(uid for request in requests for uid in request.uids) == sorted(uids), "it asks for no other pods"


@pytest.mark.needs("cgroups")
def test_ended_pods_directory_goes_at_once_and_its_logs_with_the_full_pass(node: Node) -> None:
    """Log shippers read the last lines until then."""
    node.leave("a")
    node.leave("b")
    node.worker("b")
    node.terminated("a")
    left = {"pods": ["b"], "cgroups": ["b"], "logs": ["a", "b"], "links": ["a", "b"]}
    wait_for(lambda: node.left()["pods"] == ["b"], 10, "it is gone, without a full pass")
    assert node.left() == left
    assert (node.links / f"p-a_ns_main-{'a' * 64}.log").read_text() == "x"
    assert node.actor.ask(Describe()).state["passes"] == 0
    node.actor.restart()
    node.actor.ask(CollectGarbage())
    assert node.left() == everywhere("b")


@pytest.mark.needs("cgroups")
def test_a_pod_that_came_back_meanwhile_is_left_alone(node: Node) -> None:
    node.leave("a")
    node.worker("a")  # a static pod keeps its UID
    node.terminated("a")
    wait_for(lambda: node.actor.ask(Describe()).state["pod_passes"] == 1, 10, "the pass")
    assert node.left() == everywhere("a")


@pytest.mark.needs("cgroups")
def test_full_pass_cleans_up_after_a_kill_before_the_pod_pass(tmp_path: Path, runtime: ListRuntime) -> None:
    node = Node(tmp_path, runtime.endpoint, prelude=NO_PASS)
    try:
        with node.actor:
            node.leave("a")
            node.terminated("a")
            node.actor.ask(Describe())  # it has been told
            node.actor.restart()
            assert node.left() == everywhere("a")
            node.actor.ask(CollectGarbage())
            assert node.left() == nowhere()
    finally:
        assert fs.remove(node.cgroup_root, hierarchy())


@pytest.mark.needs("cgroups")
def test_directory_stays_while_a_worker_needs_it(node: Node) -> None:
    node.leave("ending")
    node.worker("ending", "terminated", deleted=True)
    node.workers["ending"] = msgspec.structs.replace(node.workers["ending"], released=False)
    node.terminated("ending")
    node.actor.ask(CollectGarbage())
    assert node.left()["pods"] == ["ending"], "it may have the IDs of a process that runs"
    del node.workers["ending"]
    node.terminated("ending")
    wait_for(lambda: not node.left()["pods"], 10, "its directory is gone")
