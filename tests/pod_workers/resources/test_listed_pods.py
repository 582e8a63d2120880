"""pod_workers tells resources the pods for the pod resources API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actors.pod_workers.model.desired import Desired
from actors.pod_workers.resources.listed_pods import ListedPods
from proto.pods.pod_workers import PodUpdate
from proto.resources.resources import ListedPod, SetListedPods
from proto.v1 import Pod
from proto.v1.codec import from_dict


class World:
    """The peer; `told` has its messages since the last look."""

    def __init__(self, *sources: str) -> None:
        self.told: list[SetListedPods] = []
        self.desired = Desired(sources=sources)
        self.later: list[Callable[[], None]] = []
        """Calls that wait in the mailbox."""
        self.listed = ListedPods(self, self.desired, self.later.append)

    def tell(self, message: SetListedPods) -> None:
        self.told.append(message)

    def want(self, source: str, *pods: Pod, op: Any = "SET") -> None:
        change = self.desired.apply(PodUpdate(source=source, op=op, pods=pods))
        self.listed.changed((*change.added, *change.removed))
        self.listed.reconciled()

    def news(self) -> list[SetListedPods]:
        while self.later:
            self.later.pop(0)()
        told, self.told = self.told, []
        return told


def pod(uid: str) -> Pod:
    containers = {
        "initContainers": [{"name": "once"}, {"name": "side", "restartPolicy": "Always"}],
        "containers": [{"name": "a"}, {"name": "b"}],
        "ephemeralContainers": [{"name": "debug"}],
    }
    return from_dict(Pod, {"metadata": {"name": uid, "namespace": "ns", "uid": uid}, "spec": containers})


def entry(uid: str, *, active: bool = False) -> ListedPod:
    return ListedPod(uid=uid, namespace="ns", name=uid, containers=("a", "b"), sidecars=("side",), active=active)


def test_the_whole_list_is_told_once_every_source_but_the_api_server_is_known() -> None:
    world = World("file", "http", "api")
    world.want("file", pod("u"))
    assert world.news() == [SetListedPods(pods=(entry("u"),))]
    world.want("http")
    assert world.news() == [SetListedPods(pods=(entry("u"),), full=True)]
    world.want("file", pod("u"), pod("v"))
    assert world.news() == [SetListedPods(pods=(entry("v"),))]


def test_a_pod_is_active_from_its_start_to_the_end_of_its_processes() -> None:
    world = World("file")
    world.want("file", pod("u"))
    world.news()
    world.listed.started("u")
    world.listed.started("u")
    assert world.news() == [SetListedPods(pods=(entry("u", active=True),))]
    world.listed.ended("u")
    world.listed.ended("u")
    assert world.news() == [SetListedPods(pods=(entry("u"),))]


def test_changes_of_one_moment_are_told_together() -> None:
    world = World("file")
    world.want("file", pod("u"), pod("v"))
    world.news()
    world.listed.ended("v")
    world.listed.started("u")
    world.want("file", pod("u"))
    assert world.news() == [SetListedPods(pods=(entry("u", active=True),), gone=("v",))]
    world.listed.ended("u")
    world.listed.started("u")
    assert world.news() == []


def test_a_removed_pod_is_not_listed_while_it_ends() -> None:
    world = World("file")
    world.want("file", pod("u"))
    world.listed.started("u")
    world.news()
    world.want("file")
    assert world.news() == [SetListedPods(gone=("u",))]
    world.listed.ended("u")
    assert world.news() == []


def test_a_new_resources_process_gets_the_whole_list() -> None:
    world = World("file", "http")
    world.listed.resend()
    assert world.news() == []
    world.want("http")
    world.want("file", pod("u"))
    world.listed.started("u")
    world.news()
    world.listed.resend()
    assert world.news() == [SetListedPods(pods=(entry("u", active=True),), full=True)]
