"""The words for pods that end because their machine does, or may not begin for it; and what that means for later.

Source: https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/ and pkg/kubelet/nodeshutdown.
"""

from __future__ import annotations

from actors._host.node.critical import is_static
from proto.v1 import Pod

TERMINATED = "Terminated"
TERMINATED_MESSAGE = "Pod was terminated in response to imminent node shutdown."
NOT_ADMITTED = "NodeShutdown"
NOT_ADMITTED_MESSAGE = "Pod was rejected as the node is shutting down."
NOT_READY = "node is shutting down"


def ended_by_shutdown(pod: Pod) -> bool:
    """Whether that the pod is Failed ends with the shutdown: a static pod runs again when its machine is back. One of
    an API server has had its last word there, and its controller makes another."""
    return is_static(pod) and pod.status.reason in (TERMINATED, NOT_ADMITTED)
