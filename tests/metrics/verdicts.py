"""Every metric of the kubelet of Kubernetes 1.36 that this agent does not expose, and why.

The kubelet's are those of a capture (golden.json) and of the reference (reference.txt). What is not here is exposed,
with the same type and labels: test_golden.py sees to both.
"""

from __future__ import annotations

import re

LIBRARY = "of a library that the kubelet is linked with: says nothing of a node agent"
RUNTIME = "of Go's runtime"
GENERIC_API = "of the API server's generic library, whose code the kubelet is linked with"
NO_DEVICES = "device plugins, and what managers allocate to pods and their containers, are not measured"
NO_LOAD = "always 0 in the kubelet, which does not run cAdvisor's load reader"

ABSENT: tuple[tuple[str, str, str], ...] = (
    # endpoint, pattern of the whole name, reason
    ("/metrics", r"go_.*", RUNTIME),
    ("/metrics", r"(aggregator|apiserver|authentication|authorization)_.*", GENERIC_API),
    ("/metrics", r"cardinality_enforcement_.*|(disabled|hidden|registered)_metrics_total", LIBRARY),
    ("/metrics", r"workqueue_.*", "of client-go's queues; what waits here is in nodevisor_mailbox_depth and _delay"),
    ("/metrics", r"rest_client_(exec_plugin|transport)_.*", "of client-go's transport cache; there is none here"),
    ("/metrics", r"kubelet_device_plugin_.*|resource_manager_.*", NO_DEVICES),
    ("/metrics", r"kubelet_started_host_process_containers.*", "of Windows"),
    ("/metrics", r"kubelet_volume_stats_health_status_abnormal", "volume health (CSIVolumeHealth) is not built"),
    ("/metrics", r"kubelet_eviction_stats_age_seconds", "signals are measured for each decision, not taken from stats"),
    (
        "/metrics",
        r"kubelet_credential_provider_config_info",
        "the configuration's hash is not taken: a change restarts image_pull",
    ),
    (
        "/metrics",
        r"csi_operations_seconds",
        "calls run in helper processes, which end; each step is in storage_operation_duration_seconds",
    ),
    ("/metrics", r"plugin_manager_total_plugins", "sockets are not counted: `supervisor describe volume` lists them"),
    ("/metrics", r"rest_client_(dns_resolution_duration_seconds|request_retries_total)", "not measured"),
    ("/metrics", r"informer_.*|leader_election_.*|running_managed_controllers|version_info", LIBRARY),
    ("/metrics/resource", r"scrape_error", "deprecated and hidden since 1.29; there is resource_scrape_error"),
    ("/metrics", r"kubelet_pod_watch_events_dropped_total", "of the pods API, a gRPC service that is not there"),
    ("/metrics", r"kubelet_imagemanager_inmemory_.*", "of a cache with a limit; here all records are in memory"),
    ("/metrics", r"kubelet_metrics_provider", "names cAdvisor or CRI as the source of figures; here it is neither"),
    (
        "/metrics",
        r"kubelet_pleg_discard_events",
        "pleg has no queue that could overflow: see nodevisor_messages_dropped_total",
    ),
    (
        "/metrics",
        r"kubelet_evented_pleg_connection_latency_seconds",
        "the stream has no moment at which it is connected",
    ),
    ("/metrics", r"kubelet_orphan_pod_cleaned_volumes.*", "volumes of orphans are removed by the volume actor alike"),
    (
        "/metrics",
        r"(force_cleaned_failed|reconstruct)_volume_operation.*",
        "the mount table is the state: nothing is reconstructed",
    ),
    (
        "/metrics",
        r"volume_operation_total_seconds",
        "steps are timed one by one, in storage_operation_duration_seconds",
    ),
    ("/metrics/cadvisor", r"container_cpu_load(_d)?_average_10s|container_tasks_state", NO_LOAD),
    ("/metrics/cadvisor", r"container_health_state", "of Docker's health checks"),
    ("/metrics/cadvisor", r"machine_(nvm_.*|cpu_books|cpu_drawers)", "of non-volatile memory and mainframes"),
)


def reason(endpoint: str, name: str) -> str:
    """Why a metric is not there; empty when nothing here says so."""
    found = (why for where, pattern, why in ABSENT if where == endpoint and re.fullmatch(pattern, name))
    return next(found, "")
