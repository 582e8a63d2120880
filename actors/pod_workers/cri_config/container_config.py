"""Builds CRI's ContainerConfig of a container, labels and annotations included.

Source: pkg/kubelet/kuberuntime/kuberuntime_container.go. `container_config` is pure; `build_container_config` adds the
node's settings. Security, mounts, environment, block devices and granted CPUs and devices have their own modules.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from actors._cgroup import hierarchy
from actors._cgroup.quantities.cri import linux_container_resources
from actors._cgroup.quantities.resources import container_resources
from actors._host.files import paths
from actors._host.files.hashing import container_hash
from actors._host.machine import memory_capacity
from actors._host.node.downward import NodeFacts, default_limits
from actors.pod_workers.cri_config.block_devices import volume_devices
from actors.pod_workers.cri_config.host_files import HostFiles
from actors.pod_workers.cri_config.mounts import MountInputs, container_mounts
from actors.pod_workers.cri_config.namespaces import OF_THE_NODE
from actors.pod_workers.cri_config.security import security_context
from actors.pod_workers.environment.variables import ConfigError, Sources, environment, expand_words, to_bytes
from actors.pod_workers.shared.worker_context import WorkerContext
from proto.cri import api_pb2 as pb
from proto.cri import labels
from proto.node.image_pull import ImageEnsured
from proto.v1 import Container, Pod

__all__ = ["ConfigError", "InstanceInputs", "build_container_config", "container_config"]


@dataclass(frozen=True, slots=True)
class InstanceInputs:
    """The inputs of one container instance besides its spec."""

    image_ref: str
    restart_count: int = 0
    image_user: str = ""
    """UID or name; empty when it is not known."""
    envs: Mapping[str, str] = field(default_factory=dict)
    mounts: MountInputs = field(default_factory=MountInputs)
    files: HostFiles = field(default_factory=HostFiles)
    resources: pb.LinuxContainerResources | None = None
    seccomp_root: str = ""
    seccomp_default: bool = False
    masked_paths: tuple[str, ...] = ()
    users: pb.UserNamespace = field(default_factory=lambda: OF_THE_NODE)


def build_container_config(
    pod: Pod,
    container: Container,
    sources: Sources,
    restart_count: int,
    image: ImageEnsured,
    mounts: MountInputs,
    files: HostFiles,
    context: WorkerContext,
) -> pb.ContainerConfig:
    """The config with this node's settings. Raises ConfigError."""
    instance = InstanceInputs(
        image_ref=image.image_ref,
        restart_count=restart_count,
        image_user=image.user,
        envs=environment(pod, container, sources),
        mounts=mounts,
        files=files,
        resources=linux_resources(pod, container, context),
        seccomp_root=os.path.join(context.settings.root_dir, "seccomp"),
        seccomp_default=context.settings.seccomp_default,
        masked_paths=context.masked_paths,
        users=context.userns.of(pod),
    )
    return container_config(pod, container, instance)


def node_facts(context: WorkerContext) -> NodeFacts:
    """The node's facts for the downward API."""
    return NodeFacts(
        name=context.settings.node_name,
        host_ips=context.host_ips,
        allocatable=default_limits(context.allocatable),
    )


def linux_resources(pod: Pod, container: Container, context: WorkerContext) -> pb.LinuxContainerResources:
    """The container's limits on this node, for CreateContainer and UpdateContainerResources."""
    limits = container_resources(
        pod,
        container,
        context.settings,
        memory_capacity_bytes=memory_capacity(),
        allocatable_memory_bytes=context.allocatable.get("memory", 0),
        page_sizes=hierarchy.huge_page_sizes(),
        swap=hierarchy.swap_rules(context.settings.memory_swap_behavior),
    )
    return linux_container_resources(limits)


def container_config(pod: Pod, container: Container, instance: InstanceInputs) -> pb.ContainerConfig:
    """The config of one container instance. Raises ConfigError."""
    words = _expanded(container, instance.envs)
    return pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name=container.name, attempt=instance.restart_count),
        image=pb.ImageSpec(image=instance.image_ref, user_specified_image=container.image or ""),
        command=words[: len(container.command)],
        args=words[len(container.command) :],
        working_dir=container.working_dir or "",
        envs=[pb.KeyValue(key=name, value=to_bytes(value)) for name, value in instance.envs.items()],
        mounts=_of_users(container_mounts(pod, container, instance.mounts, instance.files), instance.users),
        devices=volume_devices(pod, container, instance.mounts.volumes),
        labels=_labels(pod, container),
        annotations=_annotations(pod, container, instance.restart_count),
        log_path=paths.container_log_path(container.name, instance.restart_count),
        stdin=bool(container.stdin),
        stdin_once=bool(container.stdin_once),
        tty=bool(container.tty),
        linux=pb.LinuxContainerConfig(
            resources=instance.resources,
            security_context=_security_context(pod, container, instance),
        ),
        stop_signal=_stop_signal(container),
    )


def _of_users(mounts: list[pb.Mount], users: pb.UserNamespace) -> list[pb.Mount]:
    """Add the pod's ID mapping to each mount. Without it, files in a user namespace belong to the overflow ID."""
    for mount in mounts:
        mount.uidMappings.extend(users.uids)
        mount.gidMappings.extend(users.gids)
    return mounts


def _security_context(pod: Pod, container: Container, instance: InstanceInputs) -> pb.LinuxContainerSecurityContext:
    return security_context(
        pod,
        container,
        instance.image_user,
        instance.seccomp_root,
        seccomp_default=instance.seccomp_default,
        users=instance.users,
        groups=instance.mounts.groups,
        masked_paths=instance.masked_paths,
    )


def join_processes(config: pb.ContainerConfig, target_id: str) -> None:
    """Let an ephemeral container see the processes of this CRI ID, unless the pod shares its processes."""
    options = config.linux.security_context.namespace_options
    if options.pid == pb.CONTAINER:
        options.pid = pb.TARGET
        options.target_id = target_id


def _expanded(container: Container, variables: Mapping[str, str]) -> list[str]:
    """The command and arguments with the variables. Raises ConfigError if a Secret's bytes make one not UTF-8."""
    words = (*container.command, *container.args)
    found = expand_words(words, variables, container.name)
    for word, text in zip(words, found, strict=True):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"the variables in {word!r} make it something that is not UTF-8 text") from None
    return found


def _labels(pod: Pod, container: Container) -> dict[str, str]:
    meta = pod.metadata
    return {
        labels.CONTAINER_NAME: container.name,
        labels.POD_NAME: meta.name,
        labels.POD_NAMESPACE: meta.namespace,
        labels.POD_UID: meta.uid,
    }


def _annotations(pod: Pod, container: Container, restart_count: int) -> dict[str, str]:
    """The facts that are needed to end the container when its spec is lost."""
    annotations = {
        labels.CONTAINER_HASH: container_hash(container.name, container.image or ""),
        labels.RESTART_COUNT: str(restart_count),
        labels.TERMINATION_MESSAGE_PATH: container.termination_message_path or "",
        labels.TERMINATION_MESSAGE_POLICY: container.termination_message_policy or "",
    }
    if pod.metadata.deletion_grace_period_seconds is not None:
        annotations[labels.POD_DELETION_GRACE_PERIOD] = str(pod.metadata.deletion_grace_period_seconds)
    if pod.spec.termination_grace_period_seconds is not None:
        annotations[labels.POD_TERMINATION_GRACE_PERIOD] = str(pod.spec.termination_grace_period_seconds)
    if container.lifecycle is not None and container.lifecycle.pre_stop is not None:
        annotations[labels.PRE_STOP_HANDLER] = msgspec.json.encode(container.lifecycle.pre_stop).decode()
    if container.ports:
        annotations[labels.PORTS] = msgspec.json.encode(container.ports).decode()
    return annotations


def _stop_signal(container: Container) -> pb.Signal.ValueType:
    """lifecycle.stopSignal (KEP-4960) by CRI's name; the image's if the spec has none."""
    wanted = container.lifecycle.stop_signal if container.lifecycle is not None else None
    if not wanted:
        return pb.SIGNAL_RUNTIME_DEFAULT
    try:
        return pb.Signal.Value(f"SIGNAL_{wanted.replace('+', 'PLUS').replace('-', 'MINUS')}")
    except ValueError as error:
        raise ConfigError(f'unsupported stop signal "{wanted}" of container "{container.name}"') from error
