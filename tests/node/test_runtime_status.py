"""Fields of the Node's status that come from the container runtime and the machine."""

import itertools
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from actors._base.messaging.futures import Future
from actors._base.messaging.tasks import Task
from actors._cri.errors import CriError, Unimplemented
from actors.node import node_info
from actors.node.runtime_status import NodeRuntime
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb

HANDLER = pb.RuntimeHandler(
    name="runc", features=pb.RuntimeHandlerFeatures(recursive_read_only_mounts=True, user_namespaces=True)
)


def answered(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(value, Exception):
        future.set_error(value)
    else:
        future.set(value)
    return future


def result_of(coroutine: Coroutine[Any, None, Any]) -> Any:
    """Run a coroutine whose calls are answered already."""
    task: Task[Any] = Task(coroutine, "test", lambda one: one.step(), lambda *_: None, lambda _: None)
    task.step()
    return task.result(0)


class Runtime:
    """A runtime with one handler. `driver`: the name that it tells, or its error."""

    driver: str | CriError = "cgroupfs"
    asked = 0
    handlers: Sequence[pb.RuntimeHandler] = (HANDLER,)
    features = pb.RuntimeFeatures(supplemental_groups_policy=True)

    def cgroup_driver(self) -> Future[Any]:
        self.asked += 1
        return answered(self.driver)

    def version(self) -> Future[Any]:
        return answered(pb.VersionResponse(runtime_name="containerd", runtime_version="2.1"))

    def status(self) -> Future[Any]:
        return answered(pb.StatusResponse(runtime_handlers=self.handlers, features=self.features))

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


@pytest.mark.parametrize("can", [True, False])
def test_users_on_the_host_network_are_as_the_runtime_last_told(can: bool) -> None:
    runtime: Any = Runtime()
    runtime.features = pb.RuntimeFeatures(user_namespaces_host_network=can)
    node = NodeRuntime(runtime, Settings())
    assert not node.users_on_host_network
    result_of(node.read())
    assert node.users_on_host_network is can
    runtime.version = lambda: answered(CriError("Unavailable", "no runtime"))
    result_of(node.read())
    assert node.users_on_host_network is can, "a runtime that restarts is the same"


@pytest.mark.parametrize("order", list(itertools.permutations(("", "crun", "runc"))))
def test_handlers_are_ordered_by_name(order: tuple[str, ...]) -> None:
    """CRI-O lists them in another order each time."""
    runtime: Any = Runtime()
    runtime.handlers = [pb.RuntimeHandler(name=name) for name in order]
    found = result_of(NodeRuntime(runtime, Settings()).read()).status["runtimeHandlers"]
    assert [one["name"] for one in found] == ["", "crun", "runc"]


@pytest.mark.parametrize(
    ("driver", "problems"),
    [
        ("cgroupfs", []),
        (Unimplemented("Unimplemented", "no such rpc"), []),
        (
            "systemd",
            ["cgroup driver of the container runtime is systemd, of the agent cgroupfs: start the agent again"],
        ),
        (
            CriError("Unknown", "no systemd"),
            ["container runtime does not tell its cgroup driver, so no pod starts: no systemd"],
        ),
    ],
)
def test_node_is_not_ready_before_the_runtime_has_our_cgroup_driver(
    driver: str | CriError, problems: list[str]
) -> None:
    """The agent started without its runtime, and has taken a driver that the runtime may not have."""
    runtime: Any = Runtime()
    runtime.driver = driver
    node = NodeRuntime(runtime, Settings(cgroup_driver="cgroupfs"))
    before = [one for one in result_of(node.read()).problems if "cgroup" in one]
    assert before == problems
    assert [one for one in result_of(node.read()).problems if "cgroup" in one] == problems
    assert runtime.asked == (2 if problems else 1)
    runtime.driver = "cgroupfs"
    assert not [one for one in result_of(node.read()).problems if "cgroup" in one]


@pytest.mark.parametrize(("swap_bytes", "written"), [(0, None), (1 << 30, {"capacity": 1 << 30})])
def test_swap_is_in_node_info_where_there_is_some(
    monkeypatch: pytest.MonkeyPatch, swap_bytes: int, written: dict[str, int] | None
) -> None:
    monkeypatch.setattr(node_info, "swap_capacity", lambda: swap_bytes)
    assert node_info.node_info("containerd://2.1").get("swap") == written
