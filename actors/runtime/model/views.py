"""CRI messages that show sandboxes and containers."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from actors.runtime.model.state import Container, Sandbox
from actors.runtime.policy import matches_id, matches_labels, signal_of
from actors.runtime.selinux.labels import Labels
from proto.cri import api_pb2 as pb

_SIGNALS = {one.name: one.value for one in signal.Signals}


def listed_sandbox(sandbox: Sandbox) -> pb.PodSandbox:
    """An item of ListPodSandbox."""
    config = sandbox.config
    return pb.PodSandbox(
        id=sandbox.record.id,
        metadata=config.metadata,
        state=sandbox.state,
        created_at=sandbox.record.created_at_ns,
        labels=config.labels,
        annotations=config.annotations,
        runtime_handler=sandbox.record.handler,
    )


def sandbox_matches(sandbox: Sandbox, wanted: pb.PodSandboxFilter) -> bool:
    """Return True when the filter accepts the sandbox."""
    if not matches_id(sandbox.record.id, wanted.id):
        return False
    if wanted.HasField("state") and wanted.state.state != sandbox.state:
        return False
    return matches_labels(sandbox.config.labels, wanted.label_selector)


def sandbox_status(sandbox: Sandbox) -> pb.PodSandboxStatus:
    """The answer of PodSandboxStatus."""
    record, config = sandbox.record, sandbox.config
    primary, *others = (() if record.stopped else record.ips) or ("",)
    return pb.PodSandboxStatus(
        id=record.id,
        metadata=config.metadata,
        state=sandbox.state,
        created_at=record.created_at_ns,
        network=pb.PodSandboxNetworkStatus(ip=primary, additional_ips=[pb.PodIP(ip=ip) for ip in others]),
        linux=pb.LinuxPodSandboxStatus(
            namespaces=pb.Namespace(options=config.linux.security_context.namespace_options)
        ),
        labels=config.labels,
        annotations=config.annotations,
        runtime_handler=record.handler,
    )


def sandbox_info(sandbox: Sandbox) -> Mapping[str, str]:
    """Verbose information of PodSandboxStatus, with containerd's keys."""
    record = sandbox.record
    info = {"pid": record.pause_pid, "namespaces": record.namespaces, "network": record.network}
    info |= _labels(record.labels)
    return {"info": msgspec.json.encode(info).decode()}


def listed_container(container: Container) -> pb.Container:
    """An item of ListContainers."""
    record, config = container.record, container.config
    return pb.Container(
        id=record.id,
        pod_sandbox_id=record.sandbox_id,
        metadata=config.metadata,
        image=config.image,
        image_ref=record.image_ref,
        image_id=record.image_id,
        state=container.state,
        created_at=record.created_at_ns,
        labels=config.labels,
        annotations=config.annotations,
    )


def container_matches(container: Container, wanted: pb.ContainerFilter) -> bool:
    """Return True when the filter accepts the container."""
    record = container.record
    if not matches_id(record.id, wanted.id) or not matches_id(record.sandbox_id, wanted.pod_sandbox_id):
        return False
    if wanted.HasField("state") and wanted.state.state != container.state:
        return False
    return matches_labels(container.config.labels, wanted.label_selector)


def container_status(container: Container) -> pb.ContainerStatus:
    """The answer of ContainerStatus."""
    record, config, started = container.record, container.config, container.started
    uid, gid, groups = record.user
    status = pb.ContainerStatus(
        id=record.id,
        metadata=config.metadata,
        state=container.state,
        created_at=record.created_at_ns,
        started_at=started.at_ns if started is not None else 0,
        image=config.image,
        image_ref=record.image_ref,
        image_id=record.image_id,
        labels=config.labels,
        annotations=config.annotations,
        mounts=_mounts(container),
        log_path=record.log_path,
        resources=pb.ContainerResources(linux=config.linux.resources),
        user=pb.ContainerUser(linux=pb.LinuxContainerUser(uid=uid, gid=gid, supplemental_groups=groups)),
        stop_signal=signal_of(record.stop_signal, _SIGNALS),
    )
    if record.finished is not None:
        status.finished_at = record.finished.at_ns
        status.exit_code = record.finished.code
        status.reason = record.finished.reason
        status.message = record.finished.message
    return status


def _mounts(container: Container) -> Sequence[pb.Mount]:
    """The requested mounts; image mounts with the reference of the image in use (KEP-5365)."""
    if not container.record.volumes:
        return container.config.mounts
    config = pb.ContainerConfig(mounts=container.config.mounts)
    for volume in container.record.volumes:
        config.mounts[volume.mount].image.image_ref = volume.image_id
    return config.mounts


def container_info(container: Container) -> Mapping[str, str]:
    """Verbose information of ContainerStatus, with containerd's keys."""
    running = container.state == pb.CONTAINER_RUNNING and container.started is not None
    info = {
        "sandboxID": container.record.sandbox_id,
        "pid": container.started.pid if running and container.started is not None else 0,
        "cgroup": container.record.cgroup,
        "layers": container.record.layers,
    } | _labels(container.record.labels)
    return {"info": msgspec.json.encode(info).decode()}


def _labels(labels: Labels) -> dict[str, Any]:
    """The SELinux labels, where there are some."""
    return {"processLabel": labels.process, "mountLabel": labels.mount} if labels.mount else {}
