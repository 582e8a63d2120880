"""Deletes this node's ResourceSlices whose DRA drivers are away (wipeResourceSlices of pkg/kubelet/cm/dra/plugin)."""

from __future__ import annotations

import re

from actors._kube.client import KubeClient
from actors._kube.errors import ApiError, NotFound
from proto.pods.objects import DeleteResourceSlices
from proto.wire.errors import Refused

PATH = "/apis/resource.k8s.io/v1/resourceslices"
_DRIVER = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
"""Superset of the names that the API allows. Another name could change the meaning of a field selector."""


def selector(node: str, request: DeleteResourceSlices) -> str | None:
    """The field selector of the slices; None if the API server cannot have any of them. Pure."""
    if not node or (request.driver and not _DRIVER.fullmatch(request.driver)):
        return None
    terms = [f"spec.nodeName={node}"]
    if request.driver:
        terms.append(f"spec.driver={request.driver}")
    else:
        terms += [f"spec.driver!={one}" for one in sorted(request.kept) if _DRIVER.fullmatch(one)]
    return ",".join(terms)


async def delete(client: KubeClient, node: str, request: DeleteResourceSlices, timeout_s: float) -> None:
    """Delete the slices. A server without ResourceSlices has none. Raises Refused NotDeleted."""
    fields = selector(node, request)
    if fields is None:
        return
    try:
        await client.request("DELETE", PATH, query={"fieldSelector": fields}, timeout_s=timeout_s)
    except NotFound:
        return
    except ApiError as error:
        raise Refused("NotDeleted", str(error)) from None
