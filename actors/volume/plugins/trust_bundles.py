"""Trust anchors of ClusterTrustBundles, as a file of a projected volume (KEP-3257). Pure.

Source: pkg/kubelet/clustertrustbundle of Kubernetes 1.36. Its order of anchors changes with each start. Ours is stable,
so that a restart rewrites no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from actors._host.node.selector import matches_requirement
from actors._pki import pem
from actors.volume.plugins.base import CannotMount
from proto.pods.objects import ApiObject, ObjectRef
from proto.v1.meta import LabelSelector
from proto.v1.volumes.projected import ClusterTrustBundleProjection

KIND = "ClusterTrustBundle"
NOT_SUPPORTED = "ClusterTrustBundle projection is not supported in static kubelet mode"
"""The kubelet's message for: no API server, the feature gate is off, or the server does not have the kind."""


def ref(source: ClusterTrustBundleProjection) -> ObjectRef:
    """Reference to the bundle by name; for a signer, to all bundles."""
    return ObjectRef(kind=KIND, name=source.name or "")


def anchors(source: ClusterTrustBundleProjection, objects: Mapping[ObjectRef, ApiObject]) -> bytes:
    """The certificates (PEM), each once; empty for a missing optional source. Raises CannotMount."""
    if source.name:
        found = objects.get(ref(source))
        if found is None and not source.optional:
            text = f'clustertrustbundle.certificates.k8s.io "{source.name}" not found'
            raise CannotMount(f"while getting ClusterTrustBundle: {text}")
        return _pem([found] if found is not None else [])
    bundles = [one for one in objects.values() if one.ref.kind == KIND and _is_selected(source, one.document)]
    if not bundles and not source.optional:
        raise CannotMount("combination of signerName and labelSelector matched zero ClusterTrustBundles")
    return _pem(bundles)


def _is_selected(source: ClusterTrustBundleProjection, bundle: Mapping[str, Any]) -> bool:
    selector = source.label_selector
    return (
        selector is not None
        and (bundle.get("spec") or {}).get("signerName") == source.signer_name
        and _selects(selector, bundle["metadata"].get("labels") or {})
    )


def _selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    return selector.match_labels.items() <= labels.items() and all(
        matches_requirement(one, labels) for one in selector.match_expressions
    )


def _pem(bundles: Iterable[ApiObject]) -> bytes:
    texts = ((one.document.get("spec") or {}).get("trustBundle") or "" for one in bundles)
    return pem.encoded(sorted({block for text in texts for block in pem.blocks(text)})).encode()
