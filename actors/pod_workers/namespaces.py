"""Which namespaces a pod's containers share with each other and with the node. Pure.

Source: https://kubernetes.io/docs/tasks/configure-pod-container/share-process-namespace/ and
pkg/kubelet/kuberuntime/util (NamespacesForPod). User namespaces (KEP-127) are refused so far.
"""

from __future__ import annotations

from actors.pod_workers.environment import ConfigError
from proto.cri import api_pb2 as pb
from proto.v1 import Pod


def namespace_options(pod: Pod) -> pb.NamespaceOption:
    """CRI's options, for the sandbox and for each container. Raises ConfigError for hostUsers: false."""
    spec = pod.spec
    if spec.host_users is False:
        raise ConfigError("cannot run the pod in a user namespace: hostUsers: false is not supported yet; leave it out")
    pid = pb.CONTAINER
    if spec.host_pid:
        pid = pb.NODE
    elif spec.share_process_namespace:
        pid = pb.POD
    return pb.NamespaceOption(
        network=pb.NODE if spec.host_network else pb.POD,
        pid=pid,
        ipc=pb.NODE if spec.host_ipc else pb.POD,
        userns_options=pb.UserNamespace(mode=pb.NODE),
    )
