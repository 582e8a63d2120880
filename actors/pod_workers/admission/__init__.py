"""Whether a new pod may run on this node: the kubelet's admit handlers. Pure.

`chain` has their order and words; the others are what it asks. Pods that run already are never asked again. Not
covered: topology and device managers, and a node that is shutting down, which are not there yet.
"""

from actors.pod_workers.admission.chain import Admitted, Preempt, Rejection, admit
from actors.pod_workers.admission.node_info import NodeInfo, RuntimeFeatures, node_info
from actors.pod_workers.admission.resources import Share

__all__ = ["Admitted", "NodeInfo", "Preempt", "Rejection", "RuntimeFeatures", "Share", "admit", "node_info"]
