"""KubeletConfiguration: every field of v1beta1 in Kubernetes 1.36, in the order of its Go type.

`base` explains names and presence, `verdicts` lists the effects, `defaults` the defaults.
Source: https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/
"""

from __future__ import annotations

from supervisor.config.kubeletconfig.typed.base import ConfigStruct, Duration, Int32, Int64
from supervisor.config.kubeletconfig.typed.nested import (
    Authentication,
    Authorization,
    CrashLoopBackOff,
    Logging,
    MemoryReservation,
    MemorySwap,
    ShutdownGracePeriodByPodPriority,
    Taint,
    Tracing,
    UserNamespaces,
)

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"


class KubeletConfiguration(ConfigStruct, frozen=True, kw_only=True):
    """A configuration, with or without its defaults (`defaults.apply`)."""

    api_version: str = ""
    kind: str = ""

    # Pods by file and URL
    enable_server: bool | None = None
    static_pod_path: str = ""
    pod_logs_dir: str = ""
    sync_frequency: Duration = Duration(0)
    file_check_frequency: Duration = Duration(0)
    http_check_frequency: Duration = Duration(0)
    static_pod_url: str = ""
    static_pod_url_header: dict[str, tuple[str, ...]] | None = None

    # The server
    address: str = ""
    port: Int32 = Int32(0)
    read_only_port: Int32 = Int32(0)
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    tls_cipher_suites: tuple[str, ...] | None = None
    tls_curve_preferences: tuple[Int32, ...] | None = None
    tls_min_version: str = ""
    rotate_certificates: bool = False
    server_tls_bootstrap: bool = False
    authentication: Authentication = Authentication()
    authorization: Authorization = Authorization()

    # Images and events
    registry_pull_qps: Int32 | None = None
    registry_burst: Int32 = Int32(0)
    image_pull_credentials_verification_policy: str = ""
    preloaded_images_verification_allowlist: tuple[str, ...] | None = None
    event_record_qps: Int32 | None = None
    event_burst: Int32 = Int32(0)

    # Debugging and health
    enable_debugging_handlers: bool | None = None
    enable_contention_profiling: bool = False
    healthz_port: Int32 | None = None
    healthz_bind_address: str = ""
    oom_score_adj: Int32 | None = None

    # DNS and streams
    cluster_domain: str = ""
    cluster_dns: tuple[str, ...] | None = None
    streaming_connection_idle_timeout: Duration = Duration(0)

    # The node object
    node_status_update_frequency: Duration = Duration(0)
    node_status_report_frequency: Duration = Duration(0)
    node_lease_duration_seconds: Int32 = Int32(0)

    # Image garbage collection
    image_minimum_gc_age: Duration = Duration(0)
    image_maximum_gc_age: Duration = Duration(0)
    image_gc_high_threshold_percent: Int32 | None = None
    image_gc_low_threshold_percent: Int32 | None = None
    volume_stats_agg_period: Duration = Duration(0)

    # Cgroups and resource managers
    kubelet_cgroups: str = ""
    system_cgroups: str = ""
    cgroup_root: str = ""
    cgroups_per_qos: bool | None = None
    cgroup_driver: str = ""
    cpu_manager_policy: str = ""
    single_process_oom_kill: bool | None = None
    cpu_manager_policy_options: dict[str, str] | None = None
    cpu_manager_reconcile_period: Duration = Duration(0)
    memory_manager_policy: str = ""
    topology_manager_policy: str = ""
    topology_manager_scope: str = ""
    topology_manager_policy_options: dict[str, str] | None = None
    qos_reserved: dict[str, str] | None = None

    # Runtime, network, limits
    runtime_request_timeout: Duration = Duration(0)
    hairpin_mode: str = ""
    max_pods: Int32 = Int32(0)
    pod_cidr: str = ""
    pod_pids_limit: Int64 | None = None
    resolv_conf: str | None = None
    run_once: bool = False
    cpu_cfs_quota: bool | None = None
    cpu_cfs_quota_period: Duration | None = None
    node_status_max_images: Int32 | None = None
    max_open_files: Int64 = Int64(0)

    # API client
    content_type: str = ""
    kube_api_qps: Int32 | None = None
    kube_api_burst: Int32 = Int32(0)

    # Image pulls
    serialize_image_pulls: bool | None = None
    max_parallel_image_pulls: Int32 | None = None

    # Eviction
    eviction_hard: dict[str, str] | None = None
    eviction_soft: dict[str, str] | None = None
    eviction_soft_grace_period: dict[str, str] | None = None
    eviction_pressure_transition_period: Duration = Duration(0)
    eviction_max_pod_grace_period: Int32 = Int32(0)
    eviction_minimum_reclaim: dict[str, str] | None = None
    merge_default_eviction_settings: bool | None = None

    # Node behaviour
    pods_per_core: Int32 = Int32(0)
    enable_controller_attach_detach: bool | None = None
    protect_kernel_defaults: bool = False
    make_iptables_util_chains: bool | None = None
    iptables_masquerade_bit: Int32 | None = None
    iptables_drop_bit: Int32 | None = None
    feature_gates: dict[str, bool] | None = None
    fail_swap_on: bool | None = None
    memory_swap: MemorySwap = MemorySwap()

    # Container logs
    container_log_max_size: str = ""
    container_log_max_files: Int32 | None = None
    container_log_max_workers: Int32 | None = None
    container_log_monitor_interval: Duration | None = None
    config_map_and_secret_change_detection_strategy: str = ""

    # Node allocatable
    system_reserved: dict[str, str] | None = None
    kube_reserved: dict[str, str] | None = None
    reserved_system_cpus: str = ""
    show_hidden_metrics_for_version: str = ""
    system_reserved_cgroup: str = ""
    kube_reserved_cgroup: str = ""
    enforce_node_allocatable: tuple[str, ...] | None = None
    allowed_unsafe_sysctls: tuple[str, ...] | None = None
    volume_plugin_dir: str = ""
    provider_id: str = ""
    kernel_memcg_notification: bool = False

    # Logs
    logging: Logging = Logging()
    enable_system_log_handler: bool | None = None
    enable_system_log_query: bool | None = None

    # Shutdown and restarts
    shutdown_grace_period: Duration = Duration(0)
    shutdown_grace_period_critical_pods: Duration = Duration(0)
    shutdown_grace_period_by_pod_priority: tuple[ShutdownGracePeriodByPodPriority, ...] | None = None
    crash_loop_back_off: CrashLoopBackOff = CrashLoopBackOff()
    reserved_memory: tuple[MemoryReservation, ...] | None = None
    enable_profiling_handler: bool | None = None
    enable_debug_flags_handler: bool | None = None
    seccomp_default: bool | None = None
    memory_throttling_factor: float | None = None
    memory_reservation_policy: str = ""

    # Registration, tracing, runtime
    register_with_taints: tuple[Taint, ...] | None = None
    register_node: bool | None = None
    tracing: Tracing | None = None
    local_storage_capacity_isolation: bool | None = None
    container_runtime_endpoint: str = ""
    image_service_endpoint: str = ""
    fail_cgroup_v1: bool | None = None
    user_namespaces: UserNamespaces | None = None
