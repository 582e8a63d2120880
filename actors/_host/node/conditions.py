"""Names the pod conditions that the kubelet owns. Source: pkg/kubelet/types/pod_status.go."""

KUBELET_CONDITIONS = frozenset(
    {
        "PodScheduled",
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "AllContainersRestarting",
        "PodResizePending",
        "PodResizeInProgress",
    }
)
"""The node writes these and never reads them from the API server."""
