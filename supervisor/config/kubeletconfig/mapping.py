"""Maps the fields of a checked configuration to attributes of Settings, with the actors that read them.

`verdicts` lists the other fields.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from proto.agent.settings import ReservedMemory, Settings, ShutdownGrace, Taint
from supervisor.config.kubeletconfig.cpuset import parse_cpuset
from supervisor.config.kubeletconfig.feature_gates import Gates
from supervisor.config.kubeletconfig.typed import schema
from supervisor.config.kubeletconfig.typed.types import KubeletConfiguration
from supervisor.config.kubeletconfig.validation.eviction import hard
from supervisor.config.kubeletconfig.validation.network import usable_servers

SYSTEM_CRITICAL = 2_000_000_000
"""Priority of system-cluster-critical; system-node-critical is above it."""
DEFAULT_RUNTIME = "unix:///run/containerd/containerd.sock"
REDUCED_BACK_OFF_S = (1.0, 60.0)
"""The first and the longest back-off with ReduceDefaultCrashLoopBackOffDecay."""

DEFAULT_COLLECTOR = "localhost:4317"
"""OTLP's port for gRPC; where `tracing` is written without an endpoint."""


class Effect(NamedTuple):
    """The attribute of Settings that a field sets or affects, and the actors that read the attribute."""

    attribute: str
    used_by: str
    convert: Callable[[Any], Any] | None = None
    """Function of the field's value; None: `to_settings` combines it with other fields."""


def _same(value: Any) -> Any:
    return value


def _seconds(nanoseconds: int) -> float:
    return nanoseconds / 1e9


def _rate(value: int | None) -> float:
    return float(value or 0)


def _microseconds(nanoseconds: int) -> int:
    return nanoseconds // 1000


def _strings(value: tuple[str, ...] | None) -> tuple[str, ...]:
    return value or ()


def _servers(value: tuple[str, ...] | None) -> tuple[str, ...]:
    return usable_servers(value or ())


def _taints(value: Any) -> tuple[Taint, ...]:
    return tuple(Taint(key=one.key, value=one.value, effect=one.effect) for one in value or ())


def _reserved_memory(value: Any) -> tuple[ReservedMemory, ...]:
    return tuple(ReservedMemory(numa_node=one.numa_node, limits=dict(one.limits or {})) for one in value or ())


def _header(value: dict[str, tuple[str, ...]] | None) -> dict[str, tuple[str, ...]]:
    return dict(value or {})


def _vmodule(value: Any) -> dict[str, int]:
    """The first of two equal patterns counts, and a verbosity of 0 is ignored, as in klog."""
    found: dict[str, int] = {}
    for one in value or ():
        if one.verbosity:
            found.setdefault(one.file_pattern, one.verbosity)
    return found


def _map(value: dict[str, str] | None) -> dict[str, str]:
    return dict(value or {})


def _durations(value: dict[str, str] | None) -> dict[str, float]:
    if not value:
        return {}
    from proto.v1.scalars.duration import parse_seconds  # noqa: PLC0415 - loads the API types

    return {signal: parse_seconds(text) for signal, text in value.items()}


def _bytes(quantity: str) -> int:
    if quantity == "10Mi":
        return 10 * 1024 * 1024  # the default, without an import of the API types
    from proto.v1.scalars.quantity import value  # noqa: PLC0415 - loads the API types

    return value(quantity)


def _cgroup_root(value: str) -> str:
    return value or "/"


EFFECTIVE: dict[str, Effect] = {
    "staticPodPath": Effect("pod_manifest_path", "config, runtime", _same),
    "staticPodURL": Effect("static_pod_url", "config", _same),
    "staticPodURLHeader": Effect("static_pod_url_header", "config", _header),
    "httpCheckFrequency": Effect("http_check_frequency_s", "config", _seconds),
    "podLogsDir": Effect("pod_logs_dir", "pod_workers, stats, container_gc, server", _same),
    "syncFrequency": Effect("sync_frequency_s", "pod_workers, objects, volume", _seconds),
    "fileCheckFrequency": Effect("file_check_frequency_s", "config, objects", _seconds),
    "registryPullQPS": Effect("registry_pull_qps", "image_pull", float),
    "registryBurst": Effect("registry_burst", "image_pull", _same),
    "clusterDomain": Effect("cluster_domain", "pod_workers", _same),
    "clusterDNS": Effect("cluster_dns", "pod_workers", _servers),
    "imageMinimumGCAge": Effect("image_minimum_gc_age_s", "image_gc", _seconds),
    "imageMaximumGCAge": Effect("image_maximum_gc_age_s", "image_gc", _seconds),
    "imageGCHighThresholdPercent": Effect("image_gc_high_threshold_percent", "image_gc", _same),
    "imageGCLowThresholdPercent": Effect("image_gc_low_threshold_percent", "image_gc", _same),
    "cgroupRoot": Effect("cgroup_root", "pod_workers, stats, container_gc, eviction, oom", _cgroup_root),
    "cgroupsPerQOS": Effect("cgroups_per_qos", "pod_workers, stats, container_gc, eviction", _same),
    "cgroupDriver": Effect("cgroup_driver", "pod_workers, stats, container_gc, eviction, oom, node, runtime", _same),
    "runtimeRequestTimeout": Effect("runtime_request_timeout_s", "pod_workers, container_gc, server", _seconds),
    "maxPods": Effect("max_pods", "pod_workers, resources, eviction, volume, node"),
    "podsPerCore": Effect("max_pods", "pod_workers, resources, eviction, volume, node"),
    "registerWithTaints": Effect("register_with_taints", "pod_workers, node", _taints),
    "allowedUnsafeSysctls": Effect("allowed_unsafe_sysctls", "pod_workers", _strings),
    "systemReserved": Effect("system_reserved", "pod_workers, resources, eviction, volume, node"),
    "kubeReserved": Effect("kube_reserved", "pod_workers, resources, eviction, volume, node"),
    "reservedSystemCPUs": Effect(
        "reserved_system_cpus", "resources; their number replaces the reserved amounts of cpu", _same
    ),
    "cpuManagerPolicy": Effect("cpu_manager_policy", "resources, pod_workers", _same),
    "cpuManagerPolicyOptions": Effect("cpu_manager_policy_options", "resources", _map),
    "cpuManagerReconcilePeriod": Effect("cpu_manager_reconcile_period_s", "resources", _seconds),
    "memoryManagerPolicy": Effect("memory_manager_policy", "resources, pod_workers", _same),
    "reservedMemory": Effect("reserved_memory", "resources", _reserved_memory),
    "topologyManagerPolicy": Effect("topology_manager_policy", "resources", _same),
    "topologyManagerScope": Effect("topology_manager_scope", "resources", _same),
    "topologyManagerPolicyOptions": Effect("topology_manager_policy_options", "resources", _map),
    "seccompDefault": Effect("seccomp_default", "pod_workers", bool),
    "userNamespaces.idsPerPod": Effect("user_namespace_ids_per_pod", "pod_workers"),
    "enforceNodeAllocatable": Effect("enforce_node_allocatable", "pod_workers, eviction", _strings),
    "systemReservedCgroup": Effect("system_reserved_cgroup", "pod_workers", _same),
    "kubeReservedCgroup": Effect("kube_reserved_cgroup", "pod_workers", _same),
    "systemCgroups": Effect("system_cgroups", "stats; measured only, a warning says so", _same),
    "qosReserved": Effect("memory_reserved_by_qos_percent", "pod_workers; needs feature gate QOSReserved"),
    "memoryThrottlingFactor": Effect(
        "memory_throttling_factor", "pod_workers; on cgroup v2, needs feature gate MemoryQoS"
    ),
    "memoryReservationPolicy": Effect("memory_reservation_policy", "pod_workers; as memoryThrottlingFactor", _same),
    "podPidsLimit": Effect("pod_pids_limit", "pod_workers", _same),
    "memorySwap.swapBehavior": Effect("memory_swap_behavior", "pod_workers", _same),
    "singleProcessOOMKill": Effect("single_process_oom_kill", "pod_workers", _same),
    "resolvConf": Effect("resolv_conf", "pod_workers", _same),
    "cpuCFSQuota": Effect("cpu_cfs_quota", "pod_workers", _same),
    "cpuCFSQuotaPeriod": Effect("cpu_cfs_quota_period_us", "pod_workers", _microseconds),
    "kernelMemcgNotification": Effect(
        "kernel_memcg_notification", "eviction; on cgroup v2 notices need no setting", _same
    ),
    "serializeImagePulls": Effect("serialize_image_pulls", "image_pull", _same),
    "maxParallelImagePulls": Effect("max_parallel_image_pulls", "image_pull", _same),
    "imagePullCredentialsVerificationPolicy": Effect(
        "image_pull_verification", "image_pull; needs feature gate KubeletEnsureSecretPulledImages (on by default)"
    ),
    "preloadedImagesVerificationAllowlist": Effect("image_pull_verification_allowlist", "image_pull", _strings),
    "evictionHard": Effect("eviction_hard", "eviction, pod_workers, resources, volume, node"),
    "mergeDefaultEvictionSettings": Effect("eviction_hard", "eviction, pod_workers, resources, volume, node"),
    "evictionSoft": Effect("eviction_soft", "eviction", _map),
    "evictionSoftGracePeriod": Effect("eviction_soft_grace_s", "eviction", _durations),
    "evictionMinimumReclaim": Effect("eviction_minimum_reclaim", "eviction", _map),
    "evictionMaxPodGracePeriod": Effect("eviction_max_pod_grace_period_s", "eviction", _same),
    "localStorageCapacityIsolation": Effect(
        "local_storage_capacity_isolation", "eviction, pod_workers, resources, volume, node", bool
    ),
    "volumeStatsAggPeriod": Effect("volume_stats_agg_period_s", "volume", _seconds),
    "evictionPressureTransitionPeriod": Effect("eviction_pressure_transition_period_s", "eviction", _seconds),
    "crashLoopBackOff.maxContainerRestartPeriod": Effect("crash_loop_max_back_off_s", "pod_workers"),
    "logging.verbosity": Effect("verbosity", "every process; 0 means the built-in 2"),
    "logging.format": Effect("log_format", "every process", _same),
    "logging.vmodule": Effect("vmodule", "every process; names of Python files", _vmodule),
    "tracing.endpoint": Effect("tracing_endpoint", "every process; the packages of nodevisor[tracing] are needed"),
    "tracing.samplingRatePerMillion": Effect("tracing_sampling_rate_per_million", "every process"),
    "kubeAPIQPS": Effect("kube_api_qps", "node, status, objects, server", float),
    "configMapAndSecretChangeDetectionStrategy": Effect(
        "config_map_and_secret_change_detection_strategy", "objects", _same
    ),
    "kubeAPIBurst": Effect("kube_api_burst", "node, status, objects, server", _same),
    "rotateCertificates": Effect(
        "rotate_certificates", "certificates; config, events, node, objects, server, status: as clients", bool
    ),
    "serverTLSBootstrap": Effect("server_tls_bootstrap", "certificates, server", bool),
    "eventRecordQPS": Effect("event_record_qps", "events", _rate),
    "eventBurst": Effect("event_burst", "events", _same),
    "shutdownGracePeriod": Effect("shutdown_grace", "node"),
    "shutdownGracePeriodCriticalPods": Effect("shutdown_grace", "node"),
    "shutdownGracePeriodByPodPriority": Effect("shutdown_grace", "node"),
    "makeIPTablesUtilChains": Effect(
        "make_iptables_util_chains",
        "node; with the machine's iptables; without a cluster only where true is written",
        bool,
    ),
    "podCIDR": Effect("pod_cidr", "node", _same),
    "registerNode": Effect("register_node", "node", bool),
    "providerID": Effect("provider_id", "node", _same),
    "nodeStatusUpdateFrequency": Effect("node_status_update_frequency_s", "node", _seconds),
    "nodeStatusReportFrequency": Effect("node_status_report_frequency_s", "node", _seconds),
    "nodeLeaseDurationSeconds": Effect("node_lease_duration_s", "node", float),
    "nodeStatusMaxImages": Effect("node_status_max_images", "node", _same),
    "enableServer": Effect("enable_server", "server", bool),
    "address": Effect("server_address", "server", _same),
    "port": Effect("server_port", "server, node", _same),
    "readOnlyPort": Effect("read_only_port", "server", _same),
    "tlsCertFile": Effect("tls_cert_file", "server, certificates", _same),
    "tlsPrivateKeyFile": Effect("tls_private_key_file", "server, certificates, runtime", _same),
    "tlsCipherSuites": Effect("tls_cipher_suites", "server", _strings),
    "tlsMinVersion": Effect("tls_min_version", "server", _same),
    "tlsCurvePreferences": Effect("tls_curve_preferences", "server", lambda value: value or ()),
    "authentication.x509.clientCAFile": Effect("client_ca_file", "server", _same),
    "authentication.anonymous.enabled": Effect("anonymous_auth", "server", bool),
    "authentication.webhook.enabled": Effect("webhook_authentication", "server", bool),
    "authentication.webhook.cacheTTL": Effect("token_cache_s", "server", _seconds),
    "authorization.mode": Effect("authorization_mode", "server", _same),
    "authorization.webhook.cacheAuthorizedTTL": Effect("authorized_cache_s", "server", _seconds),
    "authorization.webhook.cacheUnauthorizedTTL": Effect("unauthorized_cache_s", "server", _seconds),
    "enableDebuggingHandlers": Effect("enable_debugging_handlers", "server", bool),
    "enableProfilingHandler": Effect("enable_profiling_handler", "server", bool),
    "enableDebugFlagsHandler": Effect("enable_debug_flags_handler", "server", bool),
    "enableSystemLogHandler": Effect("enable_system_log_handler", "server", bool),
    "enableSystemLogQuery": Effect("enable_system_log_query", "server", bool),
    "featureGates": Effect("extend_websockets_to_kubelet", "node, server; see feature-gates.md"),
    "streamingConnectionIdleTimeout": Effect("streaming_idle_timeout_s", "server, runtime", _seconds),
    "containerLogMaxSize": Effect("container_log_max_bytes", "container_gc", _bytes),
    "containerLogMaxFiles": Effect("container_log_max_files", "container_gc", _same),
    "containerLogMaxWorkers": Effect("container_log_max_workers", "container_gc", _same),
    "containerLogMonitorInterval": Effect("container_log_monitor_interval_s", "container_gc", _seconds),
    "containerRuntimeEndpoint": Effect(
        "container_runtime_endpoint",
        "pod_workers, resources, pleg, image_gc, container_gc, probe, stats, oom, server; "
        "the default is that of running pods, else the first socket found",
    ),
    "imageServiceEndpoint": Effect("image_service_endpoint", "pod_workers, pleg", _same),
}


_GATES = {
    "cluster_trust_bundle_projection": "ClusterTrustBundleProjection",
    "compare_taint_values": "TaintTolerationComparisonOperators",
    "create_node_first": "KubeletRegistrationGetOnExistsOnly",
    "dns_only_serving_certificate": "AllowDNSOnlyNodeCSR",
    "extend_websockets_to_kubelet": "ExtendWebSocketsToKubelet",
    "follow_api_authority": "ClientsAllowCARotation",
    "image_volume_digests": "ImageVolumeWithDigest",
    "images_by_handler": "RuntimeClassInImageCriApi",
    "keep_shutdown_times": "GracefulNodeShutdownBasedOnPodPriority",
    "pod_certificate_request": "PodCertificateRequest",
    "pod_level_resource_managers": "PodLevelResourceManagers",
    "pod_resources_active_pods": "KubeletPodResourcesListUseActivePods",
    "reset_readiness_at_start": "ChangeContainerStatusOnKubeletRestart",
    "resource_health_messages": "ResourceHealthStatusMessage",
    "resource_health_status": "ResourceHealthStatus",
    "selinux_mount": "SELinuxMount",
    "separate_disk_gc": "KubeletSeparateDiskGC",
    "split_log_streams": "PodLogsQuerySplitStreams",
    "user_uid_of_certificate": "AllowParsingUserUIDFromCertAuth",
    "users_on_host_network": "UserNamespacesHostNetworkSupport",
}
"""The feature gates that are settings by themselves, by setting."""


def to_settings(config: KubeletConfiguration, base: Settings, cores: int | None = None) -> Settings:
    """`base` with the effective fields of a checked configuration with defaults.

    `cores` is for podsPerCore; None: this machine's number.
    """
    values = {
        effect.attribute: effect.convert(schema.get(config, path))
        for path, effect in EFFECTIVE.items()
        if effect.convert is not None
    }
    values["max_pods"] = _max_pods(config, cores)
    values["eviction_hard"] = hard(config)
    values.update(_reserved(config))
    values["memory_reserved_by_qos_percent"] = _memory_by_qos(config)
    values["memory_throttling_factor"] = _throttling_factor(config)
    verified = Gates(config.feature_gates or {}).enabled("KubeletEnsureSecretPulledImages")
    values["image_pull_verification"] = config.image_pull_credentials_verification_policy if verified else ""
    gates = Gates(config.feature_gates or {})
    values.update({attribute: gates.enabled(name) for attribute, name in _GATES.items()})
    values["cpu_quota_with_exclusive_cpus"] = not gates.enabled("DisableCPUQuotaWithExclusiveCPUs")
    values.update(_back_off(config, base))
    values["shutdown_grace"] = _shutdown_grace(config)
    if config.user_namespaces is not None and config.user_namespaces.ids_per_pod:
        values["user_namespace_ids_per_pod"] = config.user_namespaces.ids_per_pod
    if config.tracing is not None:
        values["tracing_endpoint"] = config.tracing.endpoint or DEFAULT_COLLECTOR
        values["tracing_sampling_rate_per_million"] = config.tracing.sampling_rate_per_million or 0
    if config.logging.verbosity:
        values["verbosity"] = config.logging.verbosity
    if config.container_runtime_endpoint != DEFAULT_RUNTIME:
        values["container_runtime_endpoint"] = config.container_runtime_endpoint
    return msgspec.structs.replace(base, **values)


def _max_pods(config: KubeletConfiguration, cores: int | None) -> int:
    if not config.pods_per_core:
        return config.max_pods
    return min(config.max_pods, config.pods_per_core * (cores or os.cpu_count() or 1))


def _reserved(config: KubeletConfiguration) -> dict[str, dict[str, str]]:
    """Resources reserved from pods. reservedSystemCPUs replaces the amounts of CPU, as in the kubelet."""
    system, kube = dict(config.system_reserved or {}), dict(config.kube_reserved or {})
    if config.reserved_system_cpus:
        kube.pop("cpu", None)
        system["cpu"] = str(len(parse_cpuset(config.reserved_system_cpus)))
    return {"system_reserved": system, "kube_reserved": kube}


def _memory_by_qos(config: KubeletConfiguration) -> int:
    share = (config.qos_reserved or {}).get("memory", "0%")
    return int(share.removesuffix("%")) if Gates(config.feature_gates or {}).enabled("QOSReserved") else 0


def _throttling_factor(config: KubeletConfiguration) -> float:
    on = Gates(config.feature_gates or {}).enabled("MemoryQoS")
    return float(config.memory_throttling_factor or 0) if on else 0.0


def _shutdown_grace(config: KubeletConfiguration) -> tuple[ShutdownGrace, ...]:
    """Grace periods by priority. The two periods are a short form: critical pods get the last part of the time."""
    if config.shutdown_grace_period_by_pod_priority:
        return tuple(
            ShutdownGrace(priority=one.priority, grace_s=one.shutdown_grace_period_seconds)
            for one in sorted(config.shutdown_grace_period_by_pod_priority, key=lambda one: one.priority)
        )
    total, critical = config.shutdown_grace_period, config.shutdown_grace_period_critical_pods
    if not total:
        return ()
    return (
        ShutdownGrace(priority=0, grace_s=int(_seconds(total - critical))),
        ShutdownGrace(priority=SYSTEM_CRITICAL, grace_s=int(_seconds(critical))),
    )


def _back_off(config: KubeletConfiguration, base: Settings) -> dict[str, float]:
    """The first and the longest back-off (newCrashLoopBackOff in pkg/kubelet/kubelet.go)."""
    first, longest = base.crash_loop_initial_back_off_s, base.crash_loop_max_back_off_s
    if Gates(config.feature_gates or {}).enabled("ReduceDefaultCrashLoopBackOffDecay"):
        first, longest = REDUCED_BACK_OFF_S
    period = config.crash_loop_back_off.max_container_restart_period
    if period is not None:  # a maximum below the initial back-off replaces that too
        longest = _seconds(period)
        first = min(first, longest)
    return {"crash_loop_max_back_off_s": longest, "crash_loop_initial_back_off_s": first}
