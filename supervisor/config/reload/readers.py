"""Which actors read which setting: what has to start again when one changes. Pure.

A test compares the table with what the actors' sources read.
"""

from __future__ import annotations

from collections.abc import Iterable

from proto.agent.settings import Settings


def _actors(names: str) -> frozenset[str]:
    return frozenset(names.split())


_RUNTIME = _actors("container_gc image_gc pleg pod_workers probe stats")
_CGROUPS = _actors("container_gc pod_workers stats")
_POD_WORKERS = _actors("pod_workers")
_IMAGE_PULL = _actors("image_pull")
_IMAGE_GC = _actors("image_gc")
_CONTAINER_GC = _actors("container_gc")
_CONFIG = _actors("config")
_EVICTION = _actors("eviction")
_VOLUME = _actors("volume")
_NODE = _actors("node")
_CERTIFICATES = _actors("certificates")
_STATUS = _actors("status")
_EVENTS = _actors("events")
_OBJECTS = _actors("objects")
_SERVER = _actors("server")
_RUNTIME_ITSELF = _actors("runtime")
"""The embedded one."""
_NOBODY = _actors("")

READERS: dict[str, frozenset[str]] = {
    "run_dir": _actors("objects server") | _RUNTIME_ITSELF,
    "root_dir": _RUNTIME_ITSELF
    | _actors("config container_gc events eviction image_gc image_pull")
    | _actors("pod_workers probe stats status volume")
    | _NODE
    | _SERVER,
    "take_over": _POD_WORKERS | _CONTAINER_GC | _IMAGE_GC,
    "pod_manifest_path": _CONFIG | _RUNTIME_ITSELF,
    "pod_sources": _POD_WORKERS,
    "objects_dir": _actors("config objects pod_workers") | _RUNTIME_ITSELF,
    "images_dir": _RUNTIME_ITSELF,
    "host_image_for_all": _RUNTIME_ITSELF,
    "registries_dir": _RUNTIME_ITSELF,
    "kubeconfig": _NODE
    | _CERTIFICATES
    | _CONFIG
    | _POD_WORKERS
    | _STATUS
    | _EVENTS
    | _OBJECTS
    | _VOLUME
    | _SERVER
    | _RUNTIME_ITSELF,
    "bootstrap_kubeconfig": _CERTIFICATES | _RUNTIME_ITSELF,
    "cert_dir": _CERTIFICATES | _SERVER | _RUNTIME_ITSELF,
    "rotate_certificates": _CERTIFICATES,
    "server_tls_bootstrap": _CERTIFICATES,
    "event_record_qps": _EVENTS,
    "event_burst": _EVENTS,
    "kube_api_qps": _NODE | _STATUS | _OBJECTS,
    "kube_api_burst": _NODE | _STATUS | _OBJECTS,
    "config_map_and_secret_change_detection_strategy": _OBJECTS,
    "cluster_trust_bundle_projection": _OBJECTS | _VOLUME,
    "register_node": _NODE,
    "provider_id": _NODE,
    "cloud_provider": _NODE,
    "node_status_update_frequency_s": _NODE,
    "node_status_report_frequency_s": _NODE,
    "node_lease_duration_s": _NODE,
    "node_status_max_images": _NODE,
    "enable_controller_attach_detach": _NODE,
    "shutdown_grace": _NODE,
    "container_runtime_endpoint": _RUNTIME | _SERVER,
    "image_service_endpoint": _actors("pleg pod_workers"),
    "node_name": _actors("config events eviction pod_workers stats status volume")
    | _NODE
    | _CERTIFICATES
    | _OBJECTS
    | _SERVER,
    "node_ip": _POD_WORKERS | _NODE | _CERTIFICATES,
    "pod_logs_dir": _CGROUPS | _SERVER,
    "container_logs_dir": _actors("container_gc pod_workers"),
    "enable_server": _SERVER,
    "server_address": _SERVER,
    "server_port": _SERVER | _NODE,
    "read_only_port": _SERVER,
    "page_address": _SERVER,
    "tls_cert_file": _SERVER,
    "tls_private_key_file": _SERVER | _RUNTIME_ITSELF,
    "tls_cipher_suites": _SERVER,
    "tls_min_version": _SERVER,
    "client_ca_file": _SERVER,
    "anonymous_auth": _SERVER,
    "webhook_authentication": _SERVER,
    "token_cache_s": _SERVER,
    "authorization_mode": _SERVER,
    "authorized_cache_s": _SERVER,
    "unauthorized_cache_s": _SERVER,
    "enable_debugging_handlers": _SERVER,
    "enable_profiling_handler": _SERVER,
    "enable_debug_flags_handler": _SERVER,
    "enable_system_log_handler": _SERVER,
    "streaming_idle_timeout_s": _SERVER | _RUNTIME_ITSELF,
    "extend_websockets_to_kubelet": _NODE | _SERVER,
    "container_log_max_bytes": _CONTAINER_GC,
    "container_log_max_files": _CONTAINER_GC,
    "container_log_max_workers": _CONTAINER_GC,
    "container_log_monitor_interval_s": _CONTAINER_GC,
    "sync_frequency_s": _POD_WORKERS | _OBJECTS | _VOLUME,
    "file_check_frequency_s": _actors("config objects"),
    "runtime_request_timeout_s": _actors("container_gc pod_workers") | _SERVER,
    "max_pods": _POD_WORKERS | _EVICTION | _VOLUME | _NODE,
    "node_labels": _actors("pod_workers volume") | _NODE,
    "register_with_taints": _POD_WORKERS | _NODE,
    "allowed_unsafe_sysctls": _POD_WORKERS,
    "system_reserved": _POD_WORKERS | _EVICTION | _VOLUME | _NODE,
    "kube_reserved": _POD_WORKERS | _EVICTION | _VOLUME | _NODE,
    "enforce_node_allocatable": _POD_WORKERS | _EVICTION,
    "system_reserved_cgroup": _POD_WORKERS,
    "kube_reserved_cgroup": _POD_WORKERS,
    "seccomp_default": _POD_WORKERS,
    "user_namespace_ids_per_pod": _POD_WORKERS,
    "memory_reserved_by_qos_percent": _POD_WORKERS,
    "cgroup_driver": _CGROUPS | _EVICTION | _RUNTIME_ITSELF,
    "cgroup_root": _CGROUPS | _EVICTION,
    "cgroups_per_qos": _CGROUPS | _EVICTION,
    "cpu_cfs_quota": _POD_WORKERS,
    "cpu_cfs_quota_period_us": _POD_WORKERS,
    "pod_pids_limit": _POD_WORKERS,
    "memory_swap_behavior": _POD_WORKERS,
    "single_process_oom_kill": _POD_WORKERS,
    "cluster_dns": _POD_WORKERS,
    "cluster_domain": _POD_WORKERS,
    "resolv_conf": _POD_WORKERS,
    "registry_pull_qps": _IMAGE_PULL,
    "registry_burst": _IMAGE_PULL,
    "serialize_image_pulls": _IMAGE_PULL,
    "max_parallel_image_pulls": _IMAGE_PULL,
    "image_pull_verification": _IMAGE_PULL,
    "image_pull_verification_allowlist": _IMAGE_PULL,
    "image_credential_provider_config": _IMAGE_PULL | _RUNTIME_ITSELF,
    "image_credential_provider_bin_dir": _IMAGE_PULL,
    "image_gc_high_threshold_percent": _IMAGE_GC,
    "image_gc_low_threshold_percent": _IMAGE_GC,
    "image_minimum_gc_age_s": _IMAGE_GC,
    "image_maximum_gc_age_s": _IMAGE_GC,
    "image_gc_period_s": _IMAGE_GC,
    "keep_images": _IMAGE_GC,
    "container_gc_min_age_s": _CONTAINER_GC,
    "container_gc_max_per_pod_container": _CONTAINER_GC,
    "container_gc_max_containers": _CONTAINER_GC,
    "container_gc_period_s": _CONTAINER_GC,
    "eviction_hard": _actors("eviction pod_workers volume") | _NODE,
    "eviction_soft": _EVICTION,
    "eviction_soft_grace_s": _EVICTION,
    "eviction_minimum_reclaim": _EVICTION,
    "eviction_max_pod_grace_period_s": _EVICTION,
    "eviction_monitoring_period_s": _EVICTION,
    "local_storage_capacity_isolation": _EVICTION,
    "volume_stats_agg_period_s": _VOLUME,
    "eviction_pressure_transition_period_s": _EVICTION,
    "crash_loop_initial_back_off_s": _POD_WORKERS,
    "crash_loop_max_back_off_s": _POD_WORKERS,
    "crash_loop_reset_s": _POD_WORKERS,
    "image_pull_initial_back_off_s": _IMAGE_PULL,
    "image_pull_max_back_off_s": _IMAGE_PULL,
    "relist_period_s": _actors("pleg"),
    "heartbeat_period_s": _NOBODY,
    "verbosity": _NOBODY,
    "log_format": _NOBODY,
    "extra": _RUNTIME_ITSELF,
}
"""Every field of Settings. What actors._base reads in each process is in FIXED, EVERYWHERE or TOLD instead."""

FIXED: dict[str, str] = {
    "run_dir": "the sockets are there",
    "root_dir": "the pods' directories are there",
    "node_name": "the pods' UIDs and names come from it",
    "container_runtime_endpoint": "the running pods are that runtime's",
    "image_service_endpoint": "the images of the running pods are there",
    "pod_logs_dir": "running containers write there",
    "container_logs_dir": "the links of running containers are there",
    "cgroup_driver": "running pods are in that driver's cgroups",
    "cgroup_root": "the cgroups of running pods are below it",
    "cgroups_per_qos": "the cgroups of running pods are named by it",
    "rotate_certificates": "which processes run is decided by it",
    "server_tls_bootstrap": "which processes run is decided by it",
    "heartbeat_period_s": "the supervisor's own state is built on it",
}
"""Settings for the life of an agent, and why."""

EVERYWHERE = frozenset({"log_format", "extra"})
"""Read in every process."""

TOLD = frozenset({"verbosity"})
"""What running processes are told of, without a restart."""


def changed(old: Settings, new: Settings) -> tuple[str, ...]:
    """The settings that differ."""
    return tuple(name for name in Settings.__struct_fields__ if getattr(old, name) != getattr(new, name))


def concerned(fields: Iterable[str], actors: Iterable[str]) -> tuple[str, ...]:
    """Those of `actors` that start again when the fields change, in their order."""
    fields = tuple(fields)
    if EVERYWHERE.intersection(fields):
        return tuple(actors)
    readers = frozenset[str]().union(*(READERS[name] for name in fields))
    return tuple(name for name in actors if name in readers)
