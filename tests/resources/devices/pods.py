"""Pods that ask for devices."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from proto.v1 import Pod
from proto.v1.codec import from_dict

GPU = "vendor.test/gpu"


def container(name: str, count: int = 1, resource: str = GPU, **fields: Any) -> dict[str, Any]:
    amount = {resource: str(count)} if count else {}
    return {"name": name, "image": "i", "resources": {"limits": amount, "requests": amount}, **fields}


def pod(uid: str, *containers: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> Pod:
    document = {
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {"containers": list(containers), "initContainers": list(init)},
    }
    return from_dict(Pod, document)


def claimed(subject: Pod, resource: str = GPU, name: str = "c") -> Pod:
    """The pod, with a claim for this resource of the container."""
    mapping = {"containerName": name, "resourceName": resource, "requestName": "r"}
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "made", "requestMappings": [mapping]}}
    return replace(subject, status=from_dict(Pod, {"status": status}).status)
