"""/checkpoint: writes a container's state to an archive under ROOT_DIR/checkpoints (KEP-2008)."""

from __future__ import annotations

import os

import msgspec

from actors._cri.errors import CriError
from actors._logs.files import container_names
from actors.server.base.http import JSON, Request, Response, text
from actors.server.context import Context
from actors.server.pods import NotRunning, ObjectNotFound, find_pod, running_container
from actors.server.policy import Route
from proto.common import rfc3339

DISK_S = 10.0


async def post_checkpoint(context: Context, request: Request) -> Response:
    """The path of the new archive. 500 with the reason when the container does not run, or the runtime fails."""
    name = request.params["container"]
    pod = await find_pod(context, request, running=name)
    if name not in container_names(pod):
        raise ObjectNotFound(f"container {name} does not exist")
    timeouts = request.query.get("timeout", ["0"])
    if not timeouts[-1].isascii() or not timeouts[-1].removeprefix("-").isdecimal():
        return text(404, "cannot parse value of timeout parameter")
    directory = f"{context.settings.root_dir}/checkpoints"
    await context.blocking(DISK_S, lambda: os.makedirs(directory, mode=0o700, exist_ok=True))
    meta = pod.metadata
    location = f"{directory}/checkpoint-{meta.name}_{meta.namespace}-{name}-{rfc3339.now()}.tar"
    try:
        await context.cri.checkpoint_container(running_container(pod, name), location, int(timeouts[-1]))
    except (CriError, NotRunning) as error:
        why = error.grpc_text() if isinstance(error, CriError) else f"container {name} not found"
        return text(500, f"checkpointing of {meta.namespace}/{meta.name}/{name} failed ({why})")
    return Response(200, msgspec.json.encode({"items": [location]}), JSON)


ROUTES = (Route("POST", "/checkpoint/{namespace}/{pod}/{container}", post_checkpoint),)
