"""Keys of the labels and annotations that the kubelet sets on sandboxes and containers.

Source: k8s.io/kubelet/pkg/types/labels.go and pkg/kubelet/kuberuntime/labels.go of Kubernetes 1.36. crictl and log
shippers read them. They also let a node change between the kubelet and nodevisor while its pods run.
"""

POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"

# Annotations of a container.
CONTAINER_HASH = "io.kubernetes.container.hash"
RESTART_COUNT = "io.kubernetes.container.restartCount"
TERMINATION_MESSAGE_PATH = "io.kubernetes.container.terminationMessagePath"
TERMINATION_MESSAGE_POLICY = "io.kubernetes.container.terminationMessagePolicy"
PORTS = "io.kubernetes.container.ports"
PRE_STOP_HANDLER = "io.kubernetes.container.preStopHandler"
POD_DELETION_GRACE_PERIOD = "io.kubernetes.pod.deletionGracePeriod"
POD_TERMINATION_GRACE_PERIOD = "io.kubernetes.pod.terminationGracePeriod"

# Annotations of a pod, copied to its sandbox with all others.
CONFIG_SEEN = "kubernetes.io/config.seen"
