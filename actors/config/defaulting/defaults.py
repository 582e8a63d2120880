"""Sets a pod's API defaults, which every later step relies on.

Covers the defaulting of core/v1 for Pods in Kubernetes 1.36 with its default feature gates
(pkg/apis/core/v1/defaults.go and the `+default` markers of the types). Leaves out the fields that admission adds in a
cluster (priority, service account, tolerations for not-ready nodes). As in Go, a zero value such as "" is absent.
"""

from typing import Any, TypeVar

from msgspec.structs import replace

from actors.config.defaulting.images import pull_policy
from actors.config.defaulting.pod_level import default_pod_resources
from actors.config.defaulting.volume_defaults import default_field_refs, default_volume
from proto import v1

DEFAULT_GRACE_PERIOD_SECONDS = 30
TERMINATION_MESSAGE_PATH = "/dev/termination-log"

C = TypeVar("C", bound=v1.Container)


def default_pod(pod: v1.Pod) -> v1.Pod:
    """Return the pod with every default set. Idempotent."""
    spec = _default_spec(pod.spec)
    return replace(pod, spec=default_pod_resources(spec))


def _default_spec(spec: v1.PodSpec) -> v1.PodSpec:
    host_network = bool(spec.host_network)
    return replace(
        spec,
        dns_policy=spec.dns_policy or "ClusterFirst",
        restart_policy=spec.restart_policy or "Always",
        security_context=spec.security_context or v1.PodSecurityContext(),
        termination_grace_period_seconds=_grace_period(spec.termination_grace_period_seconds),
        scheduler_name=spec.scheduler_name or "default-scheduler",
        enable_service_links=_present(spec.enable_service_links, True),
        service_account=spec.service_account_name or spec.service_account,
        service_account_name=spec.service_account_name or spec.service_account,
        volumes=tuple(map(default_volume, spec.volumes)),
        containers=tuple(_default_container(one, host_network) for one in spec.containers),
        init_containers=tuple(_default_container(one, host_network) for one in spec.init_containers),
        ephemeral_containers=tuple(_default_container(one, False) for one in spec.ephemeral_containers),
    )


def _grace_period(seconds: int | None) -> int:
    # A negative one counts as 1 in every pod since Kubernetes 1.27, and the kubelet hashes the UID from that.
    if seconds is None:
        return DEFAULT_GRACE_PERIOD_SECONDS
    return 1 if seconds < 0 else seconds


def _present(value: Any, default: Any) -> Any:
    return default if value is None else value


def _default_container(container: C, host_network: bool) -> C:
    return replace(
        container,
        image_pull_policy=container.image_pull_policy or pull_policy(container.image or ""),
        termination_message_path=container.termination_message_path or TERMINATION_MESSAGE_PATH,
        termination_message_policy=container.termination_message_policy or "File",
        ports=tuple(_default_port(port, host_network) for port in container.ports),
        env=tuple(map(_default_env, container.env)),
        resources=_default_requests(container.resources),
        liveness_probe=_default_probe(container.liveness_probe),
        readiness_probe=_default_probe(container.readiness_probe),
        startup_probe=_default_probe(container.startup_probe),
        lifecycle=_default_lifecycle(container.lifecycle),
    )


def _default_port(port: v1.ContainerPort, host_network: bool) -> v1.ContainerPort:
    host_port = port.host_port or (port.container_port if host_network else port.host_port)
    return replace(port, protocol=port.protocol or "TCP", host_port=host_port)


def _default_env(variable: v1.EnvVar) -> v1.EnvVar:
    if variable.value_from is None:
        return variable
    source = default_field_refs(variable.value_from)
    if source.file_key_ref is not None and source.file_key_ref.optional is None:
        source = replace(source, file_key_ref=replace(source.file_key_ref, optional=False))
    return replace(variable, value_from=source)


def _default_requests(resources: v1.ResourceRequirements) -> v1.ResourceRequirements:
    if not resources.limits:
        return resources
    return replace(resources, requests={**resources.limits, **resources.requests})


def _default_probe(probe: v1.Probe | None) -> v1.Probe | None:
    if probe is None:
        return None
    grpc = probe.grpc
    return replace(
        probe,
        timeout_seconds=probe.timeout_seconds or 1,
        period_seconds=probe.period_seconds or 10,
        success_threshold=probe.success_threshold or 1,
        failure_threshold=probe.failure_threshold or 3,
        http_get=_default_http_get(probe.http_get),
        grpc=replace(grpc, service="") if grpc is not None and grpc.service is None else grpc,
    )


def _default_http_get(action: v1.HTTPGetAction | None) -> v1.HTTPGetAction | None:
    if action is None:
        return None
    return replace(action, path=action.path or "/", scheme=action.scheme or "HTTP")


def _default_lifecycle(lifecycle: v1.Lifecycle | None) -> v1.Lifecycle | None:
    if lifecycle is None:
        return None
    post_start, pre_stop = _default_handler(lifecycle.post_start), _default_handler(lifecycle.pre_stop)
    return replace(lifecycle, post_start=post_start, pre_stop=pre_stop)


def _default_handler(handler: v1.LifecycleHandler | None) -> v1.LifecycleHandler | None:
    return None if handler is None else replace(handler, http_get=_default_http_get(handler.http_get))
