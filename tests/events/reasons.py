"""Every event reason of the kubelet of Kubernetes 1.36, and the reason where this agent never sends it.

The list is pkg/kubelet/events/event.go and, at the end, the reasons that other packages of the kubelet send.
"""

from __future__ import annotations

_SENT = """
    Created Started Failed Killing Preempting BackOff ExceededGracePeriod FailedKillPod FailedCreatePodContainer
    NetworkNotReady ResizeDeferred ResizeInfeasible ResizeCompleted ResizeStarted ResizeError
    Pulling Pulled InspectFailed ErrImageNeverPull
    NodeReady NodeNotReady NodeSchedulable NodeNotSchedulable Starting KubeletSetupFailed FailedMount VolumeResizeFailed
    FileSystemResizeFailed FileSystemResizeSuccessful VolumePermissionChangeInProgress FailedMapVolume
    AlreadyMountedVolume SuccessfulMountVolume Rebooted Shutdown ContainerGCFailed ImageGCFailed
    FailedNodeAllocatableEnforcement NodeAllocatableEnforced SandboxChanged FailedCreatePodSandBox
    FailedPodSandBoxStatus FailedMountOnFilesystemMismatch PossibleMemoryBackedVolumesOnDisk CgroupV1
    InvalidDiskCapacity FreeDiskSpaceFailed Unhealthy ProbeWarning FailedSync FailedValidation
    FailedPostStartHook FailedPreStopHook
    CheckLimitsForResolvConf DNSConfigForming MissingClusterDNS EvictionThresholdMet Evicted LifecycleHTTPFallback
    FailedToRetrieveImagePullSecret FailedPrepareDynamicResources SystemOOM
"""

NEVER_SENT = {
    "FailedNodeDeclaredFeaturesCheck": "every feature that a change of a pod can need is built and declared",
    "FailedAttachVolume": "controllers attach volumes, not this agent",
    "VolumeResizeSuccessful": "sent by a controller of the cluster, by no kubelet",
    "SuccessfulAttachVolume": "sent by a controller of the cluster, by no kubelet",
    "InvalidImageID": "sent by no code of the kubelet that could be found; an image without an ID is InspectFailed",
}
"""The situation cannot exist here, or nothing here would see it."""

REASONS = dict.fromkeys(_SENT.split(), "") | NEVER_SENT
