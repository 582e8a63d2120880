"""PodView: the sandboxes and containers of one pod as immutable records, made from CRI messages.

`steps.runtime_view` decides when the runtime is read. A record from a list call lacks the fields that only a status
call has: start and end times, exit code, addresses and pid. `complete` is False for it.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from actors._cgroup.quantities.resources import quota_to_milli_cpu, shares_to_milli_cpu
from actors._host.node.addresses import IP, parsed
from actors._host.node.critical import SOURCE_ANNOTATION
from proto.common import untrusted
from proto.common.safe_text import component_problem
from proto.cri import api_pb2 as pb
from proto.cri import labels

SandboxState = Literal["ready", "notready"]
ContainerState = Literal["created", "running", "exited", "unknown"]

_CONTAINER_STATES: dict[int, ContainerState] = {
    pb.CONTAINER_CREATED: "created",
    pb.CONTAINER_RUNNING: "running",
    pb.CONTAINER_EXITED: "exited",
}
_LEADING_ZEROS = re.compile(r"\b0+(?=[0-9])")
DEFAULT_GRACE_PERIOD_S = 30
MOST_RESTARTS = 1 << 31
"""A larger count is no count of the kubelet or of this agent, whose numbers are int32."""
KILLED = 128 + signal.SIGKILL
"""Exit code of a container that the kernel or a grace period's end has killed."""


class _Verbose(msgspec.Struct):
    """The fields of the verbose info's JSON that containerd and CRI-O share. All others are skipped unparsed."""

    pid: int = 0
    sandbox_id: str = msgspec.field(name="sandboxID", default="")


def _verbose(info: Mapping[str, str]) -> _Verbose:
    # The CRI leaves the format open. With another format only the pid is missing.
    try:
        return untrusted.decode_json(info["info"], _Verbose)
    except (KeyError, msgspec.DecodeError):
        return _Verbose()


def _integer(text: str, otherwise: int) -> int:
    try:
        return int(text)
    except ValueError:
        return otherwise


def node_families(node_ip: str) -> tuple[int, ...]:
    """4 or 6 for each part of --node-ip, among them 0.0.0.0 and ::. Without that flag IPv4 is the node's family."""
    found = [parsed(part) for part in node_ip.split(",")]
    return tuple(one.version for one in found if one is not None) or (4,)


def sorted_ips(ips: tuple[str, ...], node_ip: str) -> tuple[str, ...]:
    """At most one address of each family, that of --node-ip's first part before the other, in the usual notation.

    The kubelet's sortPodIPs (pkg/kubelet/kubelet_pods.go). The pod's status and its containers' variables agree. The
    Node's addresses do not count: a cloud provider may put IPv6 first on a node whose pods have had IPv4 first.
    """
    known = [found for ip in ips if (found := _address(ip)) is not None]
    families = (6, 4) if node_families(node_ip)[0] == 6 else (4, 6)
    return tuple(str(ip) for family in families for ip in [one for one in known if one.version == family][:1])


def _address(text: str) -> IP | None:
    """The address that a runtime sends; None for other texts. Zeros may lead its numbers, as in Go's ParseIPSloppy."""
    return None if "%" in text else parsed(_LEADING_ZEROS.sub("", text))


@dataclass(frozen=True, slots=True)
class SandboxView:
    """One pod sandbox."""

    id: str
    state: SandboxState = "ready"
    attempt: int = 0
    created_at_ns: int = 0
    ips: tuple[str, ...] = ()
    """The runtime's order, the pod's primary address first; empty for a host-network pod."""
    pid: int = 0
    """Of the init process, in the host's namespace; 0: not known."""
    host_network: bool = False
    pod_name: str = ""
    pod_namespace: str = ""
    pod_uid: str = ""
    source: str = ""
    """Of the pod, as its annotation names it: file, http or api; empty when not listed."""
    complete: bool = False

    @classmethod
    def from_listed(cls, listed: pb.PodSandbox) -> SandboxView:
        """From an item of ListPodSandbox."""
        return cls(
            id=listed.id,
            state="ready" if listed.state == pb.SANDBOX_READY else "notready",
            attempt=listed.metadata.attempt,
            created_at_ns=listed.created_at,
            pod_name=listed.labels.get(labels.POD_NAME, listed.metadata.name),
            pod_namespace=listed.labels.get(labels.POD_NAMESPACE, listed.metadata.namespace),
            pod_uid=listed.labels.get(labels.POD_UID, ""),
            source=listed.annotations.get(SOURCE_ANNOTATION, ""),
        )

    @classmethod
    def from_status(cls, answer: pb.PodSandboxStatusResponse) -> SandboxView:
        """From PodSandboxStatus; the pid needs verbose."""
        status = answer.status
        host_network = status.linux.namespaces.options.network == pb.NODE
        ips = (status.network.ip, *(additional.ip for additional in status.network.additional_ips))
        return cls(
            id=status.id,
            state="ready" if status.state == pb.SANDBOX_READY else "notready",
            attempt=status.metadata.attempt,
            created_at_ns=status.created_at,
            ips=() if host_network else tuple(ip for ip in ips if ip),
            pid=_verbose(answer.info).pid,
            host_network=host_network,
            pod_name=status.labels.get(labels.POD_NAME, status.metadata.name),
            pod_namespace=status.labels.get(labels.POD_NAMESPACE, status.metadata.namespace),
            pod_uid=status.labels.get(labels.POD_UID, ""),
            complete=True,
        )

    @property
    def is_final(self) -> bool:
        """Return True when the runtime's record does not change any more."""
        return self.complete and self.state == "notready"


@dataclass(frozen=True, slots=True)
class UserView:
    """User and groups of the first process, if the runtime reports them."""

    uid: int
    gid: int
    supplemental_groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourcesView:
    """Resources of a container's cgroup as the runtime reports them; 0: not reported or not set."""

    milli_cpu_request: int = 0
    milli_cpu_limit: int = 0
    memory_limit_bytes: int = 0

    @classmethod
    def from_status(cls, status: pb.ContainerStatus) -> ResourcesView | None:
        """None if the runtime reports nothing."""
        linux = status.resources.linux
        found = cls(
            milli_cpu_request=shares_to_milli_cpu(linux.cpu_shares),
            milli_cpu_limit=quota_to_milli_cpu(linux.cpu_quota, linux.cpu_period),
            memory_limit_bytes=max(0, linux.memory_limit_in_bytes),
        )
        return found if found != cls() else None


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One instance of a container: each restart makes a new one. Times are nanoseconds since the epoch, 0: not yet."""

    id: str
    name: str
    attempt: int = 0
    sandbox_id: str = ""
    state: ContainerState = "created"
    created_at_ns: int = 0
    started_at_ns: int = 0
    finished_at_ns: int = 0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    image: str = ""
    """A name of the image, as the runtime resolved it."""
    image_ref: str = ""
    """Digest or ID, the status's imageID."""
    hash: str = ""
    """io.kubernetes.container.hash, set at creation."""
    restart_count: int = 0
    pid: int = 0
    """Of the init process, in the host's namespace; 0: not known or not running."""
    log_path: str = ""
    """Absolute."""
    user: UserView | None = None
    resources: ResourcesView | None = None
    stop_signal: str = ""
    termination_message_path: str = ""
    """In the container."""
    termination_message_policy: str = ""
    termination_message_host_path: str = ""
    """On the host; empty when nothing is mounted there."""
    recursive_read_only: tuple[str, ...] = ()
    """Paths in the container that are mounted recursively read-only."""
    image_mounts: tuple[tuple[str, str], ...] = ()
    """(path in the container, image ID) of its image volumes."""
    grace_period_s: int = DEFAULT_GRACE_PERIOD_S
    """The pod's terminationGracePeriodSeconds, set at creation."""
    pre_stop_handler: str = ""
    """io.kubernetes.container.preStopHandler: JSON of a LifecycleHandler; empty without one."""
    ports: str = ""
    """io.kubernetes.container.ports: JSON of the spec's ports, which a hook may name."""
    pod_name: str = ""
    pod_namespace: str = ""
    pod_uid: str = ""
    complete: bool = False

    @classmethod
    def from_listed(cls, listed: pb.Container) -> ContainerView:
        """From an item of ListContainers."""
        return cls(
            id=listed.id,
            sandbox_id=listed.pod_sandbox_id,
            attempt=listed.metadata.attempt,
            state=_CONTAINER_STATES.get(listed.state, "unknown"),
            created_at_ns=listed.created_at,
            image=listed.image.user_specified_image or listed.image.image,
            image_ref=listed.image_ref,
            **_from_labels(listed.metadata, listed.labels, listed.annotations),
        )

    @classmethod
    def from_status(cls, answer: pb.ContainerStatusResponse) -> ContainerView:
        """From ContainerStatus; pid and sandbox_id need verbose (`PodView.with_container` keeps known ones)."""
        status, verbose = answer.status, _verbose(answer.info)
        known = _from_labels(status.metadata, status.labels, status.annotations)
        message_paths = _mounted_at(known["termination_message_path"])
        mounted = (m.host_path for m in status.mounts if m.container_path in message_paths)
        user = status.user.linux if status.user.HasField("linux") else None
        return cls(
            id=status.id,
            sandbox_id=verbose.sandbox_id,
            attempt=status.metadata.attempt,
            state="created" if _start_was_given_up(status) else _CONTAINER_STATES.get(status.state, "unknown"),
            created_at_ns=status.created_at,
            started_at_ns=max(0, status.started_at),
            finished_at_ns=max(0, status.finished_at),
            exit_code=status.exit_code,
            reason=status.reason,
            message=status.message,
            image=status.image.user_specified_image or status.image.image,
            image_ref=status.image_ref,
            pid=verbose.pid,
            log_path=status.log_path,
            user=user and UserView(user.uid, user.gid, tuple(user.supplemental_groups)),
            resources=ResourcesView.from_status(status),
            stop_signal=_signal_name(status.stop_signal),
            termination_message_host_path=next(mounted, ""),
            recursive_read_only=tuple(m.container_path for m in status.mounts if m.recursive_read_only),
            image_mounts=tuple(_image_mounts(status.mounts)),
            complete=True,
            **known,
        )

    @property
    def is_final(self) -> bool:
        """Return True when the runtime's record does not change any more.

        The reason OOMKilled may come after the exit, by an event of its own.
        """
        return self.complete and self.state == "exited" and self.exit_code != KILLED


def absolute(path: str) -> str:
    """`path` in a container, absolute and clean, as the kubelet hands it to the runtime (MakeAbsolutePath)."""
    return os.path.normpath(f"/{path.lstrip('/')}")


def _mounted_at(message_path: str) -> tuple[str, ...]:
    """Paths at which a container may have its termination message: older containers have it as written."""
    return (absolute(message_path), message_path) if message_path else ()


def _image_mounts(mounts: Iterable[pb.Mount]) -> Iterator[tuple[str, str]]:
    """Yield the path and the image of image volumes. A runtime that resolves no image tells the ID it was given."""
    for mount in mounts:
        image = mount.image.image_ref or mount.image.image
        if image:
            yield mount.container_path, image


def _start_was_given_up(status: pb.ContainerStatus) -> bool:
    """Return True when a start failed only because its caller, this process, was killed.

    Such a start is neither a restart nor an exit. The texts are containerd's, for a StartContainer that was cancelled
    after and before its shim ran.
    """
    if status.state != pb.CONTAINER_EXITED or status.reason != "StartError" or status.started_at > 0:
        return False
    return "context canceled" in status.message or "start failed: : signal: killed" in status.message


def _signal_name(signal: int) -> str:
    """The signal's name in the API, `SIGRTMIN+3`; empty for the runtime's default, and for a number of a newer CRI."""
    known = pb.Signal.DESCRIPTOR.values_by_number.get(signal)
    if not signal or known is None:
        return ""
    return known.name.removeprefix("SIGNAL_").replace("PLUS", "+").replace("MINUS", "-")


def _restart_count(attempt: int, annotated: str) -> int:
    """From both places that have it. A count that is too low would give a new container a name that is taken."""
    count = _integer(annotated, 0)
    return max(attempt, count) if count < MOST_RESTARTS else attempt


def _from_labels(
    metadata: pb.ContainerMetadata, own: Mapping[str, str], annotations: Mapping[str, str]
) -> dict[str, Any]:
    grace = annotations.get(labels.POD_DELETION_GRACE_PERIOD) or annotations.get(labels.POD_TERMINATION_GRACE_PERIOD)
    return {
        "name": own.get(labels.CONTAINER_NAME, metadata.name),
        "pod_name": own.get(labels.POD_NAME, ""),
        "pod_namespace": own.get(labels.POD_NAMESPACE, ""),
        "pod_uid": own.get(labels.POD_UID, ""),
        "hash": annotations.get(labels.CONTAINER_HASH, ""),
        "restart_count": _restart_count(metadata.attempt, annotations.get(labels.RESTART_COUNT, "")),
        "termination_message_path": annotations.get(labels.TERMINATION_MESSAGE_PATH, ""),
        "termination_message_policy": annotations.get(labels.TERMINATION_MESSAGE_POLICY, ""),
        "grace_period_s": _integer(grace or "", DEFAULT_GRACE_PERIOD_S),
        "pre_stop_handler": annotations.get(labels.PRE_STOP_HANDLER, ""),
        "ports": annotations.get(labels.PORTS, ""),
    }


@dataclass(frozen=True, slots=True)
class PodView:
    """Everything of one pod that the runtime has, newest first."""

    sandboxes: tuple[SandboxView, ...] = ()
    containers: tuple[ContainerView, ...] = ()

    @classmethod
    def of(cls, sandboxes: Iterable[SandboxView], containers: Iterable[ContainerView]) -> PodView:
        """Sorted newest first: by attempt, then by creation time, which a clock that is set back makes earlier.

        So does the kubelet with sandboxes (kubernetes/kubernetes#130551). Containers of one name are in the order of
        their starts; between names the order means nothing.
        """
        return cls(tuple(sorted(sandboxes, key=_age)), tuple(sorted(containers, key=_age)))

    @classmethod
    def listed(cls, sandboxes: Iterable[pb.PodSandbox], containers: Iterable[pb.Container]) -> PodView:
        """From ListPodSandbox and ListContainers of one pod."""
        return cls.of(map(SandboxView.from_listed, sandboxes), map(ContainerView.from_listed, containers))

    @classmethod
    def by_pod(cls, sandboxes: Iterable[pb.PodSandbox], containers: Iterable[pb.Container]) -> dict[str, PodView]:
        """From lists of all pods, by pod UID.

        Left out: sandboxes and containers without the kubelet's labels, and UIDs that are not a safe path component.
        """
        found: dict[str, tuple[list[SandboxView], list[ContainerView]]] = {}
        for sandbox in map(SandboxView.from_listed, sandboxes):
            found.setdefault(sandbox.pod_uid, ([], []))[0].append(sandbox)
        for container in map(ContainerView.from_listed, containers):
            found.setdefault(container.pod_uid, ([], []))[1].append(container)
        return {uid: cls.of(*both) for uid, both in found.items() if not component_problem(uid)}

    # Questions

    def ids(self) -> tuple[str, ...]:
        """CRI IDs of all sandboxes and containers."""
        return (*(sandbox.id for sandbox in self.sandboxes), *(container.id for container in self.containers))

    def is_alive(self, identity: str) -> bool:
        """Return True when the sandbox or container of that ID may still have a process."""
        sandbox = self.sandbox(identity)
        if sandbox is not None:
            return sandbox.state == "ready"
        container = self.container_by_id(identity)
        return container is not None and container.state != "exited"

    def sandbox(self, identity: str) -> SandboxView | None:
        """The sandbox of that ID."""
        return next((sandbox for sandbox in self.sandboxes if sandbox.id == identity), None)

    def container_by_id(self, identity: str) -> ContainerView | None:
        """The container of that ID."""
        return next((container for container in self.containers if container.id == identity), None)

    def container(self, name: str) -> ContainerView | None:
        """The newest instance of the container of that name, in any sandbox."""
        return next((container for container in self.containers if container.name == name), None)

    def previous(self, name: str) -> ContainerView | None:
        """The instance before the newest one, while the runtime keeps it."""
        instances = (container for container in self.containers if container.name == name)
        next(instances, None)
        return next(instances, None)

    def last_exited(self, name: str) -> ContainerView | None:
        """The newest instance of the container of that name that has exited."""
        return next((one for one in self.containers if one.name == name and one.state == "exited"), None)

    def in_sandbox(self, name: str, sandbox_id: str) -> ContainerView | None:
        """The newest instance of the container of that name in one sandbox."""
        instances = (c for c in self.containers if c.name == name and c.sandbox_id == sandbox_id)
        return next(instances, None)

    @property
    def ready_sandbox(self) -> SandboxView | None:
        """The newest sandbox, if it is ready."""
        newest = self.sandboxes[0] if self.sandboxes else None
        return newest if newest is not None and newest.state == "ready" else None

    @property
    def has_processes(self) -> bool:
        """True while any process of the pod may run."""
        containers = any(container.state in ("running", "unknown") for container in self.containers)
        return containers or any(sandbox.state == "ready" for sandbox in self.sandboxes)

    @property
    def pod_name(self) -> str:
        """Of the labels."""
        found: tuple[SandboxView | ContainerView, ...] = (*self.sandboxes, *self.containers)
        return next((one.pod_name for one in found if one.pod_name), "")

    @property
    def pod_namespace(self) -> str:
        """Of the labels."""
        found: tuple[SandboxView | ContainerView, ...] = (*self.sandboxes, *self.containers)
        return next((one.pod_namespace for one in found if one.pod_namespace), "")

    @property
    def grace_period_s(self) -> int:
        """Of the container with the highest attempt, from its annotations; without a container the API's default."""
        return self.containers[0].grace_period_s if self.containers else DEFAULT_GRACE_PERIOD_S

    @property
    def changeable_ids(self) -> set[str]:
        """CRI IDs of the sandboxes and containers that are not final."""
        found: tuple[SandboxView | ContainerView, ...] = (*self.sandboxes, *self.containers)
        return {one.id for one in found if not one.is_final}

    # Changes

    def with_final_of(self, known: PodView) -> PodView:
        """With the final records of `known` in place of a list's incomplete ones of the same state."""
        sandboxes = {(one.id, one.state): one for one in known.sandboxes if one.is_final}
        containers = {(one.id, one.state): one for one in known.containers if one.is_final}
        return PodView(
            tuple(sandboxes.get((one.id, one.state), one) for one in self.sandboxes),
            tuple(containers.get((one.id, one.state), one) for one in self.containers),
        )

    def with_sandbox(self, found: SandboxView) -> PodView:
        """With this sandbox added or replaced."""
        others = (sandbox for sandbox in self.sandboxes if sandbox.id != found.id)
        return PodView(tuple(sorted((found, *others), key=_age)), self.containers)

    def with_stopped_sandbox(self, identity: str) -> PodView:
        """After StopPodSandbox. The addresses stay, as in containerd, for the status."""
        sandboxes = (replace(s, state="notready", pid=0) if s.id == identity else s for s in self.sandboxes)
        return PodView(tuple(sandboxes), self.containers)

    def with_container(self, found: ContainerView) -> PodView:
        """With this container added or replaced. A known sandbox ID and pid are kept: a status may lack them."""
        known = self.container_by_id(found.id)
        if known is not None:
            pid = found.pid or (known.pid if found.state == "running" else 0)
            found = replace(found, sandbox_id=found.sandbox_id or known.sandbox_id, pid=pid)
        others = (container for container in self.containers if container.id != found.id)
        return PodView(self.sandboxes, tuple(sorted((found, *others), key=_age)))

    def without(self, identity: str) -> PodView:
        """Without the sandbox or container of that ID."""
        return PodView(
            tuple(sandbox for sandbox in self.sandboxes if sandbox.id != identity),
            tuple(container for container in self.containers if container.id != identity),
        )


def _age(found: SandboxView | ContainerView) -> tuple[int, int]:
    return (-found.attempt, -found.created_at_ns)
