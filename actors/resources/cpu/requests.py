"""Counts the exclusive CPUs of a container or a pod (guaranteedCPUs of pkg/kubelet/cm/cpumanager). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from actors._cgroup.quantities.qos import qos_class
from actors._host.restart import is_sidecar
from actors.resources.model.pod_level import EmptyPoolError, has_own_resources, limits_equal_requests
from proto.v1 import Container, Pod, ResourceList
from proto.v1.scalars.quantity import QuantityError, milli_value, value


@dataclass(frozen=True, slots=True)
class Requests:
    """Reads requests. Pods with resources of their own count only with the gate PodLevelResourceManagers."""

    pod_level: bool = False
    """The gate."""

    def ignored(self, pod: Pod) -> bool:
        """True for a pod that gets no exclusive CPUs since it has resources of its own and the gate is off."""
        return has_own_resources(pod) and not self.pod_level

    def of_container(self, pod: Pod, container: Container) -> int:
        """CPUs for this container alone; 0 when it runs in a shared pool."""
        if self.ignored(pod) or not _is_guaranteed(pod):
            return 0
        if has_own_resources(pod) and not limits_equal_requests(container):
            return 0
        return _whole(container.resources.requests)

    def of_pod(self, pod: Pod) -> int:
        """CPUs that the pod needs at one moment, or its own request if it has resources of its own."""
        if has_own_resources(pod):
            own = pod.spec.resources
            return _whole(own.requests) if own is not None and not self.ignored(pod) and _is_guaranteed(pod) else 0
        peak = sidecars = 0
        for container in pod.spec.init_containers:
            number = self.of_container(pod, container)
            if is_sidecar(container):
                sidecars += number
            else:
                peak = max(peak, sidecars + number)
        return max(peak, sidecars + sum(self.of_container(pod, container) for container in pod.spec.containers))

    def check_pool(self, pod: Pod) -> None:
        """Raise EmptyPoolError if the pod's own CPUs leave none for a container without exclusive CPUs."""
        total, used, shared = self.of_pod(pod), 0, False
        for container in pod.spec.init_containers:
            number = self.of_container(pod, container)
            if is_sidecar(container):
                used += number
                shared = shared or number == 0
            elif number > total - used:
                raise EmptyPoolError(
                    f"pod rejected, largest exclusive init container requests {number} cpus, "
                    f"but only {total - used} available"
                )
            elif number == 0 and used >= total:
                raise EmptyPoolError("pod rejected, pod has shared init containers but no cpus available for them")
        numbers = [self.of_container(pod, container) for container in pod.spec.containers]
        if (shared or 0 in numbers) and used + sum(numbers) >= total:
            raise EmptyPoolError(
                "pod rejected, sum of exclusive container cpu requests equals pod budget, "
                "leaving no cpus for shared containers"
            )


def _is_guaranteed(pod: Pod) -> bool:
    try:
        return qos_class(pod) == "Guaranteed"
    except QuantityError:
        return False


def _whole(requests: ResourceList) -> int:
    """The CPUs of a request for whole CPUs, else 0."""
    asked = requests.get("cpu", 0)
    number = value(asked)
    return number if number > 0 and number * 1000 == milli_value(asked) else 0
