"""Answers /pods and /runningpods, and finds the pod and container that a path names."""

from __future__ import annotations

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

ASK_S = 5.0
FORGET_S = 2.0
"""Seconds until the answer with all pods is dropped, so that requests which waited for it share it."""


class ObjectNotFound(LookupError):
    """The pod, container or sandbox does not exist; the message is the kubelet's."""


async def find_pod(context: Context, request: Request, missing: str = "pod does not exist") -> Pod:
    """The pod that the path's namespace, name and UID name. Raises ObjectNotFound with `missing`."""
    question = FindPod(namespace=request.params["namespace"], name=request.params["pod"])
    found = (await context.ask("status", question, ASK_S)).pods
    if not found:
        raise ObjectNotFound(missing)
    uid = request.params.get("uid", "")
    # The cluster knows a static pod by its mirror's UID.
    named = [pod for pod in found if uid in ("", pod.metadata.uid) or is_static(pod)]
    if not named:
        raise ObjectNotFound("pod not found")
    return named[0]


def running_container(pod: Pod, name: str) -> str:
    """The CRI ID of the pod's running container `name`. Raises ObjectNotFound."""
    status = container_status(pod, name)
    if status is None or status.state.running is None or not status.container_id:
        raise ObjectNotFound(f'container not found ("{name}")')
    return status.container_id.partition("://")[2]


async def get_pods(context: Context, _: Request) -> Response:
    """All pods of this node as a PodList. Concurrent requests share one answer and its memory."""
    shared = context.pod_list
    if shared is None:
        shared = context.pod_list = Shared(context.loop, lambda: _every_pod(context), "pods")
    page = await shared.get(0.0)
    context.loop.call_later(FORGET_S, lambda: shared.forget(FORGET_S / 2))
    return Response(200, page, JSON)


async def _every_pod(context: Context) -> bytes:
    pods = (await context.ask("status", ListPods(), ASK_S)).pods
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
