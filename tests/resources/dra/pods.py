"""Pods with claims, and the claims."""

from __future__ import annotations

from typing import Any

from proto.pods.objects import ApiObject, GetObjects, ObjectRef, Objects
from proto.v1 import Pod
from proto.v1.codec import from_dict
from tests.resources.dra.driver import NAME


def pod(uid: str, *claims: str, requests: dict[str, str] | None = None, status: dict[str, Any] | None = None) -> Pod:
    """A pod whose container `c` uses the claims."""
    uses = [{"name": name, **({"request": requests[name]} if requests and name in requests else {})} for name in claims]
    document = {
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {
            "resourceClaims": [{"name": name, "resourceClaimName": name} for name in claims],
            "containers": [{"name": "c", "image": "i", "resources": {"claims": uses}}],
        },
        "status": status or {},
    }
    return from_dict(Pod, document)


def claim(name: str, *pods: str, uid: str = "", drivers: tuple[str, ...] = (NAME,), **status: Any) -> dict[str, Any]:
    """A claim that is allocated and reserved for the pods."""
    results = [{"request": "r", "driver": one, "pool": "pool", "device": f"dev-{name}"} for one in drivers]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": uid or f"uid-{name}"},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": one, "uid": one} for one in pods],
            **status,
        },
    }


class Server:
    """Answers for the objects actor, with the claims that it has now."""

    def __init__(self, *claims: dict[str, Any]) -> None:
        self.claims = {one["metadata"]["name"]: one for one in claims}

    def put(self, *claims: dict[str, Any]) -> None:
        self.claims.update((one["metadata"]["name"], one) for one in claims)

    def answer(self, request: GetObjects) -> Objects:
        found = [
            ApiObject(ref=ref, resource_version="1", document=self.claims[ref.name])
            for ref in request.refs
            if ref.name in self.claims
        ]
        missing: tuple[ObjectRef, ...] = tuple(ref for ref in request.refs if ref.name not in self.claims)
        return Objects(found=tuple(found), missing=missing)
