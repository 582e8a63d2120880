"""Decides whether a new pod may run on this node, like the kubelet's admit handlers. Pure but for the queue.

`chain` has the order of the checks and their messages; the other modules are the checks. `admission_queue` decides when
a pod is checked. Between the first checks and the others it has the resources actor assign CPUs, memory and devices.
"""

from actors.pod_workers.admission.chain import Admitted, Preempt, Rejection, admit, rejection_before_resources
from actors.pod_workers.admission.node_info import NodeInfo, RuntimeFeatures, node_info
from actors.pod_workers.admission.resources import Share

__all__ = [
    "Admitted",
    "NodeInfo",
    "Preempt",
    "Rejection",
    "RuntimeFeatures",
    "Share",
    "admit",
    "node_info",
    "rejection_before_resources",
]
