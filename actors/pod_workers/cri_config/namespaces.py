"""Chooses the namespaces that a pod's containers share with each other and with the node. Pure.

Source: https://kubernetes.io/docs/tasks/configure-pod-container/share-process-namespace/ and
pkg/kubelet/kuberuntime/util (NamespacesForPod). `shared.userns` gives out user namespaces.
"""

from __future__ import annotations

from proto.cri import api_pb2 as pb
from proto.v1 import Pod

OF_THE_NODE = pb.UserNamespace(mode=pb.NODE)


def namespace_options(pod: Pod, users: pb.UserNamespace = OF_THE_NODE) -> pb.NamespaceOption:
    """CRI's options, for the sandbox and for each container. `users`: `UserNamespaces.of` the pod."""
    spec = pod.spec
    pid = pb.CONTAINER
    if spec.host_pid:
        pid = pb.NODE
    elif spec.share_process_namespace:
        pid = pb.POD
    return pb.NamespaceOption(
        network=pb.NODE if spec.host_network else pb.POD,
        pid=pid,
        ipc=pb.NODE if spec.host_ipc else pb.POD,
        userns_options=users,
    )
