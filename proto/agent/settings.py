"""The settings that every actor gets at its start: the effective configuration, with units in the names.

Names follow KubeletConfiguration v1beta1; defaults are those of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from proto.wire.message import Record

DEFAULT_EVICTION_HARD = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}


class Taint(Record, frozen=True, kw_only=True):
    """A taint that the node registers with."""

    key: str
    effect: str
    """NoSchedule, PreferNoSchedule or NoExecute; admission acts on the last."""
    value: str = ""


class ShutdownGrace(Record, frozen=True, kw_only=True):
    """The grace period, at a shutdown of the machine, of pods with this priority and up to the next entry's."""

    priority: int
    grace_s: int


class ReservedMemory(Record, frozen=True, kw_only=True):
    """Memory of one NUMA node that the memory manager gives to no container."""

    numa_node: int
    limits: dict[str, str] = {}
    """Quantities of memory and hugepages-SIZE."""


class Settings(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One agent's settings. A change restarts the actors that read the changed setting."""

    run_dir: str = "/run/nodevisor"
    """Sockets, the lock and the supervisor's state; mode 0700."""
    root_dir: str = "/var/lib/kubelet"
    take_over: bool = False
    """Treat every pod with the kubelet's labels in the runtime, and every pod cgroup below cgroup_root, as ours."""
    pod_manifest_path: str = ""
    """A manifest directory or file; empty for none."""
    static_pod_url: str = ""
    """A URL that answers with a Pod or a PodList; empty for none. It may have a password."""
    static_pod_url_header: dict[str, tuple[str, ...]] = {}
    """Headers of its requests. The values are secret."""
    http_check_frequency_s: float = 20.0
    """Time between two requests of static_pod_url."""
    pod_sources: tuple[str, ...] = ("file",)
    """Sources of pods. No pod is ended as unwanted before each source has sent its full list."""
    objects_dir: str = ""
    """A directory (or file) of Secrets, ConfigMaps and other API objects for pods; empty for none."""
    images_dir: str = ""
    """A directory of OCI layouts and archives with the embedded runtime's images; empty: one in root_dir."""
    host_image_for_all: bool = False
    """Let pods of the API server use the image `host`, the files of this machine. Static pods always may."""
    registries_dir: str = "/etc/containerd/certs.d"
    """Mirrors for the embedded runtime, in containerd's format: REGISTRY/hosts.toml."""
    kubeconfig: str = ""
    """Path of the kubeconfig for the API server; empty: standalone, without the actors that need a cluster."""
    bootstrap_kubeconfig: str = ""
    """Kubeconfig with the credentials for the first certificate request; empty for none."""
    cert_dir: str = "/var/lib/kubelet/pki"
    follow_api_authority: bool = True
    """The feature gate ClientsAllowCARotation: a changed certificate authority of the API server is read again."""
    rotate_certificates: bool = False
    """rotateCertificates: replace the client certificate before it expires."""
    server_tls_bootstrap: bool = False
    """serverTLSBootstrap: the cluster signs the serving certificate."""
    dns_only_serving_certificate: bool = False
    """The feature gate AllowDNSOnlyNodeCSR: it is requested also while the Node has DNS names, but no IP address."""
    event_record_qps: float = 50.0
    """0: no limit."""
    event_burst: int = 100
    kube_api_qps: float = 50.0
    kube_api_burst: int = 100
    config_map_and_secret_change_detection_strategy: str = "Watch"
    """Watch, Cache or Get: how ConfigMaps and Secrets are read from the API server."""
    cluster_trust_bundle_projection: bool = False
    """The feature gate ClusterTrustBundleProjection."""
    pod_certificate_request: bool = False
    """The feature gate PodCertificateRequest."""
    selinux_mount: bool = False
    """The feature gate SELinuxMount: volumes of every access mode are mounted with the pod's SELinux label."""
    register_node: bool = True
    create_node_first: bool = False
    """The feature gate KubeletRegistrationGetOnExistsOnly: the Node is created before it is read."""
    provider_id: str = ""
    kubelet_version: str = ""
    """--version=vX.Y.Z-SUFFIX: the version that the Node and the metrics report; empty: the agent's own."""
    cloud_provider: str = ""
    """`external`: the node has a taint until the cloud's controller removes it."""
    node_status_update_frequency_s: float = 10.0
    node_status_report_frequency_s: float = 300.0
    """Period of writes of an unchanged status."""
    node_lease_duration_s: float = 40.0
    node_status_max_images: int = 50
    """-1: all."""
    shutdown_grace: tuple[ShutdownGrace, ...] = ()
    """Grace periods by priority; empty: a shutdown of the machine is not delayed."""
    keep_shutdown_times: bool = True
    """The times of the last delayed shutdown are in a file and in metrics."""
    allocatable_ignores_eviction: bool = False
    """Node allocatable includes what is below hard eviction thresholds."""
    make_iptables_util_chains: bool = True
    """False without a cluster, unless the configuration has it."""
    pod_cidr: str = ""
    """The pods' address ranges for the runtime, until a Node has some."""
    container_runtime_endpoint: str = ""
    image_service_endpoint: str = ""
    """Empty: the runtime's."""
    node_name: str = ""
    node_ip: str = ""
    """One address, or an IPv4 and an IPv6 one with a comma. Without a specified address the node's name or the
    default route gives it."""
    pod_logs_dir: str = "/var/log/pods"
    container_logs_dir: str = "/var/log/containers"

    enable_server: bool = True
    """The kubelet's own API."""
    server_address: str = "0.0.0.0"
    server_port: int = 10_250
    read_only_port: int = 0
    """Port without authentication and TLS; 0: none."""
    fault_injection: bool = False
    """`supervisor fault` may inject faults."""
    page_address: str = ""
    """ADDRESS:PORT of the web page, metrics and statistics, without authentication and TLS; empty: none."""
    console_address: str = ""
    """ADDRESS:PORT for consoles of other machines, with CURVE keys; empty: none."""
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    """Both files empty: a self-signed certificate. With server_tls_bootstrap the cluster's certificate follows."""
    tls_cipher_suites: tuple[str, ...] = ()
    """IANA names; empty: the library's choice."""
    tls_min_version: str = ""
    """Empty: `VersionTLS12`."""
    tls_curve_preferences: tuple[int, ...] = ()
    """Key exchanges by their number in Go and TLS; empty: the library's choice."""
    client_ca_file: str = ""
    """CAs whose client certificates are accepted; empty: no client certificates."""
    user_uid_of_certificate: bool = True
    """The feature gate AllowParsingUserUIDFromCertAuth."""
    anonymous_auth: bool = False
    webhook_authentication: bool = True
    """The API server checks bearer tokens (TokenReview)."""
    token_cache_s: float = 120.0
    authorization_mode: str = "Webhook"
    """Webhook or AlwaysAllow."""
    authorized_cache_s: float = 300.0
    unauthorized_cache_s: float = 30.0
    enable_debugging_handlers: bool = True
    """Logs, exec, attach, port-forward and run."""
    enable_profiling_handler: bool = True
    enable_debug_flags_handler: bool = True
    enable_system_log_handler: bool = True
    enable_system_log_query: bool = False
    """Answer queries of journald and of /var/log at /logs/."""
    streaming_idle_timeout_s: float = 14_400.0
    """An exec, attach or port-forward ends after this time without a byte."""
    extend_websockets_to_kubelet: bool = True
    """The feature gate ExtendWebSocketsToKubelet."""
    split_log_streams: bool = False
    """The feature gate PodLogsQuerySplitStreams."""
    container_log_max_bytes: int = 10 * 1024 * 1024
    """Size at which a log is rotated; negative: no rotation."""
    container_log_max_files: int = 5
    container_log_max_workers: int = 1
    container_log_monitor_interval_s: float = 10.0

    reset_readiness_at_start: bool = False
    """The feature gate ChangeContainerStatusOnKubeletRestart: containers are not ready until this start probes them."""
    sync_frequency_s: float = 60.0
    file_check_frequency_s: float = 20.0
    image_volume_digests: bool = False
    """The feature gate ImageVolumeWithDigest: statuses of containers have the images of their image volumes."""
    runtime_request_timeout_s: float = 120.0
    max_pods: int = 110
    """The smaller of maxPods and podsPerCore times this machine's cores."""
    node_labels: dict[str, str] = {}
    """--node-labels, in addition to the labels of every node."""
    register_with_taints: tuple[Taint, ...] = ()
    compare_taint_values: bool = False
    """The feature gate TaintTolerationComparisonOperators: tolerations may have the operators Lt and Gt."""
    allowed_unsafe_sysctls: tuple[str, ...] = ()
    """Names, or prefixes that end in `*`."""
    system_reserved: dict[str, str] = {}
    """Quantities by resource that pods do not get; reservedSystemCPUs replaces its cpu."""
    kube_reserved: dict[str, str] = {}
    enforce_node_allocatable: tuple[str, ...] = ("pods",)
    """Cgroups with limits: `pods`, `system-reserved`, `kube-reserved`, the last two also with `-compressible`."""
    system_reserved_cgroup: str = ""
    kube_reserved_cgroup: str = ""
    system_cgroups: str = ""
    """A cgroup whose usage /stats/summary shows as `misc`; empty: none."""
    runtime_cgroups: str = ""
    """--runtime-cgroups, shown as `runtime`; empty: none."""
    seccomp_default: bool = False
    """Give containers without a seccomp profile the runtime's default one."""
    user_namespace_ids_per_pod: int = 65_536
    """userNamespaces.idsPerPod"""
    users_on_host_network: bool = False
    """The feature gate UserNamespacesHostNetworkSupport: static pods may have hostNetwork and hostUsers: false."""
    memory_reserved_by_qos_percent: int = 0
    """Share of the requests of higher QoS classes that lower classes cannot use (qosReserved)."""
    memory_throttling_factor: float = 0.0
    """memoryThrottlingFactor with feature gate MemoryQoS; 0 without it."""
    memory_reservation_policy: str = "None"
    """`None` or `TieredReservation`."""

    cpu_manager_policy: str = "none"
    """`none` or `static`."""
    cpu_manager_policy_options: dict[str, str] = {}
    cpu_manager_reconcile_period_s: float = 10.0
    """Time between two comparisons of the running containers' CPUs with the assigned ones."""
    reserved_system_cpus: str = ""
    """CPUs in the kernel's list format that no container gets exclusively."""
    cpu_quota_with_exclusive_cpus: bool = False
    """The feature gate DisableCPUQuotaWithExclusiveCPUs is off."""
    memory_manager_policy: str = "None"
    """`None` or `Static`."""
    reserved_memory: tuple[ReservedMemory, ...] = ()
    topology_manager_policy: Literal["none", "best-effort", "restricted", "single-numa-node"] = "none"
    topology_manager_scope: Literal["container", "pod"] = "container"
    topology_manager_policy_options: dict[str, str] = {}
    pod_level_resource_managers: bool = False
    """The feature gate PodLevelResourceManagers: pods with resources of their own get CPUs and memory of their own."""
    resource_health_status: bool = True
    """The feature gate ResourceHealthStatus: statuses of containers have the health of their devices."""
    resource_health_messages: bool = True
    """The feature gate ResourceHealthStatusMessage: with the message of their DRA driver."""
    pod_resources_active_pods: bool = True
    """The feature gate KubeletPodResourcesListUseActivePods: the pod resources API lists no pods that have ended."""

    cgroup_driver: str = "cgroupfs"
    cgroup_root: str = "/"
    cgroups_per_qos: bool = True
    cpu_cfs_quota: bool = True
    cpu_cfs_quota_period_us: int = 100_000
    pod_pids_limit: int = -1
    memory_swap_behavior: str = ""
    """memorySwap.swapBehavior: NoSwap, LimitedSwap, or empty, which is NoSwap."""
    single_process_oom_kill: bool | None = None
    """None: on cgroup v1 only, which has no group kill."""

    cluster_dns: tuple[str, ...] = ()
    cluster_domain: str = ""
    resolv_conf: str = "/etc/resolv.conf"

    registry_pull_qps: float = 5.0
    registry_burst: int = 10
    serialize_image_pulls: bool = True
    max_parallel_image_pulls: int | None = None

    image_pull_verification: Literal[
        "", "NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"
    ] = "NeverVerifyPreloadedImages"
    """imagePullCredentialsVerificationPolicy: present images that pods use without a check of their credentials.

    Empty: all of them, and no pull is recorded (feature gate KubeletEnsureSecretPulledImages is off).
    """
    image_pull_verification_allowlist: tuple[str, ...] = ()
    """Repositories, or prefixes that end in `/*`."""

    image_credential_provider_config: str = ""
    """A CredentialProviderConfig file, or a directory of them; empty for none."""
    image_credential_provider_bin_dir: str = ""

    image_gc_high_threshold_percent: int = 85
    image_gc_low_threshold_percent: int = 80
    image_minimum_gc_age_s: float = 120.0
    image_maximum_gc_age_s: float = 0.0
    image_gc_period_s: float = 300.0
    images_by_handler: bool = False
    """The feature gate RuntimeClassInImageCriApi: images are pulled, found and removed for a runtime handler."""
    keep_images: bool = False
    """Remove no image, not even under disk pressure, because others use the same runtime."""

    protected_images: tuple[str, ...] = ()
    """Names of images that are never removed, with `*` for any characters."""
    collect_local_images: bool = False
    """Also remove unused images without a registry's digest, which no pull brings back."""

    container_gc_min_age_s: float = 0.0
    """--minimum-container-ttl-duration"""
    container_gc_max_per_pod_container: int = 1
    """--maximum-dead-containers-per-container"""
    container_gc_max_containers: int = -1
    """--maximum-dead-containers"""
    container_gc_period_s: float = 60.0

    eviction_hard: dict[str, str] = msgspec.field(default_factory=DEFAULT_EVICTION_HARD.copy)
    eviction_soft: dict[str, str] = {}
    eviction_soft_grace_s: dict[str, float] = {}
    """By signal: time over a soft threshold before a pod is evicted."""
    eviction_minimum_reclaim: dict[str, str] = {}
    eviction_max_pod_grace_period_s: int = 0
    """Upper limit of the grace period in evictions for a soft threshold."""
    eviction_monitoring_period_s: float = 10.0
    separate_disk_gc: bool = True
    """Gate KubeletSeparateDiskGC: containers' writable layers may be on a disk of their own."""
    kernel_memcg_notification: bool = False
    """On cgroup v1, look at memory as soon as the kernel tells that it is short."""
    local_storage_capacity_isolation: bool = True
    """Evict pods that exceed their limits of ephemeral storage."""
    volume_stats_agg_period_s: float = 60.0
    """Maximum age of volume statistics; negative: volumes are not measured."""
    eviction_pressure_transition_period_s: float = 300.0

    crash_loop_initial_back_off_s: float = 10.0
    crash_loop_max_back_off_s: float = 300.0
    crash_loop_reset_s: float = 600.0
    image_pull_initial_back_off_s: float = 10.0
    image_pull_max_back_off_s: float = 300.0

    relist_period_s: float = 10.0
    """Fallback only: exits come from pidfds, our own changes from the pod workers."""
    heartbeat_period_s: float = 5.0
    verbosity: int = 2
    tracing_endpoint: str = ""
    """A collector of OTLP over gRPC, as a gRPC target; empty: nothing is traced."""
    tracing_sampling_rate_per_million: int = 0
    """Number of new traces, of a million, that are recorded. At 0 only the senders of requests decide."""
    recorder_mib: int = 8
    """The flight recorder's files of all actors together, in RUN_DIR/recorder; 0 switches it off."""
    log_format: str = "text"
    """logging.format: text or json."""
    vmodule: dict[str, int] = {}
    """logging.vmodule: verbosities by file."""

    extra: dict[str, Any] = {}
    """Further settings without a published field; the readers document the keys."""
