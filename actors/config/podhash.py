"""The UID of a static pod: a hash of its manifest, its node and its file.

Covers the hash alone. Source: applyDefaults of the kubelet's pkg/kubelet/config/common.go.
"""

import hashlib

from proto import v1
from proto.v1 import Pod


def static_pod_uid(pod: Pod, path: str, node_name: str) -> str:
    """Return 32 hexadecimal digits for a defaulted pod; a change of manifest, path or node changes them."""
    digest = hashlib.md5(v1.to_json(pod), usedforsecurity=False)
    digest.update(f"host:{node_name}".encode())
    digest.update(f"file:{path}".encode())
    return digest.hexdigest()
