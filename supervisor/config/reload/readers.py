"""Tables of the actors that read each setting: a changed setting restarts its readers. Pure.

A test compares the tables with the actors' sources.
"""

from __future__ import annotations

from collections.abc import Iterable

from proto.agent.settings import Settings

_READ_BY = {
    "certificates": """
        kubeconfig bootstrap_kubeconfig cert_dir rotate_certificates follow_api_authority server_tls_bootstrap
        tls_cert_file tls_private_key_file node_name dns_only_serving_certificate
    """,
    "config": """
        root_dir pod_manifest_path objects_dir kubeconfig cert_dir rotate_certificates follow_api_authority node_name
        users_on_host_network file_check_frequency_s static_pod_url static_pod_url_header http_check_frequency_s
    """,
    "container_gc": """
        root_dir take_over container_runtime_endpoint pod_logs_dir container_logs_dir container_log_max_bytes
        container_log_max_files container_log_max_workers container_log_monitor_interval_s runtime_request_timeout_s
        cgroup_driver cgroup_root cgroups_per_qos container_gc_min_age_s container_gc_max_per_pod_container
        container_gc_max_containers container_gc_period_s
    """,
    "events": """
        root_dir kubeconfig cert_dir rotate_certificates follow_api_authority event_record_qps event_burst node_name
    """,
    "eviction": """
        run_dir root_dir node_name max_pods system_reserved kube_reserved enforce_node_allocatable cgroup_driver
        cgroup_root cgroups_per_qos eviction_hard eviction_soft eviction_soft_grace_s eviction_minimum_reclaim
        eviction_max_pod_grace_period_s eviction_monitoring_period_s local_storage_capacity_isolation
        eviction_pressure_transition_period_s kernel_memcg_notification
    """,
    "image_gc": """
        root_dir take_over container_runtime_endpoint image_gc_high_threshold_percent image_gc_low_threshold_percent
        image_minimum_gc_age_s image_maximum_gc_age_s image_gc_period_s keep_images protected_images
        collect_local_images images_by_handler
    """,
    "image_pull": """
        root_dir registry_pull_qps registry_burst serialize_image_pulls max_parallel_image_pulls image_pull_verification
        image_pull_verification_allowlist image_credential_provider_config image_credential_provider_bin_dir
        image_pull_initial_back_off_s image_pull_max_back_off_s
    """,
    "node": """
        run_dir root_dir kubeconfig cert_dir rotate_certificates follow_api_authority kube_api_qps kube_api_burst
        register_node create_node_first provider_id cloud_provider node_status_update_frequency_s
        node_status_report_frequency_s node_lease_duration_s node_status_max_images shutdown_grace keep_shutdown_times
        pod_cidr node_name node_ip server_port extend_websockets_to_kubelet users_on_host_network max_pods node_labels
        register_with_taints system_reserved kube_reserved eviction_hard local_storage_capacity_isolation
        allocatable_ignores_eviction make_iptables_util_chains cgroup_driver kubelet_version
    """,
    "objects": """
        run_dir objects_dir kubeconfig cert_dir rotate_certificates follow_api_authority kube_api_qps kube_api_burst
        config_map_and_secret_change_detection_strategy cluster_trust_bundle_projection pod_certificate_request
        node_name sync_frequency_s file_check_frequency_s
    """,
    "oom": "root_dir container_runtime_endpoint cgroup_driver cgroup_root",
    "pleg": "container_runtime_endpoint image_service_endpoint relist_period_s",
    "pod_workers": """
        run_dir root_dir take_over pod_sources objects_dir kubeconfig container_runtime_endpoint image_service_endpoint
        node_name node_ip cloud_provider pod_logs_dir container_logs_dir sync_frequency_s runtime_request_timeout_s
        max_pods node_labels register_with_taints reset_readiness_at_start compare_taint_values image_volume_digests
        images_by_handler allowed_unsafe_sysctls system_reserved kube_reserved enforce_node_allocatable
        system_reserved_cgroup kube_reserved_cgroup seccomp_default user_namespace_ids_per_pod
        memory_reserved_by_qos_percent memory_throttling_factor memory_reservation_policy cgroup_driver cgroup_root
        cgroups_per_qos cpu_cfs_quota cpu_cfs_quota_period_us pod_pids_limit memory_swap_behavior
        single_process_oom_kill cluster_dns cluster_domain resolv_conf eviction_hard crash_loop_initial_back_off_s
        crash_loop_max_back_off_s crash_loop_reset_s local_storage_capacity_isolation allocatable_ignores_eviction
        cpu_manager_policy memory_manager_policy cpu_quota_with_exclusive_cpus
    """,
    "probe": "root_dir container_runtime_endpoint",
    "resources": """
        run_dir root_dir kubeconfig container_runtime_endpoint system_reserved kube_reserved cpu_manager_policy
        cpu_manager_policy_options cpu_manager_reconcile_period_s reserved_system_cpus topology_manager_policy
        topology_manager_scope topology_manager_policy_options pod_level_resource_managers memory_manager_policy
        reserved_memory max_pods eviction_hard local_storage_capacity_isolation allocatable_ignores_eviction
        pod_resources_active_pods resource_health_status resource_health_messages
    """,
    "remote_console": "run_dir root_dir console_address",
    "runtime": """
        run_dir root_dir pod_manifest_path objects_dir images_dir host_image_for_all registries_dir kubeconfig
        bootstrap_kubeconfig cert_dir tls_private_key_file streaming_idle_timeout_s cgroup_driver
        image_credential_provider_config extra
    """,
    "server": """
        run_dir root_dir kubeconfig cert_dir rotate_certificates follow_api_authority kube_api_qps kube_api_burst
        container_runtime_endpoint node_name pod_logs_dir enable_server server_address server_port read_only_port
        page_address tls_cert_file tls_private_key_file server_tls_bootstrap tls_cipher_suites tls_min_version
        tls_curve_preferences client_ca_file user_uid_of_certificate anonymous_auth webhook_authentication
        token_cache_s authorization_mode authorized_cache_s unauthorized_cache_s
        enable_debugging_handlers enable_profiling_handler enable_debug_flags_handler enable_system_log_handler
        enable_system_log_query streaming_idle_timeout_s extend_websockets_to_kubelet split_log_streams
        runtime_request_timeout_s kubelet_version
    """,
    "stats": """
        root_dir container_runtime_endpoint node_name pod_logs_dir cgroup_driver cgroup_root cgroups_per_qos
        separate_disk_gc system_cgroups runtime_cgroups
    """,
    "status": """
        root_dir kubeconfig cert_dir rotate_certificates follow_api_authority kube_api_qps kube_api_burst node_name
    """,
    "tracing": "tracing_endpoint node_name",
    "volume": """
        root_dir kubeconfig cluster_trust_bundle_projection pod_certificate_request node_name sync_frequency_s
        max_pods node_labels system_reserved kube_reserved eviction_hard volume_stats_agg_period_s
        local_storage_capacity_isolation allocatable_ignores_eviction selinux_mount
    """,
}
"""The settings that each actor's own modules read, by actor. `runtime` is the embedded container runtime."""

READERS = {
    name: frozenset(actor for actor, read in _READ_BY.items() if name in read.split())
    for name in Settings.__struct_fields__
}
"""The actors that read each setting, for every field of Settings. FIXED, EVERYWHERE and TOLD have the settings that
`actors._base` reads in every process."""

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
    "heartbeat_period_s": "the supervisor's own state is built on it",
    "fault_injection": "it is allowed for an agent by its start only",
}
"""Settings that are fixed for the life of an agent, each with the reason."""

FROM_FLAGS = ("run_dir", "root_dir", "node_name", "container_logs_dir")
"""Fixed settings that no file can change. They come from flags, the environment and the host's name. A new host
name takes effect at a start, as with the kubelet."""

EVERYWHERE = frozenset(
    {
        "log_format",
        "vmodule",
        "recorder_mib",
        "tracing_endpoint",
        "tracing_sampling_rate_per_million",
        "extra",
    }
)
"""Read in every process."""

TOLD = frozenset({"verbosity"})
"""Settings that running processes are told of, without a restart."""


def changed(old: Settings, new: Settings) -> tuple[str, ...]:
    """The settings that differ."""
    return tuple(name for name in Settings.__struct_fields__ if getattr(old, name) != getattr(new, name))


def concerned(fields: Iterable[str], actors: Iterable[str]) -> tuple[str, ...]:
    """The actors that restart when these fields change, in the order of `actors`."""
    fields = tuple(fields)
    if EVERYWHERE.intersection(fields):
        return tuple(actors)
    readers = frozenset[str]().union(*(READERS[name] for name in fields))
    return tuple(name for name in actors if name in readers)
