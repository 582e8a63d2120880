"""A worker's view of its pod is read again at once, as by the kubelet's relist on demand (PLEGOnDemandRelist)."""

from __future__ import annotations

from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from actors._base import Future
from actors._cri.errors import CriError
from actors._metrics import kubelet as metrics
from actors.pod_workers.model.view import PodView
from actors.pod_workers.steps.runtime_view import RuntimeView
from proto.cri import api_pb2 as pb
from proto.cri.labels import CONTAINER_NAME, POD_UID
from proto.v1 import ObjectMeta, Pod

UID = "uid-1"
STATES = {"running": pb.CONTAINER_RUNNING, "exited": pb.CONTAINER_EXITED}


class Runtime:
    """The containers of one pod by name, and the calls."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.calls: list[str] = []
        self.fails = False

    def list_pod_sandbox(self, wanted: pb.PodSandboxFilter) -> Future[Any]:
        assert dict(wanted.label_selector) == {POD_UID: UID}, "of this pod alone"
        return self._answer("ListPodSandbox", [])

    def list_containers(self, wanted: pb.ContainerFilter) -> Future[Any]:
        assert dict(wanted.label_selector) == {POD_UID: UID}
        found = [
            pb.Container(id=name, state=STATES[state], labels={CONTAINER_NAME: name, POD_UID: UID})
            for name, state in self.states.items()
        ]
        return self._answer("ListContainers", found)

    def container_status(self, identity: str, *, verbose: bool) -> Future[Any]:  # noqa: ARG002 - the client's signature
        labels = {CONTAINER_NAME: identity, POD_UID: UID}
        status = pb.ContainerStatus(id=identity, state=STATES[self.states[identity]], labels=labels)
        return self._answer(f"ContainerStatus {identity}", pb.ContainerStatusResponse(status=status))

    def _answer(self, call: str, value: Any) -> Future[Any]:
        self.calls.append(call)
        future: Future[Any] = Future()
        if self.fails:
            future.set_error(CriError.of("Unknown", "it is broken", call))
        else:
            future.set(value)
        return future


def complete(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that awaits nothing but complete futures."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration as ended:
        return ended.value


def spawn(coroutine: Coroutine[Any, Any, Any], _: str) -> Future[Any]:
    future: Future[Any] = Future()
    future.set(complete(coroutine))
    return future


def view_of(runtime: Runtime) -> RuntimeView:
    """Of a pod of which nothing was known. No message of pleg comes."""
    published = SimpleNamespace(watch=lambda _: None, unwatch=lambda *_: None)
    pod = Pod(metadata=ObjectMeta(name="p", namespace="ns", uid=UID))
    scope: Any = SimpleNamespace(context=SimpleNamespace(cri=runtime, published=published), pod=pod, spawn=spawn)
    return RuntimeView(scope, PodView(), is_new=True)


def observed() -> int:
    """Readings of a pod so far."""
    return sum(int(count) for numbers in metrics.POD_RELIST_SECONDS.samples.values() for count in numbers[:-1])


def states(view: PodView) -> dict[str, str]:
    return {one.name: one.state for one in view.containers}


def test_pod_is_read_again_at_once_when_it_is_asked_for() -> None:
    runtime, before = Runtime(), observed()
    view = view_of(runtime)
    runtime.states["c"] = "running"
    assert states(complete(view.current())) == {}, "nothing has asked for it"
    assert runtime.calls == []
    view.relist()
    assert states(complete(view.current())) == {"c": "running"}
    assert runtime.calls == ["ListPodSandbox", "ListContainers", "ContainerStatus c"]
    assert observed() == before + 1


def test_exit_that_is_told_costs_one_reading_of_its_container() -> None:
    runtime = Runtime()
    view = view_of(runtime)
    runtime.states |= {"a": "running", "b": "running"}
    view.relist()
    complete(view.current())
    runtime.states["a"], before = "exited", observed()
    runtime.calls.clear()
    view.mark_stale(("a",))
    assert states(complete(view.current())) == {"a": "exited", "b": "running"}
    assert runtime.calls == ["ContainerStatus a"]
    complete(view.current())
    assert observed() == before + 1, "there is no more to read"


def test_reading_that_fails_is_repeated_by_the_next_step() -> None:
    runtime, before = Runtime(), observed()
    view = view_of(runtime)
    runtime.states["c"], runtime.fails = "running", True
    view.relist()
    with pytest.raises(CriError, match="it is broken"):
        complete(view.current())
    runtime.fails = False
    assert states(complete(view.current())) == {"c": "running"}
    assert observed() == before + 2
