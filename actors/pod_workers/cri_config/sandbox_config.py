"""Builds CRI's PodSandboxConfig of a pod, labels and annotations included.

Source: pkg/kubelet/kuberuntime/kuberuntime_sandbox.go. `sandbox_config` is pure; `build_sandbox_config` adds the node's
settings.
"""

from __future__ import annotations

from actors._cgroup.hierarchy import hierarchy
from actors._cgroup.names import pod_cgroup
from actors._cgroup.quantities.cri import linux_container_resources
from actors._cgroup.quantities.qos import qos_class
from actors._cgroup.quantities.resources import overhead_resources, sandbox_resources
from actors._host.files import paths
from actors._host.node.sysctl import dotted
from actors.pod_workers.cri_config.dns import DnsConfig, pod_dns, wants_cluster_dns, within_limits
from actors.pod_workers.cri_config.grants import NO_QUOTA
from actors.pod_workers.cri_config.hostname import pod_hostname
from actors.pod_workers.cri_config.namespaces import OF_THE_NODE, namespace_options
from actors.pod_workers.cri_config.resolv_conf import read_resolv_conf, unreadable
from actors.pod_workers.cri_config.security import selinux_options, supplemental_groups, supplemental_groups_policy
from actors.pod_workers.environment.variables import ConfigError
from actors.pod_workers.model import reasons
from actors.pod_workers.shared.worker_context import WorkerContext
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from proto.cri import labels
from proto.v1 import Container, Pod

_NO_CLUSTER_DNS = (
    'kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. '
    'Falling back to "Default" policy.'
)
_PROTOCOLS = {"TCP": pb.TCP, "UDP": pb.UDP, "SCTP": pb.SCTP}


def build_sandbox_config(
    pod: Pod, attempt: int, context: WorkerContext, handler: str | None = None, *, quota: bool = True
) -> pb.PodSandboxConfig:
    """The config with this node's settings. Reads resolv.conf. Raises ConfigError, reason CreatePodSandboxError.

    `handler`: the runtime handler of a new sandbox, which claims a user namespace; None for an existing sandbox.
    `quota`: see `sandbox_config`.
    """
    try:
        if handler is not None:
            context.userns.claim(pod, handler)
        dns = _dns(pod, context)
        parent = pod_cgroup_parent(pod, context)
        users, unified = context.userns.of(pod), hierarchy().unified
        return sandbox_config(pod, attempt, context.settings, parent, dns, users, quota=quota, unified=unified)
    except (ConfigError, OSError) as error:
        raise ConfigError(str(error), reasons.CREATE_POD_SANDBOX_ERROR) from error


def with_present_privilege(config: pb.PodSandboxConfig, pod: Pod) -> pb.PodSandboxConfig:
    """The sandbox's config for a call of now; `config` itself stays as it is.

    A runtime refuses a privileged container unless the config beside it is privileged. The sandbox may be older than an
    ephemeral container. The kubelet makes the whole config anew in each step; this reads resolv.conf no second time.
    """
    privileged = _is_privileged(pod)
    if config.linux.security_context.privileged == privileged:
        return config
    present = pb.PodSandboxConfig()
    present.CopyFrom(config)
    present.linux.security_context.privileged = privileged
    return present


def _dns(pod: Pod, context: WorkerContext) -> DnsConfig:
    """The pod's resolver settings; problems become events. Raises ConfigError if resolv.conf cannot be read."""
    settings = context.settings
    try:
        host = read_resolv_conf(settings.resolv_conf) if settings.resolv_conf else None
    except OSError as error:
        raise ConfigError(unreadable(settings.resolv_conf, error)) from error
    if wants_cluster_dns(pod) and not settings.cluster_dns:
        _report_missing_dns(pod, context)
    full = pod_dns(pod, settings.cluster_dns, settings.cluster_domain, host, settings.node_ip)
    dns, problems = within_limits(full)
    for problem in problems:
        context.events.pod(pod, "Warning", "DNSConfigForming", problem)
    return dns


def _report_missing_dns(pod: Pod, context: WorkerContext) -> None:
    """Record it for each pod, as the kubelet. Without a cluster no pod can have it: record it for the node, once."""
    if context.missing_dns_reported:
        return
    context.missing_dns_reported = not context.settings.kubeconfig
    context.events.node("Warning", "MissingClusterDNS", _NO_CLUSTER_DNS)
    if context.settings.kubeconfig:
        text = f'pod: "{reasons.pod_description(pod)}". {_NO_CLUSTER_DNS}'
        context.events.pod(pod, "Warning", "MissingClusterDNS", text)


def pod_cgroup_parent(pod: Pod, context: WorkerContext) -> str:
    """CRI's cgroup_parent of the pod; empty if the runtime chooses."""
    settings = context.settings
    return pod_cgroup(
        settings.cgroup_driver,
        settings.cgroup_root,
        settings.cgroups_per_qos,
        qos_class(pod),
        pod.metadata.uid,
    )


def sandbox_config(
    pod: Pod,
    attempt: int,
    settings: Settings,
    cgroup_parent: str,
    dns: DnsConfig,
    users: pb.UserNamespace = OF_THE_NODE,
    *,
    quota: bool = True,
    unified: bool = False,
) -> pb.PodSandboxConfig:
    """The config, given the pod's cgroup and resolver settings. Raises ConfigError.

    `quota`: tell the runtime the pod's CFS quota; False for a pod with exclusive CPUs, whose cgroup has none.
    `unified`: cgroup v2.
    """
    meta = pod.metadata
    config = pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(name=meta.name, uid=meta.uid, namespace=meta.namespace, attempt=attempt),
        log_directory=paths.pod_log_dir(settings.pod_logs_dir, meta.namespace, meta.name, meta.uid),
        dns_config=pb.DNSConfig(servers=dns.servers, searches=dns.searches, options=dns.options),
        port_mappings=[mapping for container in pod.spec.containers for mapping in _port_mappings(container)],
        labels=_pod_labels(pod),
        annotations=meta.annotations,
        linux=_linux(pod, settings, cgroup_parent, users, unified=unified),
    )
    if settings.cpu_cfs_quota and not quota:
        config.linux.resources.cpu_quota = NO_QUOTA
    if not pod.spec.host_network:
        config.hostname = pod_hostname(pod, settings.cluster_domain)
    return config


def _pod_labels(pod: Pod) -> dict[str, str]:
    meta = pod.metadata
    return meta.labels | {
        labels.POD_NAME: meta.name,
        labels.POD_NAMESPACE: meta.namespace,
        labels.POD_UID: meta.uid,
    }


def _port_mappings(container: Container) -> list[pb.PortMapping]:
    """Every declared port, mapped on the node or not, without duplicates."""
    mappings: dict[tuple[str, str, int, int], pb.PortMapping] = {}
    for port in container.ports:
        protocol, host_ip, host_port = port.protocol or "TCP", port.host_ip or "", port.host_port or 0
        mappings.setdefault(
            (protocol, host_ip, port.container_port, host_port),
            pb.PortMapping(
                protocol=_PROTOCOLS.get(protocol, pb.TCP),
                container_port=port.container_port,
                host_port=host_port,
                host_ip=host_ip,
            ),
        )
    return list(mappings.values())


def _linux(
    pod: Pod, settings: Settings, cgroup_parent: str, users: pb.UserNamespace, *, unified: bool
) -> pb.LinuxPodSandboxConfig:
    context = pod.spec.security_context
    return pb.LinuxPodSandboxConfig(
        cgroup_parent=cgroup_parent,
        security_context=_security_context(pod, users),
        sysctls={dotted(sysctl.name): sysctl.value for sysctl in context.sysctls} if context is not None else {},
        overhead=linux_container_resources(overhead_resources(pod, settings, unified=unified)),
        resources=linux_container_resources(sandbox_resources(pod, settings, unified=unified)),
    )


def _is_privileged(pod: Pod) -> bool:
    """Return True when one of the pod's containers is privileged, ephemeral ones included (HasPrivilegedContainer)."""
    return any(
        container.security_context is not None and bool(container.security_context.privileged)
        for container in (*pod.spec.init_containers, *pod.spec.containers, *pod.spec.ephemeral_containers)
    )


def _security_context(pod: Pod, users: pb.UserNamespace) -> pb.LinuxSandboxSecurityContext:
    """The sandbox's own process always has the runtime's default seccomp profile."""
    config = pb.LinuxSandboxSecurityContext(
        namespace_options=namespace_options(pod, users),
        privileged=_is_privileged(pod),
        seccomp=pb.SecurityProfile(profile_type=pb.SecurityProfile.RuntimeDefault),
        supplemental_groups=supplemental_groups(pod),
        supplemental_groups_policy=supplemental_groups_policy(pod),
    )
    context = pod.spec.security_context
    if context is None:
        return config
    if context.run_as_user is not None:
        config.run_as_user.CopyFrom(pb.Int64Value(value=context.run_as_user))
    if context.run_as_group is not None:
        config.run_as_group.CopyFrom(pb.Int64Value(value=context.run_as_group))
    if context.se_linux_options is not None:
        config.selinux_options.CopyFrom(selinux_options(context.se_linux_options))
    return config
