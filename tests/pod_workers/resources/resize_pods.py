"""Pods, views and the node of the tests of resizes."""

from typing import Any

import msgspec

from actors._cgroup.quantities.swap import SwapRules
from actors.pod_workers.model.view import ContainerView, PodView, ResourcesView
from actors.pod_workers.resources.allocator import Allocator
from actors.pod_workers.resources.resizing import ResizeRequest
from actors.pod_workers.shared.resource_state import ResourceState
from proto.v1 import Pod, from_dict
from tests.pod_workers.admission.test_admission_queue import QueueHarness

GIB, MIB = 1 << 30, 1 << 20
STATIC = {"annotations": {"kubernetes.io/config.source": "file"}}


def needs(cpu: str = "", memory: str = "", limit_cpu: str = "", limit_memory: str = "") -> dict[str, Any]:
    requests = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}
    limits = {name: amount for name, amount in (("cpu", limit_cpu), ("memory", limit_memory)) if amount}
    return {"requests": requests, "limits": limits}


def pod(*resources: dict[str, Any], uid: str = "u", meta: dict[str, Any] | None = None, **spec: Any) -> Pod:
    """Containers `a`, `b`, ... with these resources; a key `policy` is their resizePolicy for memory and cpu."""
    containers = []
    for name, one in zip("abcd", resources, strict=False):
        policy = [{"resourceName": what, "restartPolicy": "RestartContainer"} for what in one.get("policy", ())]
        own = {key: value for key, value in one.items() if key != "policy"}
        containers.append({"name": name, "image": "i", "resources": own, "resizePolicy": policy})
    metadata = {"name": "p", "namespace": "ns", "uid": uid, "generation": 2, **(meta or {})}
    return from_dict(Pod, {"metadata": metadata, "spec": {"containers": containers, **spec}})


def view(*names: str, state: Any = "running", resources: ResourcesView | None = None) -> PodView:
    return PodView.of([], [ContainerView(id=f"{name}1", name=name, state=state, resources=resources) for name in names])


def request(uid: str, cpu: str, since: float = 0.0, priority: int = 0, qos: str = "Burstable") -> ResizeRequest:
    desired = pod(needs(cpu), uid=uid, priority=priority)
    status = msgspec.structs.replace(desired.status, qos_class=qos)
    return ResizeRequest(msgspec.structs.replace(desired, status=status), pod(needs("1"), uid=uid), since)


def allocated(path: Any, *pods: Pod) -> tuple[Allocator, QueueHarness]:
    """An allocator and a queue, with these pods admitted. The node has 2 CPUs and 4 GiB. The queue logs events."""
    queue = QueueHarness()
    queue.want(*pods)
    allocator = Allocator(ResourceState(str(path / "s")), queue, SwapRules())  # type: ignore[arg-type]
    for one in pods:
        allocator.admitted(one)
    queue.said()
    return allocator, queue


def sized(uid: str, cpu: str, memory: str, priority: int = 0) -> Pod:
    return pod(needs(cpu, memory), uid=uid, meta={"name": uid}, priority=priority)


LESS, MORE = needs("1", "1Gi", "2", "2Gi"), needs("2", "2Gi", "3", "3Gi")
