"""The kubelet's reasons and messages of pods, in one place, so that tools that match on them work with nodevisor.

Covers waiting and terminated reasons of containers, reasons of pod conditions, and the fixed message formats. Image
reasons (ErrImagePull, ...) come from image_pull with their message. Source: pkg/kubelet/container/sync_result.go,
pkg/kubelet/kuberuntime and pkg/kubelet/status of Kubernetes 1.36; documented at
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/.
"""

from __future__ import annotations

from actors._cri.errors import CriError
from actors._host.node.shutdown import TERMINATED
from proto.v1 import Pod

# A waiting container.
CONTAINER_CREATING = "ContainerCreating"
POD_INITIALIZING = "PodInitializing"
CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
CREATE_CONTAINER_CONFIG_ERROR = "CreateContainerConfigError"
CREATE_CONTAINER_ERROR = "CreateContainerError"
POST_START_HOOK_ERROR = "PostStartHookError"
RUN_CONTAINER_ERROR = "RunContainerError"
CREATE_POD_SANDBOX_ERROR = "CreatePodSandboxError"

# A terminated container; runtimes give Completed, Error, OOMKilled and StartError themselves.
COMPLETED = "Completed"
ERROR = "Error"
CONTAINER_STATUS_UNKNOWN = "ContainerStatusUnknown"

# Conditions of a pod.
POD_COMPLETED = "PodCompleted"
POD_FAILED = "PodFailed"
CONTAINERS_NOT_READY = "ContainersNotReady"
CONTAINERS_NOT_INITIALIZED = "ContainersNotInitialized"
FAILED_MOUNT = "FailedMount"
READINESS_GATES_NOT_READY = "ReadinessGatesNotReady"
TERMINATION_BY_KUBELET = "TerminationByKubelet"
RESTART_ALL_STARTED = "RestartAllContainersStarted"
RESTART_ALL_STARTED_MESSAGE = "container exited with restart policy rule"

# Ends of a pod.
DEADLINE_EXCEEDED = "DeadlineExceeded"
DEADLINE_EXCEEDED_MESSAGE = "Pod was active on the node longer than the specified deadline"
EVICTED = "Evicted"
PREEMPTING = "Preempting"
EVICTIONS = frozenset({EVICTED, PREEMPTING})
"""Reasons of pods that the kubelet kills as evicted. A shutdown of the machine is no eviction."""
PREEMPTED_MESSAGE = "Preempted in order to admit critical pod"
REJECTED = "Pod was rejected: "
"""Prefix of the status message of a pod that admission has rejected."""

DISRUPTIONS = {
    EVICTED: "",
    PREEMPTING: "Pod was preempted by Kubelet to accommodate a critical pod.",
    TERMINATED: "",
}
"""Reason to the message of the condition DisruptionTarget; empty: the pod's own message. See `is_disruption`."""
LOW_ON_RESOURCE = "The node was low on resource: "
"""Start of the message of a pod that is evicted because the node is short of a resource."""

RESTARTING_ALL_CONTAINERS = "RestartingAllContainers"
RESTARTING_ALL_CONTAINERS_MESSAGE = "The container is removed because RestartAllContainers in place"

# Events.
KILLING = "Killing"
FAILED_POST_START_HOOK = "FailedPostStartHook"
FAILED_PRE_STOP_HOOK = "FailedPreStopHook"

EXCEEDED_GRACE_MESSAGE = "Container runtime did not kill the pod within specified grace period."
SANDBOX_CHANGED = "Pod sandbox changed, it will be killed and re-created."

CONTAINER_LOST_MESSAGE = (
    "The container could not be located when the pod was deleted.  The container used to be Running"
)
"""Two spaces as in the kubelet: alerting rules match the whole text."""


def is_disruption(reason: str, message: str) -> bool:
    """Return True for a pod that the node ends for its own sake: its status gets the condition DisruptionTarget.

    A pod that is evicted above its own limit of storage is no disruption (KEP-3329). Its message shows that, also in a
    checkpoint of a former release.
    """
    return reason in DISRUPTIONS and (reason != EVICTED or message.startswith(LOW_ON_RESOURCE))


def pod_description(pod: Pod) -> str:
    """`NAME_NAMESPACE(UID)`, as in the kubelet's messages."""
    meta = pod.metadata
    return f"{meta.name}_{meta.namespace}({meta.uid})"


def go_duration(seconds: float) -> str:
    """A duration as Go prints it, to the second: `10s`, `1m20s`, `5m0s`, `1h0m0s`."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    if hours:
        return f"{hours}h{minutes}m{whole % 60}s"
    return f"{minutes}m{whole % 60}s" if minutes else f"{whole % 60}s"


def crash_loop_back_off(pod: Pod, container: str, delay_s: float) -> tuple[str, str]:
    """(reason, message) of a container that waits before its next start; `delay_s` is the whole back-off."""
    message = f"back-off {go_duration(delay_s)} restarting failed container={container} pod={pod_description(pod)}"
    return CRASH_LOOP_BACK_OFF, message


def stopping_container(container: str) -> str:
    """Message of a Killing event when the whole pod ends."""
    return f"Stopping container {container}"


def lifecycle_http_fallback(authority: str) -> tuple[str, str]:
    """(reason, message) of the event when a hook asked for HTTPS of a server that speaks plain HTTP."""
    message = f"request to HTTPS lifecycle hook {authority} got HTTP response, retry with HTTP succeeded"
    return "LifecycleHTTPFallback", message


def create_sandbox_failed(pod: Pod, error: BaseException) -> str:
    """Message of CreatePodSandboxError."""
    return f'Failed to create sandbox for pod "{pod_description(pod)}": {error}'


def sandbox_config_failed(pod: Pod, error: BaseException) -> str:
    """Message of CreatePodSandboxError when the config could not be built."""
    return f'Failed to generate sandbox config for pod "{pod_description(pod)}": {error}'


def create_sandbox_failed_event(error: Exception) -> tuple[str, str]:
    """(reason, message) of the event. An OSError comes from the pod's cgroup, which is created before the sandbox."""
    if isinstance(error, OSError):
        return "FailedCreatePodContainer", f"unable to ensure pod container exists: {error}"
    text = error.grpc_text() if isinstance(error, CriError) else str(error)
    return "FailedCreatePodSandBox", f"Failed to create pod sandbox: {text}"


def pod_directory_failed_event(error: OSError) -> tuple[str, str]:
    """(reason, message) of the event when the pod's directory cannot be made, as on a full or read-only disk."""
    return "Failed", f"error making pod data directories: {error}"


def back_off_event(pod: Pod, container: str) -> str:
    """Message of the BackOff event of a container that waits before its next start."""
    return f"Back-off restarting failed container {container} in pod {pod_description(pod)}"


def will_run_as_root(pod: Pod, container: str) -> str:
    """Message of a refused runAsNonRoot when the spec has no user and the image's is root."""
    return (
        f'container has runAsNonRoot and image will run as root (pod: "{pod_description(pod)}", container: {container})'
    )


def asked_to_run_as_root(pod: Pod, container: str) -> str:
    """Message of a refused runAsNonRoot when the spec itself says user 0."""
    return f'container\'s runAsUser breaks non-root policy (pod: "{pod_description(pod)}", container: {container})'


def non_numeric_user(pod: Pod, container: str, user: str) -> str:
    """Message of a refused runAsNonRoot when the image's user is a name, which only the image could resolve."""
    return (
        f"container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root "
        f'(pod: "{pod_description(pod)}", container: {container})'
    )


def invalid_user_id(pod: Pod, container: str, uid: int) -> str:
    """Message of a refused runAsNonRoot when the image's user is above the largest UID of Kubernetes."""
    return (
        f"container has runAsNonRoot and image has an invalid user id ({uid}). (Must be 1-(2147483647)): "
        f'must be between 0 and 2147483647, inclusive (pod: "{pod_description(pod)}", container: {container})'
    )
