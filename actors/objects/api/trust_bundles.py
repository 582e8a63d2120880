"""Finds the API version of ClusterTrustBundles, a beta kind that the API server serves only if it is enabled."""

from __future__ import annotations

import msgspec

from actors._kube.client import KubeClient
from actors._kube.errors import NotFound
from actors.objects.api.watching import NotSynced

KIND = "ClusterTrustBundle"
_GROUP, _PLURAL = "/apis/certificates.k8s.io", "clustertrustbundles"
_VERSIONS = ("v1", "v1beta1", "v1alpha1")


class _Resource(msgspec.Struct):
    name: str = ""


class _Resources(msgspec.Struct):
    resources: list[_Resource] | None = None


async def path(client: KubeClient, timeout_s: float) -> str:
    """API path of the kind. Raises ApiError, and NotSynced with the kubelet's message when it is not served."""
    for version in _VERSIONS:
        try:
            found = await client.request("GET", f"{_GROUP}/{version}", timeout_s=timeout_s, shape=_Resources)
        except NotFound:
            continue
        if any(one.get("name") == _PLURAL for one in found.get("resources") or ()):
            return f"{_GROUP}/{version}/{_PLURAL}"
    raise NotSynced("ClusterTrustBundle projection is not supported in static kubelet mode")
