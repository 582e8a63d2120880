"""Computes the statuses of a pod's containers from specs, the runtime's view and probe results. Pure.

Source: the kubelet's convertToAPIContainerStatuses (pkg/kubelet/kubelet_pods.go), and its prober manager for `ready`
and `started`. Facts that the runtime has lost come from the old status.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from actors._host.node.critical import is_static
from actors.pod_workers.decide.init_policy import (
    completed_init_containers,
    has_created_main,
    init_exit_code,
    with_counted_exit_code,
)
from actors.pod_workers.model import reasons, restart_policy
from actors.pod_workers.model.view import ContainerView, PodView
from actors.pod_workers.resources.status_resources import container_resources
from actors.pod_workers.status.inputs import StatusInputs
from proto.common import rfc3339
from proto.v1 import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    ContainerUser,
    LinuxContainerUser,
    Pod,
    VolumeMount,
    VolumeMountStatus,
)
from proto.v1.scalars.quantity import canonical_list
from proto.v1.status import ImageVolumeStatus, VolumeStatus

_NOTHING = ContainerState()
_LOST = ContainerStateTerminated(
    exit_code=137, reason=reasons.CONTAINER_STATUS_UNKNOWN, message=reasons.CONTAINER_LOST_MESSAGE
)
"""For a container that ran and that the runtime has lost: 137 as if killed, since it may have failed."""
UNKNOWN = ContainerStateTerminated(
    exit_code=137,
    reason=reasons.CONTAINER_STATUS_UNKNOWN,
    message="The container could not be located when the pod was terminated",
)
"""For a container that ran and whose state the runtime does not know."""
_RESET = ContainerStateTerminated(
    exit_code=137, reason=reasons.RESTARTING_ALL_CONTAINERS, message=reasons.RESTARTING_ALL_CONTAINERS_MESSAGE
)
"""For an instance that was removed so that all containers start anew (KEP-5532)."""
_INIT_FORGOTTEN = ContainerStateTerminated(
    exit_code=0,
    reason=reasons.COMPLETED,
    message="Unable to get init container status from container runtime and pod has been initialized, "
    "treat it as exited normally",
)

_LONGEST_IMAGE_REF = 256
"""Characters of an imageRef; as in the API server's validation of statuses."""


def main_statuses(pod: Pod, view: PodView, inputs: StatusInputs) -> tuple[ContainerStatus, ...]:
    """Of spec.containers, sorted by name."""
    old = _by_name(inputs.old.container_statuses if inputs.old is not None else ())
    statuses = (_status(pod, one, view, inputs, old.get(one.name)) for one in pod.spec.containers)
    probed = (_probed(*pair, inputs) for pair in zip(pod.spec.containers, statuses, strict=True))
    return tuple(sorted((_with_health(one, inputs, old) for one in probed), key=lambda status: status.name))


def _with_health(status: ContainerStatus, inputs: StatusInputs, old: Mapping[str, ContainerStatus]) -> ContainerStatus:
    """Add the health of the container's devices. As in the kubelet, init containers show none.

    The pod's end frees the devices, and their health is no longer told. The last one stays.
    """
    shown = () if inputs.health is None else inputs.health.get(status.name, ())
    before = old.get(status.name)
    ended = inputs.over or status.state.terminated is not None
    if before is not None and (ended or inputs.health is None):
        by_resource = {one.name: one for one in (*before.allocated_resources_status, *shown)}
        shown = tuple(by_resource.values())
    return replace(status, allocated_resources_status=shown)


def init_statuses(pod: Pod, view: PodView, inputs: StatusInputs) -> tuple[ContainerStatus, ...]:
    """Of spec.initContainers, in the spec's order."""
    old = _by_name(inputs.old.init_container_statuses if inputs.old is not None else ())
    past = completed_init_containers(pod, view)
    statuses = []
    for container in pod.spec.init_containers:
        status = _status(pod, container, view, inputs, old.get(container.name), init=True)
        if restart_policy.is_sidecar(container):
            statuses.append(_probed(container, status, inputs))
        else:
            ended = status.state.terminated
            done = ended is not None and init_exit_code(container, ended, past=container.name in past) == 0
            started = status.state.running is not None
            statuses.append(replace(status, ready=done, started=started))
    return tuple(statuses)


def ephemeral_statuses(pod: Pod, view: PodView, inputs: StatusInputs) -> tuple[ContainerStatus, ...]:
    """Of spec.ephemeralContainers, sorted by name. They have no probes."""
    old = _by_name(inputs.old.ephemeral_container_statuses if inputs.old is not None else ())
    statuses = (_status(pod, one, view, inputs, old.get(one.name)) for one in pod.spec.ephemeral_containers)
    return tuple(sorted(statuses, key=lambda status: status.name))


def _by_name(statuses: Iterable[ContainerStatus]) -> Mapping[str, ContainerStatus]:
    return {status.name: status for status in statuses}


def _status(
    pod: Pod,
    container: Container,
    view: PodView,
    inputs: StatusInputs,
    old: ContainerStatus | None,
    *,
    init: bool = False,
) -> ContainerStatus:
    found = view.container(container.name)
    if found is None:
        status = _not_there(pod, container, view, inputs, old, init=init)
    else:
        status = _there(container, found, view.previous(container.name), inputs, old)
    return _waiting(pod, container, found, inputs, status, init=init)


def _not_there(
    pod: Pod, container: Container, view: PodView, inputs: StatusInputs, old: ContainerStatus | None, *, init: bool
) -> ContainerStatus:
    """The runtime has no instance: it is not created yet, or was removed."""
    if inputs.restarting_all and old is not None:
        if old.container_id:
            return _reset(container, old)
        if old.state.waiting is not None and old.state.waiting.reason == _RESET.reason:
            return old
    begun = init and not restart_policy.is_sidecar(container) and has_created_main(pod, view)
    if old is not None and old.state.terminated is not None:
        return _remembered(pod, old) if begun else old
    default = reasons.POD_INITIALIZING if pod.spec.init_containers else reasons.CONTAINER_CREATING
    status = ContainerStatus(
        name=container.name,
        image=container.image or "",
        state=ContainerState(waiting=ContainerStateWaiting(reason=default)),
        volume_mounts=_volume_mounts(container, _known_recursive(old)),
    )
    if old is not None:
        last, restarts = old.last_state, old.restart_count
        if old.state.running is not None and (last.terminated is None or _is_lost(last)):
            last = ContainerState(terminated=_LOST)
            restarts += pod.metadata.deletion_timestamp is None
        status = replace(status, last_state=last, restart_count=restarts)
    return replace(status, state=ContainerState(terminated=_INIT_FORGOTTEN)) if begun else status


def _remembered(pod: Pod, old: ContainerStatus) -> ContainerStatus:
    """The status of an ended init container that the runtime has lost.

    In a static pod it gets the kubelet's message for a lost init container: a restarted kubelet has no old status of
    static pods. Its times and container ID, which we know, stay.
    """
    ended = old.state.terminated
    if ended is None or ended.exit_code or ended.message or not is_static(pod):
        return old
    return replace(old, state=ContainerState(terminated=replace(ended, message=_INIT_FORGOTTEN.message)))


def _reset(container: Container, old: ContainerStatus) -> ContainerStatus:
    waiting = ContainerStateWaiting(reason=_RESET.reason, message=_RESET.message)
    return ContainerStatus(
        name=container.name,
        image=container.image or "",
        state=ContainerState(waiting=waiting),
        last_state=ContainerState(terminated=_RESET),
        restart_count=old.restart_count + 1,
        volume_mounts=_volume_mounts(container, _known_recursive(old)),
    )


def _there(
    container: Container,
    found: ContainerView,
    previous: ContainerView | None,
    inputs: StatusInputs,
    old: ContainerStatus | None,
) -> ContainerStatus:
    identity = f"{inputs.runtime_name}://{found.id}"
    return ContainerStatus(
        name=container.name,
        state=_state(found, inputs, old),
        last_state=_state(previous, inputs, None) if previous is not None else _last_before(found, identity, old),
        restart_count=_restart_count(found, old),
        image=found.image,
        image_id=found.image_ref,
        container_id=identity,
        allocated_resources=canonical_list(container.resources.requests),
        resources=container_resources(container, found, inputs.actuated.containers.get(found.name), old, identity),
        volume_mounts=_volume_mounts(
            container, found.recursive_read_only, dict(found.image_mounts if inputs.image_digests else ())
        ),
        user=_user(found),
        stop_signal=_stop_signal(found, container),
    )


def _last_before(found: ContainerView, identity: str, old: ContainerStatus | None) -> ContainerState:
    """The last state of the oldest instance that the runtime has, from the old status.

    The garbage collector may have removed the instance before, or the runtime may have lost it.
    """
    if old is None:
        return _NOTHING
    if old.last_state.terminated == _RESET:
        return old.last_state
    if old.container_id == identity or old.state.waiting is not None:
        last = old.last_state
    elif found.restart_count > old.restart_count or (old.container_id and _is_lost(old.state)):
        last = old.state
    else:
        return _NOTHING  # the newest instance is lost, and this is its predecessor
    if _is_lost(last):  # it was counted ahead, and the runtime may have found it again
        return last if found.restart_count >= old.restart_count else _NOTHING
    # A container that waits for its restart has its own exit as last state.
    known = last.terminated is not None and last.terminated.container_id not in (None, identity)
    return last if known else _NOTHING


def _is_lost(state: ContainerState) -> bool:
    """Return True for an end that nothing tells but the container's absence. It has no container ID."""
    return state.terminated is not None and state.terminated.reason == reasons.CONTAINER_STATUS_UNKNOWN


def _state(found: ContainerView, inputs: StatusInputs, old: ContainerStatus | None) -> ContainerState:
    identity = f"{inputs.runtime_name}://{found.id}"
    match found.state:
        case "running":
            return ContainerState(running=ContainerStateRunning(started_at=rfc3339.from_nanos(found.started_at_ns)))
        case "exited":
            ended = ContainerStateTerminated(
                exit_code=found.exit_code,
                reason=found.reason or None,
                message=inputs.termination_message(found) or None,
                started_at=rfc3339.from_nanos(found.started_at_ns),
                finished_at=rfc3339.from_nanos(found.finished_at_ns),
                container_id=identity,
            )
            return ContainerState(terminated=ended)
        case "unknown" if old is not None and old.state.running is not None:
            return ContainerState(terminated=UNKNOWN)
    return ContainerState(waiting=ContainerStateWaiting())


def _restart_count(found: ContainerView, old: ContainerStatus | None) -> int:
    """A running container that becomes lost counts as one restart, since it is published as Terminated.

    The count never falls: the runtime may have lost the newest instance and show its predecessor.
    """
    if old is None:
        return found.restart_count
    lost = found.state == "unknown" and old.state.running is not None
    return old.restart_count + 1 if lost else max(found.restart_count, old.restart_count)


def _waiting(
    pod: Pod,
    container: Container,
    found: ContainerView | None,
    inputs: StatusInputs,
    status: ContainerStatus,
    *,
    init: bool,
) -> ContainerStatus:
    """A container whose start failed is Waiting, and its last exit is its last state.

    An init container that has succeeded stays Terminated until its next start, also a sidecar in back-off.
    """
    reason, message = inputs.waiting.get(container.name, ("", ""))
    found = with_counted_exit_code(container, found) if init and found is not None else found
    done = init and found is not None and found.state == "exited" and found.exit_code == 0
    over = inputs.terminal or pod.metadata.deletion_timestamp is not None
    if not reason or over or done or not restart_policy.should_restart(container, pod, found):
        return status
    last = status.state if status.state.terminated is not None else status.last_state
    waiting = ContainerStateWaiting(reason=reason, message=message or None)
    return replace(status, state=ContainerState(waiting=waiting), last_state=last)


def _probed(container: Container, status: ContainerStatus, inputs: StatusInputs) -> ContainerStatus:
    """Set `started` and `ready`. Without probes a running container is both."""
    identity = (status.container_id or "").partition("://")[2]
    running = status.state.running is not None
    started = running and _passed(container.startup_probe is not None, inputs.probe_result(identity, "startup"))
    ready = started and _passed(container.readiness_probe is not None, inputs.probe_result(identity, "readiness"))
    return replace(status, started=started, ready=ready)


def _passed(has_probe: bool, result: str | None) -> bool:
    return not has_probe or result == "success"


_NO_IMAGES: Mapping[str, str] = {}


def _volume_mounts(
    container: Container, recursive: Collection[str] = (), images: Mapping[str, str] = _NO_IMAGES
) -> tuple[VolumeMountStatus, ...]:
    """`recursive`: paths in the container that are recursively read-only (KEP-3857).

    `images`: path in the container to the ID of the image that is mounted there (KEP-5365).
    """
    return tuple(
        VolumeMountStatus(
            name=mount.name,
            mount_path=mount.mount_path,
            read_only=True if mount.read_only else None,
            recursive_read_only=_recursive(mount, recursive) if mount.read_only else None,
            volume_status=_volume_status(images.get(os.path.join("/", mount.mount_path), "")),
        )
        for mount in container.volume_mounts
    )


def _volume_status(image: str) -> VolumeStatus | None:
    """None also for a text that the API server would refuse together with the whole status."""
    if not image or len(image) > _LONGEST_IMAGE_REF:
        return None
    return VolumeStatus(image=ImageVolumeStatus(image_ref=image))


def _known_recursive(old: ContainerStatus | None) -> tuple[str, ...]:
    """Paths that were recursively read-only in the last instance: so they are in the next one."""
    mounts = old.volume_mounts if old is not None else ()
    return tuple(os.path.join("/", one.mount_path) for one in mounts if one.recursive_read_only == "Enabled")


def _recursive(mount: VolumeMount, recursive: Collection[str]) -> str:
    return "Enabled" if os.path.join("/", mount.mount_path) in recursive else "Disabled"


def _user(found: ContainerView) -> ContainerUser | None:
    if found.user is None:
        return None
    user = LinuxContainerUser(
        uid=found.user.uid, gid=found.user.gid, supplemental_groups=found.user.supplemental_groups
    )
    return ContainerUser(linux=user)


def _stop_signal(found: ContainerView, container: Container) -> str | None:
    """The runtime's stop signal, only if the spec has one: defaults are not shown.

    A runtime that tells none sends the image's signal (steps.container_start.check_stop_signal).
    """
    wanted = container.lifecycle.stop_signal if container.lifecycle is not None else None
    return (found.stop_signal or None) if wanted else None
