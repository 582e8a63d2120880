"""The strategies Cache and Get: what is read again, and which pods hear of it."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

import pytest

from actors._kube.errors import ApiError
from actors.objects.api.polling import Polling
from actors.objects.policy import Users
from proto.pods.objects import ApiObject, ObjectRef, PodObjects

T = TypeVar("T")
TTL_S = {"Cache": 60.0, "Get": 0.0}


def ref(name: str) -> ObjectRef:
    return ObjectRef(kind="Secret", namespace="ns", name=name)


class Slow:
    """Makes a read wait for a step of the test."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Server:
    """A stand-in for the API server, with what one node's cache of it does."""

    def __init__(self, strategy: str = "Cache") -> None:
        self.versions: dict[str, str] = {}
        self.is_immutable = self.is_slow = self.is_away = False
        self.reads: list[str] = []
        self.changed: list[str] = []
        self.users = Users()
        # Only `start` needs the actor.
        self.polling = Polling(None, self._read, self._hear, lambda: TTL_S[strategy], 60.0)  # type: ignore[arg-type]

    async def _read(self, one: ObjectRef) -> ApiObject | None:
        self.reads.append(one.name)
        if self.is_away:
            raise ApiError(0, "Unreachable", "the server is away")
        version = self.versions.get(one.name)
        if self.is_slow:
            await Slow()
        return ApiObject(ref=one, resource_version=version, immutable=self.is_immutable) if version else None

    def _hear(self, refs: tuple[ObjectRef, ...]) -> None:
        self.changed += [one.name for one in refs]

    def pod(self, uid: str, *names: str) -> None:
        new = self.users.set([PodObjects(pod_uid=uid, refs=tuple(ref(name) for name in names))], full=False)
        self.polling.use(self.users.refs())
        self.polling.expire(new)

    def get(self, *names: str) -> list[str]:
        """The versions, or none."""
        found = [run(self.polling.get(ref(name))) for name in names]
        return [one.resource_version if one is not None else "none" for one in found]

    def reads_of(self, *names: str) -> list[str]:
        self.reads.clear()
        self.get(*names)
        return self.reads


def run(coroutine: Coroutine[Any, None, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it waits")


def test_objects_are_read_again_for_each_new_pod() -> None:
    server = Server()
    server.versions = dict.fromkeys(("s1", "s2", "s3", "s10", "s20"), "1")
    server.pod("first", "s1", "s10", "s2")
    assert server.reads_of("s1", "s10", "s2") == ["s1", "s10", "s2"]
    server.pod("first", "s1", "s2", "s20", "s3")
    assert server.reads_of("s1", "s2", "s20", "s3") == ["s20", "s3"]
    server.pod("second", "s1", "s10", "s2")
    assert server.reads_of("s1", "s10", "s2", "s20", "s3") == ["s1", "s10", "s2"]
    assert server.reads_of("s1", "s10", "s2", "s20", "s3") == []


def test_older_pods_hear_of_what_a_new_pod_reads() -> None:
    server = Server()
    server.versions = {"s1": "old", "s2": "same"}
    server.pod("first", "s1", "s2")
    server.get("s1", "s2")
    server.versions["s1"] = "new"
    server.pod("second", "s1", "s2")
    assert server.get("s1", "s2") == ["new", "same"]
    assert server.changed == ["s1"]


def test_new_pod_gets_nothing_that_was_asked_for_before_it() -> None:
    server = Server()
    server.versions["s"] = "old"
    server.pod("first", "s")
    server.is_slow = True
    asked = server.polling.get(ref("s"))
    asked.send(None)
    server.is_slow = False
    server.versions["s"] = "new"
    server.pod("second", "s")
    with pytest.raises(StopIteration):
        asked.send(None)  # the answer comes after the new pod
    assert server.get("s") == ["new"]
    assert server.changed == ["s"]


@pytest.mark.parametrize("known", [True, False])
def test_late_answer_does_not_bring_back_what_a_later_request_replaced(known: bool) -> None:
    server = Server()
    server.versions["s"] = "old"
    server.pod("first", "s")
    if known:
        server.get("s")
        server.pod("second", "s")
    server.is_slow = True
    asked = server.polling.get(ref("s"))
    asked.send(None)
    server.is_slow = False
    server.versions["s"] = "new"
    assert server.get("s") == ["new"]
    with pytest.raises(StopIteration) as end:
        asked.send(None)
    assert end.value.value.resource_version == "new", "it would hear of no change"
    assert server.get("s") == ["new"]
    assert server.changed == ["s"] * known


def test_only_pods_that_had_the_object_get_it_without_a_server() -> None:
    server = Server()
    server.versions["s"] = "old"
    server.pod("first", "s")
    server.get("s")
    run(server.polling._read_due())
    server.is_away = True
    assert server.get("s") == ["old"]
    server.pod("second", "s")
    with pytest.raises(ApiError):
        server.get("s")


@pytest.mark.parametrize("strategy", TTL_S)
def test_missing_object_is_found_once_it_is_created(strategy: str) -> None:
    server = Server(strategy)
    server.pod("first", "late")
    assert server.get("late") == ["none"]
    server.versions["late"] = "1"
    assert server.get("late") == ["1"]
    assert server.changed == ["late"]


@pytest.mark.parametrize("strategy", TTL_S)
def test_immutable_object_that_was_made_anew_is_read(strategy: str) -> None:
    server = Server(strategy)
    server.is_immutable = True
    server.versions["s"] = "old"
    server.pod("first", "s")
    assert server.get("s") == ["old"]
    server.versions["s"] = "new"
    server.pod("second", "s")
    run(server.polling._read_due())
    assert server.changed == ["s"]
    assert server.get("s") == ["new"]
