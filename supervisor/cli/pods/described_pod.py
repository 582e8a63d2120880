"""`supervisor describe pod POD`: print the pod as `kubectl describe pod` does, with its events."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from proto.agent.actor import Describe
from proto.wire.errors import ActorError
from supervisor.cli.common import find_pod, list_pods, pods_not_begun
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render

if TYPE_CHECKING:
    from proto.v1 import Event, Pod
    from supervisor.sockets.client import Client


def describe_pod(client: Client, name: str, namespace: str | None, output: str | None) -> None:
    """Print the pod, also when the events actor does not answer. Raises CommandError."""
    from proto.v1 import to_dict  # noqa: PLC0415 - loads the API types, which describing an actor does without
    from supervisor.cli.pods.events import list_events  # noqa: PLC0415
    from supervisor.cli.views.event_table import ordered  # noqa: PLC0415
    from supervisor.cli.views.pod_description import lines  # noqa: PLC0415

    pods = list_pods(client)
    try:
        pod = find_pod(pods, name, namespace, next((one.spec.node_name for one in pods if one.spec.node_name), ""))
    except CommandError as error:
        raise CommandError("\n".join([str(error), *pods_not_begun(client)])) from error
    events: list[Event] = []
    worker = _worker(client, pod)
    problem = ""
    try:
        events = ordered(one for one in list_events(client) if one.involved_object.uid == pod.metadata.uid)
    except ActorError as error:
        problem = f"supervisor: cannot list events: {error}"
    if output == "json":
        shown = {"apiVersion": "v1", "kind": "Pod"} | to_dict(pod)
        found = {"pod": shown, "worker": worker, "events": [to_dict(one) for one in events]}
        render.echo(render.json_text(found))
    else:
        for line in lines(pod, events, time.time(), worker):
            render.echo(line)
    if problem:
        render.echo(problem, err=True)


def _worker(client: Client, pod: Pod) -> dict[str, Any]:
    """The description of the pod's worker, with its wait reasons."""
    try:
        workers = client.ask("pod_workers", Describe()).state.get("pods", {})
    except ActorError as error:
        return {"last_error": f"pod_workers does not answer: {error}"}
    found: dict[str, Any] = workers.get(f"{pod.metadata.namespace}/{pod.metadata.name}", {})
    return found
