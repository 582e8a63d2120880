"""Reasons and messages for pods that a node shutdown ends or rejects.

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
    """Return True when the pod's failure is over once the machine is back: a static pod then runs again.

    A pod of the API server stays Failed, and its controller creates another one.
    """
    return is_static(pod) and pod.status.reason in (TERMINATED, NOT_ADMITTED)
