"""Fields of the Node's status that come from the container runtime and the machine."""

from collections.abc import Coroutine
from typing import Any

import pytest

from actors._base.messaging.futures import Future
from actors._base.messaging.tasks import Task
from actors.node import node_info
from actors.node.runtime_status import NodeRuntime
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb

HANDLER = pb.RuntimeHandler(
    name="runc", features=pb.RuntimeHandlerFeatures(recursive_read_only_mounts=True, user_namespaces=True)
)


def answered(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set(value)
    return future


def result_of(coroutine: Coroutine[Any, None, Any]) -> Any:
    """Run a coroutine whose calls are answered already."""
    task: Task[Any] = Task(coroutine, "test", lambda one: one.step(), lambda *_: None, lambda _: None)
    task.step()
    return task.result(0)


class Runtime:
    """A runtime with one handler."""

    def version(self) -> Future[Any]:
        return answered(pb.VersionResponse(runtime_name="containerd", runtime_version="2.1"))

    def status(self) -> Future[Any]:
        features = pb.RuntimeFeatures(supplemental_groups_policy=True)
        return answered(pb.StatusResponse(runtime_handlers=[HANDLER], features=features))

    def list_images(self) -> Future[Any]:
        return answered([pb.Image(repo_tags=["busybox:1"], size=5)])


def test_features_of_the_runtime_are_in_the_status() -> None:
    runtime: Any = Runtime()
    found = result_of(NodeRuntime(runtime, Settings()).read())
    assert found.version == "containerd://2.1"
    assert found.status == {
        "images": [{"names": ["busybox:1"], "sizeBytes": 5}],
        "runtimeHandlers": [{"name": "runc", "features": {"recursiveReadOnlyMounts": True, "userNamespaces": True}}],
        "features": {"supplementalGroupsPolicy": True},
    }


@pytest.mark.parametrize(("swap_bytes", "written"), [(0, None), (1 << 30, {"capacity": 1 << 30})])
def test_swap_is_in_node_info_where_there_is_some(
    monkeypatch: pytest.MonkeyPatch, swap_bytes: int, written: dict[str, int] | None
) -> None:
    monkeypatch.setattr(node_info, "swap_capacity", lambda: swap_bytes)
    assert node_info.node_info("containerd://2.1").get("swap") == written
