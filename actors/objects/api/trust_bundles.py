"""Where the API server has ClusterTrustBundles, if it has them: a beta kind that is off unless it is turned on."""

from __future__ import annotations

from actors._kube.client import KubeClient
from actors._kube.errors import NotFound
from actors.objects.api.watching import NotSynced

KIND = "ClusterTrustBundle"
_GROUP, _PLURAL = "/apis/certificates.k8s.io", "clustertrustbundles"
_VERSIONS = ("v1", "v1beta1", "v1alpha1")


async def path(client: KubeClient, timeout_s: float) -> str:
    """Of the collection. Raises ApiError; NotSynced, in the kubelet's words, when there is none."""
    for version in _VERSIONS:
        try:
            found = await client.request("GET", f"{_GROUP}/{version}", timeout_s=timeout_s)
        except NotFound:
            continue
        if any(one.get("name") == _PLURAL for one in found.get("resources") or ()):
            return f"{_GROUP}/{version}/{_PLURAL}"
    raise NotSynced("ClusterTrustBundle projection is not supported in static kubelet mode")
