"""Answers /pods and /runningpods, and finds the pod and container that a path names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from actors._base.shared import Shared
from actors._host.node.critical import is_static
from actors._logs.files import container_status
from actors.server.base.http import JSON, Request, Response
from actors.server.context import Context
from actors.server.policy import Route
from proto.cri import api_pb2 as pb
from proto.pods.status import FindPod, ListPods
from proto.v1 import Pod, to_json
from proto.wire.errors import ActorError

ASK_S = 5.0
FORGET_S = 2.0
"""Seconds until the answer with all pods is dropped, so that requests which waited for it share it."""


class ObjectNotFound(LookupError):
    """The pod or container does not exist; the message is the kubelet's. The answer is 404."""


class NotRunning(LookupError):
    """The pod exists, and what the request needs does not run in it; the message is the kubelet's. The answer is 500.

    The kubelet answers 404 only where it knows no such pod: see getExec and getRun in pkg/kubelet/server/server.go.
    """


async def find_pod(
    context: Context, request: Request, missing: str = "pod does not exist", *, running: str = ""
) -> Pod:
    """The pod that the path's namespace, name and UID name, with the container `running`.

    The server's own copy answers. Before a client gets a refusal, status is asked, because a change may be under way.
    Raises ObjectNotFound; NotRunning if the UID is another pod's and `running` is given.
    """
    namespace, name = request.params["namespace"], request.params["pod"]
    pod = _named(request, context.pods.find(namespace, name))
    if pod is not None and (not running or _running_id(pod, running)):
        return pod
    found: Sequence[Pod]
    try:
        found = (await context.ask_next("status", FindPod(namespace=namespace, name=name), ASK_S)).pods
    except ActorError:
        if not context.pods.complete:
            raise
        found = context.pods.find(namespace, name)
    if not found:
        raise ObjectNotFound(missing)
    if (pod := _named(request, found)) is None:
        raise _no_container(running) if running else ObjectNotFound("pod not found")
    return pod


def _named(request: Request, found: Sequence[Pod]) -> Pod | None:
    """The first of the pods that the path's UID names. The cluster knows a static pod by its mirror's UID."""
    uid = request.params.get("uid", "")
    return next((pod for pod in found if uid in ("", pod.metadata.uid) or is_static(pod)), None)


def _running_id(pod: Pod, name: str) -> str:
    """The ID of the running container, with the runtime's name; empty when it does not run."""
    status = container_status(pod, name)
    return (status.container_id or "") if status is not None and status.state.running is not None else ""


async def find_running(context: Context, request: Request) -> tuple[Pod, str]:
    """The pod that the path names and the CRI ID of its running container. Raises ObjectNotFound and NotRunning."""
    name = request.params["container"]
    pod = await find_pod(context, request, running=name)
    return pod, running_container(pod, name)


def running_container(pod: Pod, name: str) -> str:
    """The CRI ID of the pod's running container `name`. Raises NotRunning."""
    if not (running := _running_id(pod, name)):
        raise _no_container(name)
    return running.partition("://")[2]


def _no_container(name: str) -> NotRunning:
    return NotRunning(f'container not found ("{name}")')


async def get_pods(context: Context, _: Request) -> Response:
    """All pods of this node as a PodList. Without an own copy yet, concurrent requests share one answer of status."""
    if context.pods.complete:
        return Response(200, _list(",".join(document.decode() for document in context.pods.documents())), JSON)
    shared = context.pod_list
    if shared is None:
        shared = context.pod_list = Shared(context.loop, lambda: _every_pod(context), "pods")
    page = await shared.get(0.0)
    context.loop.call_later(FORGET_S, lambda: shared.forget(FORGET_S / 2))
    return Response(200, page, JSON)


async def _every_pod(context: Context) -> bytes:
    pods = (await context.ask_next("status", ListPods(), ASK_S)).pods
    return _list(",".join(to_json(pod).decode() for pod in pods))


def _list(items: str) -> bytes:
    return f'{{"kind":"PodList","apiVersion":"v1","metadata":{{}},"items":[{items}]}}\n'.encode()


async def get_running_pods(context: Context, _: Request) -> Response:
    """The pods whose sandboxes and containers the runtime reports as running: names, and images by ID."""
    sandboxes = await context.cri.list_pod_sandbox()
    containers = await context.cri.list_containers()
    running: dict[str, list[dict[str, Any]]] = {}
    for container in containers:
        if container.state == pb.CONTAINER_RUNNING:
            one = {"name": container.metadata.name, "image": container.image_ref, "resources": {}}
            running.setdefault(container.pod_sandbox_id, []).append(one)
    pods = [
        _running_pod(sandbox, running.get(sandbox.id, [])) for sandbox in sandboxes if sandbox.state == pb.SANDBOX_READY
    ]
    return Response(200, _list(",".join(msgspec.json.encode(pod).decode() for pod in pods)), JSON)


def _running_pod(sandbox: pb.PodSandbox, containers: list[dict[str, Any]]) -> dict[str, Any]:
    meta = sandbox.metadata
    return {
        "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid, "creationTimestamp": None},
        "spec": {"containers": containers},
        "status": {},
    }


ROUTES = (Route("GET", "/pods", get_pods, read_only=True), Route("GET", "/runningpods/", get_running_pods))
