"""The CPU manager: exclusive CPUs for containers of Guaranteed pods (pkg/kubelet/cm/cpumanager of Kubernetes 1.36)."""
