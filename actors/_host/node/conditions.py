"""Whose a condition of a pod is. Pure. Source: pkg/kubelet/types/pod_status.go."""

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
"""The node writes these, and reads none of them from the API server."""
