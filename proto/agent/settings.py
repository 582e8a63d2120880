"""What every actor is started with: the effective configuration, as plain values with units in their names.

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
    """A taint the node registers with."""

    key: str
    effect: str
    """NoSchedule, PreferNoSchedule or NoExecute; admission acts on the last."""
    value: str = ""


class ShutdownGrace(Record, frozen=True, kw_only=True):
    """What pods of this priority, up to the next entry's, get when the machine shuts down."""

    priority: int
    grace_s: int


class Settings(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One agent's settings. Immutable for the life of a process; a change restarts the actors concerned."""

    run_dir: str = "/run/nodevisor"
    """Sockets, the lock and the supervisor's state; mode 0700."""
    root_dir: str = "/var/lib/kubelet"
    take_over: bool = False
    """Every pod with the kubelet's labels in the runtime, and every pod cgroup below cgroup_root, counts as ours."""
    pod_manifest_path: str = ""
    """A manifest directory or file; empty for none."""
    pod_sources: tuple[str, ...] = ("file",)
    """Who sends pods. Nothing that no source wants is ended before each of them has said all it has."""
    objects_dir: str = ""
    """A directory (or file) of Secrets, ConfigMaps and other API objects for pods; empty for none."""
    images_dir: str = ""
    """A directory of OCI layouts and archives that the embedded runtime takes images from; empty: one in root_dir."""
    host_image_for_all: bool = False
    """Whether pods of the API server may have the image `host`, the files of this machine; static pods always may."""
    registries_dir: str = "/etc/containerd/certs.d"
    """Where the embedded runtime looks for mirrors: REGISTRY/hosts.toml, containerd's."""
    kubeconfig: str = ""
    """How to reach the API server; empty: this machine is in no cluster, and nothing that needs one runs."""
    bootstrap_kubeconfig: str = ""
    """Who we are until there is a client certificate; empty for none."""
    cert_dir: str = "/var/lib/kubelet/pki"
    rotate_certificates: bool = False
    """rotateCertificates: replace the client certificate before it expires."""
    server_tls_bootstrap: bool = False
    """serverTLSBootstrap: the serving certificate is the cluster's to sign."""
    event_record_qps: float = 50.0
    """0: no limit."""
    event_burst: int = 100
    kube_api_qps: float = 50.0
    kube_api_burst: int = 100
    config_map_and_secret_change_detection_strategy: str = "Watch"
    """Watch, Cache or Get: how what pods refer to is read from the API server."""
    cluster_trust_bundle_projection: bool = False
    """The feature gate ClusterTrustBundleProjection."""
    register_node: bool = True
    provider_id: str = ""
    cloud_provider: str = ""
    """`external`: the node has a taint until its cloud's controller has seen it."""
    node_status_update_frequency_s: float = 10.0
    node_status_report_frequency_s: float = 300.0
    """Without a change, the status is written this often."""
    node_lease_duration_s: float = 40.0
    node_status_max_images: int = 50
    """-1: all."""
    enable_controller_attach_detach: bool = True
    """What the Node's annotation tells the controller that attaches volumes."""
    shutdown_grace: tuple[ShutdownGrace, ...] = ()
    """By priority, what pods get when the machine shuts down; empty: its shutdown is not delayed."""
    container_runtime_endpoint: str = ""
    image_service_endpoint: str = ""
    """Empty: the runtime's."""
    node_name: str = ""
    node_ip: str = ""
    """The address reported as hostIP; found from the default route when empty."""
    pod_logs_dir: str = "/var/log/pods"
    container_logs_dir: str = "/var/log/containers"

    enable_server: bool = True
    """The kubelet's own API."""
    server_address: str = "0.0.0.0"
    server_port: int = 10_250
    read_only_port: int = 0
    """Without credentials and TLS; 0: none."""
    page_address: str = ""
    """ADDRESS:PORT of the web page, with metrics and statistics, without credentials and TLS; empty: none."""
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    """Empty, as is the other: the certificate is one of the `certificates` actor's, or signed by itself."""
    tls_cipher_suites: tuple[str, ...] = ()
    """IANA names; empty: the library's choice."""
    tls_min_version: str = ""
    """`VersionTLS12`; empty: that one."""
    client_ca_file: str = ""
    """Whose client certificates are taken; empty: nobody's."""
    anonymous_auth: bool = False
    webhook_authentication: bool = True
    """Bearer tokens are reviewed by the API server."""
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
    streaming_idle_timeout_s: float = 14_400.0
    """Without a byte for so long, an exec, attach or port-forward is ended."""
    extend_websockets_to_kubelet: bool = True
    """The feature gate ExtendWebSocketsToKubelet."""
    container_log_max_bytes: int = 10 * 1024 * 1024
    """A larger log is rotated; negative: none is."""
    container_log_max_files: int = 5
    container_log_max_workers: int = 1
    container_log_monitor_interval_s: float = 10.0

    sync_frequency_s: float = 60.0
    file_check_frequency_s: float = 20.0
    runtime_request_timeout_s: float = 120.0
    max_pods: int = 110
    """The smaller of maxPods and podsPerCore for this machine."""
    node_labels: dict[str, str] = {}
    """--node-labels: besides those every node has."""
    register_with_taints: tuple[Taint, ...] = ()
    allowed_unsafe_sysctls: tuple[str, ...] = ()
    """Names, or prefixes that end in `*`."""
    system_reserved: dict[str, str] = {}
    """Resource to quantity, kept from pods; reservedSystemCPUs replaces its cpu."""
    kube_reserved: dict[str, str] = {}
    enforce_node_allocatable: tuple[str, ...] = ("pods",)
    """`pods`, `system-reserved`, `kube-reserved`, the last two also with `-compressible`: limit these cgroups."""
    system_reserved_cgroup: str = ""
    kube_reserved_cgroup: str = ""
    seccomp_default: bool = False
    """Containers without a profile of their own get the runtime's instead of none."""
    user_namespace_ids_per_pod: int = 65_536
    """userNamespaces.idsPerPod"""
    memory_reserved_by_qos_percent: int = 0
    """How much of what pods of a better class request is kept from those of the classes below."""

    cgroup_driver: str = "cgroupfs"
    cgroup_root: str = "/"
    cgroups_per_qos: bool = True
    cpu_cfs_quota: bool = True
    cpu_cfs_quota_period_us: int = 100_000
    pod_pids_limit: int = -1
    memory_swap_behavior: str = ""
    """memorySwap.swapBehavior: NoSwap, LimitedSwap, or empty, which is NoSwap."""
    single_process_oom_kill: bool | None = None
    """None: on cgroup v1 alone, where there is no other way."""

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
    """Which images that are on the node a pod may use without its credentials being verified
    (imagePullCredentialsVerificationPolicy); empty: all, and nothing is recorded (KubeletEnsureSecretPulledImages)."""
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
    keep_images: bool = False
    """No image is removed, not even under disk pressure: the runtime's images are not this agent's alone."""

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
    """By signal: how long a soft threshold has to be met before a pod goes."""
    eviction_minimum_reclaim: dict[str, str] = {}
    eviction_max_pod_grace_period_s: int = 0
    """The most that a pod gets that is evicted for a soft threshold."""
    eviction_monitoring_period_s: float = 10.0
    local_storage_capacity_isolation: bool = True
    """Whether pods that take more ephemeral storage than they may are evicted."""
    volume_stats_agg_period_s: float = 60.0
    """How old the figures of volumes may be; negative: volumes are not measured."""
    eviction_pressure_transition_period_s: float = 300.0

    crash_loop_initial_back_off_s: float = 10.0
    crash_loop_max_back_off_s: float = 300.0
    crash_loop_reset_s: float = 600.0
    image_pull_initial_back_off_s: float = 10.0
    image_pull_max_back_off_s: float = 300.0

    relist_period_s: float = 10.0
    """Safety net only: exits come from pidfds, own changes from the pod workers."""
    heartbeat_period_s: float = 5.0
    verbosity: int = 2
    log_format: str = "text"
    """logging.format: text or json."""

    extra: dict[str, Any] = {}
    """Settings of one deployment that no published field carries; keys documented where they are read."""
