"""The kubelet's metrics that this agent has: same names, types, labels and buckets, with help texts of our own.

A table in tests/metrics/verdicts.py lists every metric of the kubelet, and the reason for a missing one. Buckets are
those of Kubernetes 1.36: pkg/kubelet/metrics, pkg/volume/util and component-base/metrics. The default unit is seconds.
"""

from __future__ import annotations

from actors._metrics.registry import Registry, exponential

REGISTRY = Registry()
PROBES = Registry()
"""The metrics of /metrics/probes."""
SLIS = Registry()
"""The metrics of /metrics/slis (KEP-3466)."""

_LONG = (60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0)
_STARTUP = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, *_LONG)
_PULLS = (1.0, 5.0, 10.0, 20.0, 30.0, *_LONG)
_STORAGE: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0)
_REST_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_REST_BYTES = (64, 256, 512, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216)

_counter, _gauge, _histogram = REGISTRY.counter, REGISTRY.gauge, REGISTRY.histogram

# The node

NODE_NAME = _gauge("kubelet_node_name", "1, with the name of this node.", "node")
BUILD_INFO = _gauge(
    "kubernetes_build_info",
    "1, with the version of this agent.",
    "major minor git_version git_commit git_tree_state build_date go_version compiler platform",
)
CONTAINER_LOG_BYTES = _gauge(
    "kubelet_container_log_filesystem_used_bytes", "What a container's logs take.", "uid namespace pod container"
)
POD_CERTIFICATES = _gauge("kubelet_podcertificate_states", "Pod certificates by signer and state.", "signer_name state")
CGROUP_VERSION = _gauge("kubelet_cgroup_version", "Version of the machine's control groups: 1 or 2.")
FEATURE_ENABLED = _gauge(
    "kubernetes_feature_enabled",
    "1 for a feature gate that is on; 0 also for one that the kubelet has on and that is not built here.",
    "name stage",
)
NODE_BEFORE_AGENT_SECONDS = _gauge(
    "kubelet_node_startup_pre_kubelet_duration_seconds", "From boot to the start of the agent."
)
NODE_BEFORE_REGISTRATION_SECONDS = _gauge(
    "kubelet_node_startup_pre_registration_duration_seconds", "From the agent's start to its first attempt to register."
)
NODE_REGISTRATION_SECONDS = _gauge(
    "kubelet_node_startup_registration_duration_seconds", "From the first attempt to register to a new Node."
)
NODE_AFTER_REGISTRATION_SECONDS = _gauge(
    "kubelet_node_startup_post_registration_duration_seconds", "From the creation of the Node until it was Ready."
)
NODE_STARTUP_SECONDS = _gauge("kubelet_node_startup_duration_seconds", "From boot until a new Node was Ready.")
MEMORY_QOS_MIN = _gauge("kubelet_memory_qos_node_memory_min_bytes", "memory.min of Guaranteed pods together.")
MEMORY_QOS_LOW = _gauge("kubelet_memory_qos_node_memory_low_bytes", "memory.low of Burstable pods together.")

SHUTDOWN_BEGAN = _gauge("kubelet_graceful_shutdown_start_time_seconds", "Unix time at which pods began to be ended.")
SHUTDOWN_ENDED = _gauge("kubelet_graceful_shutdown_end_time_seconds", "Unix time at which the last one had.")

# Pods: how many

DESIRED_PODS = _gauge("kubelet_desired_pods", "Pods that a source wants here. static: not from the API.", "static")
ACTIVE_PODS = _gauge("kubelet_active_pods", "Pods that a source wants and that have not ended.", "static")
MIRROR_PODS = _gauge("kubelet_mirror_pods", "Mirror pods of static pods that the API server has.")
WORKING_PODS = _gauge(
    "kubelet_working_pods",
    "Pods with a worker, by how far it is: a source wants them, or did, or only the runtime has them.",
    "lifecycle config static",
)
RUNNING_PODS = _gauge("kubelet_running_pods", "Pods whose sandbox runs, by the latest list of the runtime.")
RUNNING_CONTAINERS = _gauge("kubelet_running_containers", "Containers by state in the runtime.", "container_state")
EPHEMERAL_CONTAINERS = _gauge("kubelet_managed_ephemeral_containers", "Ephemeral containers of the pods here.")
RESIZES_IN_PROGRESS = _gauge("kubelet_pod_in_progress_resizes", "Pods whose resources are being changed.")
RESIZES_PENDING = _gauge(
    "kubelet_pod_pending_resizes", "Pods that do not get the resources they ask for: deferred, infeasible.", "reason"
)
RESIZES_REQUESTED = _counter(
    "kubelet_container_requested_resizes_total",
    "Changes of a container's CPU or memory that were asked for: add, remove, increase, decrease.",
    "resource requirement operation",
)
RESIZES_INFEASIBLE = _counter(
    "kubelet_pod_infeasible_resizes_total", "Resizes that this node can never do.", "reason_detail"
)
RESIZES_ACCEPTED_LATE = _counter(
    "kubelet_pod_deferred_accepted_resizes_total", "Deferred resizes that were granted, by occasion.", "retry_trigger"
)
RESIZE_MILLISECONDS = _histogram(
    "kubelet_pod_resize_duration_milliseconds",
    "Carrying out a resize, in milliseconds; the buckets are ours.",
    "success",
    bounds=exponential(10, 2, 12),
)
ADMISSION_REJECTIONS = _counter("kubelet_admission_rejections_total", "Pods turned away, by reason.", "reason")
ORPHANED_RUNTIME_PODS = _counter(
    "kubelet_orphaned_runtime_pods_total", "Pods found in the runtime that nobody here knew of."
)
RESTARTED_PODS = _counter("kubelet_restarted_pods_total", "Pods deleted and wanted again with the same UID.", "static")
CONTAINERS_PER_POD = _histogram(
    "kubelet_containers_per_pod_count", "Containers of each pod that was let in.", bounds=exponential(1, 2, 5)
)

# Pods: how long

POD_WORKER_SECONDS = _histogram(
    "kubelet_pod_worker_duration_seconds", "One round of a pod's worker: create, update or sync.", "operation_type"
)
POD_WORKER_START_SECONDS = _histogram(
    "kubelet_pod_worker_start_duration_seconds", "From first seeing a pod to the start of its worker."
)
POD_START_SECONDS = _histogram(
    "kubelet_pod_start_duration_seconds", "From first seeing a pod until all its containers run.", bounds=_STARTUP
)
POD_START_TOTAL_SECONDS = _histogram(
    "kubelet_pod_start_total_duration_seconds",
    "From a pod's creation until the API server shows all its containers as started.",
    bounds=_STARTUP,
)
POD_START_SLI_SECONDS = _histogram(
    "kubelet_pod_start_sli_duration_seconds",
    "The same for stateless pods, without the time of pulls and init containers.",
    bounds=_STARTUP,
)
FIRST_POD_START_SLI_SECONDS = _gauge(
    "kubelet_first_network_pod_start_sli_duration_seconds", "The same of the first pod with a network of its own."
)

# Containers and sandboxes

STARTED_PODS = _counter("kubelet_started_pods_total", "Starts of pods in new sandboxes.")
STARTED_PODS_ERRORS = _counter("kubelet_started_pods_errors_total", "Sandboxes that could not be made.")
STARTED_USERNS_PODS = _counter(
    "kubelet_started_user_namespaced_pods_total", "Starts of pods with user namespaces in new sandboxes."
)
STARTED_USERNS_PODS_ERRORS = _counter(
    "kubelet_started_user_namespaced_pods_errors_total", "Such starts with a sandbox or a container that failed."
)
SANDBOX_SECONDS = _histogram(
    "kubelet_run_podsandbox_duration_seconds", "Making a sandbox, by its runtime class's handler.", "runtime_handler"
)
SANDBOX_ERRORS = _counter(
    "kubelet_run_podsandbox_errors_total", "Failures to make a sandbox, by runtime handler.", "runtime_handler"
)
STARTED_CONTAINERS = _counter("kubelet_started_containers_total", "Starts of containers, by kind.", "container_type")
STARTED_CONTAINERS_ERRORS = _counter(
    "kubelet_started_containers_errors_total",
    "Containers that could not be started, by kind and reason.",
    "container_type code",
)
HOOK_FALLBACKS = _counter(
    "kubelet_lifecycle_handler_http_fallbacks_total", "Hooks that asked for HTTPS and were answered by plain HTTP."
)
SLEEPS_CUT_SHORT = _counter(
    "kubelet_sleep_action_terminated_early_total", "Sleep hooks that ended with the grace period or their container."
)
TERMINATED_CONTAINERS = _counter(
    "kubelet_terminated_containers_total", "Ends of containers.", "container_type exit_code reason"
)

# The runtime

RUNTIME_OPERATIONS = _counter("kubelet_runtime_operations_total", "Calls of the runtime, by kind.", "operation_type")
RUNTIME_SECONDS = _histogram(
    "kubelet_runtime_operations_duration_seconds",
    "How long calls of the runtime took, by kind.",
    "operation_type",
    bounds=exponential(0.005, 2.5, 14),
)
RUNTIME_ERRORS = _counter("kubelet_runtime_operations_errors_total", "Failed calls of the runtime.", "operation_type")
LOSING_SUPPORT = _gauge(
    "kubelet_cri_losing_support",
    "1 if the runtime is too old for the kubelet of this version: it does not name its cgroup driver.",
    "version",
)
RELIST_SECONDS = _histogram("kubelet_pleg_relist_duration_seconds", "How long listing everything in the runtime took.")
POD_RELIST_SECONDS = _histogram(
    "kubelet_pleg_pod_relist_duration_seconds", "How long reading one pod in the runtime took, for its worker."
)
RELIST_INTERVAL_SECONDS = _histogram("kubelet_pleg_relist_interval_seconds", "Time between two lists of the runtime.")
PLEG_LAST_SEEN = _gauge("kubelet_pleg_last_seen_seconds", "Unix time of the latest list of the runtime.")
EVENTED_CONNECTIONS = _counter(
    "kubelet_evented_pleg_connection_success_count", "Times the runtime's stream of events was opened."
)
EVENTED_CONNECTION_ERRORS = _counter(
    "kubelet_evented_pleg_connection_error_count", "Times the runtime's stream of events ended with an error."
)

# Images

ENSURE_IMAGE = _counter(
    "kubelet_image_manager_ensure_image_requests_total",
    "Images that containers asked for: whether they were there, and whether they had to be pulled.",
    "pull_policy present_locally pull_required",
)
IMAGE_PULL_SECONDS = _histogram(
    "kubelet_image_pull_duration_seconds", "Pulling an image, by its size.", "image_size_in_bytes", bounds=_PULLS
)
MUST_PULL_CHECKS = _counter(
    "kubelet_imagemanager_image_mustpull_checks_total",
    "Whether a pod may use an image that is there: by policy, by what is recorded, or not without its credentials.",
    "result",
)
PULLED_RECORDS = _gauge("kubelet_imagemanager_ondisk_pulledrecords", "Images of which it is recorded who opened them.")
PULL_INTENTS = _gauge("kubelet_imagemanager_ondisk_pullintents", "Images whose pull has begun and not ended.")
IMAGE_VOLUMES_REQUESTED = _counter("kubelet_image_volume_requested_total", "Image volumes that containers asked for.")
IMAGE_VOLUMES_MOUNTED = _counter("kubelet_image_volume_mounted_succeed_total", "Image volumes that were mounted.")
IMAGE_VOLUME_ERRORS = _counter(
    "kubelet_image_volume_mounted_errors_total", "Image volumes of containers that could not be created."
)
CREDENTIAL_PLUGIN_SECONDS = _histogram(
    "kubelet_credential_provider_plugin_duration", "Runs of a credential provider.", "plugin_name"
)
CREDENTIAL_PLUGIN_ERRORS = _counter(
    "kubelet_credential_provider_plugin_errors_total", "Failed runs of a credential provider.", "plugin_name"
)
IMAGES_COLLECTED = _counter("kubelet_image_garbage_collected_total", "Images removed, by reason.", "reason")

# Eviction, orphans, control groups

EVICTIONS = _counter("kubelet_evictions", "Pods evicted, by the signal they were evicted for.", "eviction_signal")
PREEMPTIONS = _counter(
    "kubelet_preemptions", "Pods ended for a critical pod, by the first resource that was short.", "preemption_signal"
)
CGROUP_SECONDS = _histogram(
    "kubelet_cgroup_manager_duration_seconds", "Making, changing and removing control groups.", "operation_type"
)

# CPUs and memory of containers

CPU_PINNINGS = _counter(
    "kubelet_cpu_manager_pinning_requests_total", "Containers that asked for exclusive CPUs at their pod's admission."
)
CPU_PINNING_ERRORS = _counter("kubelet_cpu_manager_pinning_errors_total", "Containers that did not get them.")
CPU_SHARED_POOL = _gauge(
    "kubelet_cpu_manager_shared_pool_size_millicores", "CPUs that can still be given to a container alone."
)
CPU_EXCLUSIVE = _gauge("kubelet_cpu_manager_exclusive_cpu_allocation_count", "CPUs that containers have alone.")
CPU_EXCLUSIVE_BY_NODE = _gauge(
    "kubelet_cpu_manager_allocation_per_numa", "CPUs that containers have alone, by NUMA node.", "numa_node"
)
ALIGNED = _counter(
    "kubelet_container_aligned_compute_resources_count",
    "Containers and pods whose resources lie within a core, a cache or a NUMA node, where that is guaranteed.",
    "scope boundary",
)
ALIGNMENT_FAILURES = _counter(
    "kubelet_container_aligned_compute_resources_failure_count",
    "Containers and pods that were rejected since theirs cannot.",
    "scope boundary",
)
MEMORY_PINNINGS = _counter(
    "kubelet_memory_manager_pinning_requests_total", "Containers that asked for memory of NUMA nodes."
)
MEMORY_PINNING_ERRORS = _counter("kubelet_memory_manager_pinning_errors_total", "Containers that did not get it.")
TOPOLOGY_ADMISSIONS = _counter(
    "kubelet_topology_manager_admission_requests_total", "Admissions of pods with resources of their own."
)
TOPOLOGY_ADMISSION_ERRORS = _counter(
    "kubelet_topology_manager_admission_errors_total", "Pods rejected, as their resources are not aligned or not free."
)
TOPOLOGY_ADMISSION_MS = _histogram(
    "kubelet_topology_manager_admission_duration_ms",
    "Admissions of pods with resources of their own, in milliseconds.",
    bounds=exponential(0.05, 1.835, 15),
)

# Dynamic resource allocation

DRA_SECONDS = _histogram(
    "dra_operations_duration_seconds",
    "Preparing or unpreparing all claims of a pod.",
    "is_error operation_name",
    bounds=exponential(0.1, 1.5, 15),
)
DRA_CALL_SECONDS = _histogram(
    "dra_grpc_operations_duration_seconds",
    "A call to a DRA driver.",
    "driver_name grpc_status_code method_name",
    bounds=exponential(0.1, 1.5, 15),
)
DRA_CLAIMS = _gauge("dra_resource_claims_in_use", "Claims that pods of the node use.", "driver_name")

# The pod resources API

_POD_RESOURCES = "kubelet_pod_resources_endpoint"
POD_RESOURCES_REQUESTS = _counter(
    f"{_POD_RESOURCES}_requests_total", "Calls of the pod resources API.", "server_api_version"
)
POD_RESOURCES_LISTS = _counter(f"{_POD_RESOURCES}_requests_list", "Calls of List.", "server_api_version")
POD_RESOURCES_GETS = _counter(f"{_POD_RESOURCES}_requests_get", "Calls of Get.", "server_api_version")
POD_RESOURCES_ALLOCATABLES = _counter(
    f"{_POD_RESOURCES}_requests_get_allocatable", "Calls of GetAllocatableResources.", "server_api_version"
)
POD_RESOURCES_LIST_ERRORS = _counter(f"{_POD_RESOURCES}_errors_list", "Failed calls of List.", "server_api_version")
POD_RESOURCES_GET_ERRORS = _counter(f"{_POD_RESOURCES}_errors_get", "Failed calls of Get.", "server_api_version")
POD_RESOURCES_ALLOCATABLE_ERRORS = _counter(
    f"{_POD_RESOURCES}_errors_get_allocatable", "Failed calls of GetAllocatableResources.", "server_api_version"
)

# Volumes

STORAGE_SECONDS = _histogram(
    "storage_operation_duration_seconds",
    "One attempt at a step with a volume.",
    "volume_plugin operation_name status migrated",
    bounds=_STORAGE,
)
VOLUME_METRIC_SECONDS = _histogram(
    "kubelet_volume_metric_collection_duration_seconds", "One round of measuring volumes.", "metric_source"
)
TOTAL_VOLUMES = _gauge(
    "volume_manager_total_volumes", "Volumes that are wanted and that are there.", "plugin_name state"
)
SELINUX_CONTAINER_ERRORS = _gauge(
    "volume_manager_selinux_container_errors_total",
    "Tries to mount a volume for a container whose SELinux options make no label.",
    "access_mode",
)
SELINUX_CONTAINER_WARNINGS = _gauge(
    "volume_manager_selinux_container_warnings_total",
    "Volumes of such containers that are mounted without a label because of their access mode.",
    "access_mode",
)
SELINUX_POD_ERRORS = _gauge(
    "volume_manager_selinux_pod_context_mismatch_errors_total",
    "Tries to mount a volume that a pod's containers use with different SELinux labels.",
    "access_mode",
)
SELINUX_POD_WARNINGS = _gauge(
    "volume_manager_selinux_pod_context_mismatch_warnings_total",
    "Such volumes that are mounted without a label because of their access mode.",
    "access_mode",
)
SELINUX_VOLUME_ERRORS = _gauge(
    "volume_manager_selinux_volume_context_mismatch_errors_total",
    "Tries to mount a volume that another pod uses with another SELinux label.",
    "volume_plugin access_mode",
)
SELINUX_VOLUME_WARNINGS = _gauge(
    "volume_manager_selinux_volume_context_mismatch_warnings_total",
    "Such volumes that are mounted without a label because of their access mode.",
    "volume_plugin access_mode",
)
SELINUX_ADMITTED = _gauge(
    "volume_manager_selinux_volumes_admitted_total",
    "Volumes that pods use with one SELinux label that a mount can have.",
    "volume_plugin access_mode",
)

VOLUME_STATS = tuple(
    (
        _gauge(
            f"kubelet_volume_stats_{name}",
            f"Of the volume behind a claim: {meaning}.",
            "namespace persistentvolumeclaim",
        ),
        field,
    )
    for name, meaning, field in (
        ("capacity_bytes", "size in bytes", "capacity_bytes"),
        ("available_bytes", "bytes that are left", "available_bytes"),
        ("used_bytes", "bytes in use", "used_bytes"),
        ("inodes", "inodes there are", "inodes"),
        ("inodes_free", "inodes that are left", "inodes_free"),
        ("inodes_used", "inodes in use", "inodes_used"),
    )
)
"""Each metric with its field of the summary's volumes."""

# The API server

REST_SECONDS = _histogram(
    "rest_client_request_duration_seconds", "Requests to the API server.", "verb host", bounds=_REST_SECONDS
)
REST_THROTTLED_SECONDS = _histogram(
    "rest_client_rate_limiter_duration_seconds",
    "How long requests to the API server were held back here.",
    "verb host",
    bounds=_REST_SECONDS,
)
REST_REQUESTS = _counter("rest_client_requests_total", "Requests to the API server, by outcome.", "code method host")
REST_SENT_BYTES = _histogram(
    "rest_client_request_size_bytes", "Bodies of requests to the API server.", "verb host", bounds=_REST_BYTES
)
REST_RECEIVED_BYTES = _histogram(
    "rest_client_response_size_bytes", "Bodies of answers of the API server.", "verb host", bounds=_REST_BYTES
)
STATUS_SYNC_SECONDS = _histogram(
    "kubelet_pod_status_sync_duration_seconds",
    "From a change of a pod's status until the API server has it.",
    bounds=(0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0),
)

# Certificates that the agent requests and replaces

CLIENT_TTL = _gauge(
    "kubelet_certificate_manager_client_ttl_seconds", "Until the client certificate expires; infinite without one."
)
SERVER_TTL = _gauge(
    "kubelet_certificate_manager_server_ttl_seconds", "Until the serving certificate expires; infinite without one."
)
CLIENT_RENEW_ERRORS = _counter(
    "kubelet_certificate_manager_client_expiration_renew_errors", "Failures to get a client certificate."
)
SERVER_RENEW_ERRORS = _counter("kubelet_server_expiration_renew_errors", "Failures to get a serving certificate.")
SERVER_ROTATION_SECONDS = _histogram(
    "kubelet_certificate_manager_server_rotation_seconds",
    "Age of each serving certificate that was replaced.",
    bounds=(60, 3600, 14_400, *(86_400 * days for days in (1, 7, 30, 90, 180, 360, 1440))),
)

# The kubelet API

HTTP_REQUESTS = _counter(
    "kubelet_http_requests_total", "Requests to this node's API.", "method path server_type long_running"
)
HTTP_IN_FLIGHT = _gauge(
    "kubelet_http_inflight_requests",
    "Requests to this node's API that are being answered.",
    "method path server_type long_running",
)
HTTP_SECONDS = _histogram(
    "kubelet_http_requests_duration_seconds", "Requests to this node's API.", "method path server_type long_running"
)
WEBSOCKET_STREAMS = _counter(
    "kubelet_websocket_streaming_requests_total",
    "WebSocket sessions that are served here, not by the runtime (ExtendWebSocketsToKubelet).",
    "subresource",
)

# Probes

PROBE_RESULTS = PROBES.counter(
    "prober_probe_total", "Probes of containers, by result.", "probe_type result container pod namespace pod_uid"
)
PROBE_SECONDS = PROBES.histogram(
    "prober_probe_duration_seconds", "How long probes took.", "probe_type container pod namespace"
)

# Health checks

HEALTH = SLIS.gauge("kubernetes_healthcheck", "How a health check turned out the last time: 1 for well.", "name type")
HEALTH_CHECKS = SLIS.counter(
    "kubernetes_healthchecks_total", "Health checks, by how they turned out.", "name status type"
)
