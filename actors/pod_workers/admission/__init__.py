"""Decides whether a new pod may run on this node, like the kubelet's admit handlers. Pure but for the queue.

`chain` has the order of the checks and their messages; the other modules are the checks. `admission_queue` decides when
a pod is checked, and has the resources actor assign CPUs, memory and devices to a pod that may run.
"""

from actors.pod_workers.admission.chain import Admitted, Preempt, Rejection, admit
from actors.pod_workers.admission.node_info import NodeInfo, RuntimeFeatures, node_info
from actors.pod_workers.admission.resources import Share

__all__ = ["Admitted", "NodeInfo", "Preempt", "Rejection", "RuntimeFeatures", "Share", "admit", "node_info"]
