"""Every setting that a kubelet flag or a KubeletConfiguration field can change, in one table.

Covers names, types, and which Settings attribute a value goes to. Flags and their wording are those of
https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/, fields those of
https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/. Reading the file is `configuration`. What is
not in the table is refused as unknown, so that nobody relies on a setting without effect.
"""

from __future__ import annotations

from typing import NamedTuple

from proto.settings import Settings
from supervisor.values import SettingError, ValueType, boolean, duration, integer, strings, text, thresholds


class Option(NamedTuple):
    """One setting. An empty flag or field: it has none of that kind."""

    attribute: str
    """Of proto.settings.Settings."""
    flag: str
    field: str
    """Path in KubeletConfiguration, parts joined with dots."""
    type: ValueType
    help: str
    own: bool = False
    """A flag the kubelet does not have."""


seconds = duration()
count = integer(least=0)
percent = integer(0, 100)

OPTIONS = (
    Option("root_dir", "root-dir", "", text, "Directory for pods' files and the agent's checkpoints."),
    Option("pod_manifest_path", "pod-manifest-path", "staticPodPath", text, "Directory or file with static pods."),
    Option(
        "container_runtime_endpoint",
        "container-runtime-endpoint",
        "containerRuntimeEndpoint",
        text,
        "Socket of the container runtime, unix:///PATH; by default the first of the usual ones that answers.",
    ),
    Option(
        "image_service_endpoint",
        "image-service-endpoint",
        "imageServiceEndpoint",
        text,
        "Socket of the image service, if it is not the runtime's.",
    ),
    Option("node_name", "hostname-override", "", text, "The node's name; by default the host name in lower case."),
    Option("node_ip", "node-ip", "", text, "The node's address; by default that of the default route."),
    Option("pod_logs_dir", "pod-logs-dir", "podLogsDir", text, "Directory for container logs.", own=True),
    Option("container_logs_dir", "container-logs-dir", "", text, "Directory for links to them.", own=True),
    Option("sync_frequency_s", "sync-frequency", "syncFrequency", seconds, "Longest time between two pod syncs."),
    Option(
        "file_check_frequency_s",
        "file-check-frequency",
        "fileCheckFrequency",
        seconds,
        "Time between two readings of the manifests when no change is noticed.",
    ),
    Option(
        "runtime_request_timeout_s",
        "runtime-request-timeout",
        "runtimeRequestTimeout",
        seconds,
        "Deadline of runtime requests, except pulls, logs, exec and attach.",
    ),
    Option("max_pods", "max-pods", "maxPods", count, "Most pods on this node."),
    Option("cgroup_driver", "cgroup-driver", "cgroupDriver", text, "cgroupfs or systemd."),
    Option("cgroup_root", "cgroup-root", "cgroupRoot", text, "Cgroup under which pods' cgroups are."),
    Option("cgroups_per_qos", "cgroups-per-qos", "cgroupsPerQOS", boolean, "A cgroup per QoS class and pod."),
    Option("cpu_cfs_quota", "cpu-cfs-quota", "cpuCFSQuota", boolean, "Enforce CPU limits."),
    Option(
        "cpu_cfs_quota_period_us",
        "cpu-cfs-quota-period",
        "cpuCFSQuotaPeriod",
        duration(per_second=1_000_000),
        "Period of CPU limits.",
    ),
    Option("pod_pids_limit", "pod-max-pids", "podPidsLimit", integer(-1), "Most processes per pod; -1: the node's."),
    Option("cluster_dns", "cluster-dns", "clusterDNS", strings, "Addresses of the cluster's DNS server."),
    Option("cluster_domain", "cluster-domain", "clusterDomain", text, "The cluster's DNS domain."),
    Option("resolv_conf", "resolv-conf", "resolvConf", text, "Resolver configuration that pods inherit."),
    Option("registry_pull_qps", "registry-qps", "registryPullQPS", count, "Image pulls per second; 0: no limit."),
    Option("registry_burst", "registry-burst", "registryBurst", count, "Image pulls at once, while within the rate."),
    Option("serialize_image_pulls", "serialize-image-pulls", "serializeImagePulls", boolean, "One pull at a time."),
    Option("max_parallel_image_pulls", "", "maxParallelImagePulls", integer(1), "Most pulls at a time."),
    Option(
        "image_gc_high_threshold_percent",
        "image-gc-high-threshold",
        "imageGCHighThresholdPercent",
        percent,
        "Disk usage in percent above which unused images are removed.",
    ),
    Option(
        "image_gc_low_threshold_percent",
        "image-gc-low-threshold",
        "imageGCLowThresholdPercent",
        percent,
        "Disk usage in percent down to which they are removed.",
    ),
    Option(
        "image_minimum_gc_age_s",
        "minimum-image-ttl-duration",
        "imageMinimumGCAge",
        seconds,
        "Least age of an unused image before it is removed.",
    ),
    Option("image_maximum_gc_age_s", "", "imageMaximumGCAge", seconds, "Age at which unused images go; 0: never."),
    Option(
        "container_gc_min_age_s",
        "minimum-container-ttl-duration",
        "",
        seconds,
        "Least age of a dead container before it is removed.",
    ),
    Option(
        "container_gc_max_per_pod_container",
        "maximum-dead-containers-per-container",
        "",
        integer(-1),
        "Old instances kept per container.",
    ),
    Option(
        "container_gc_max_containers",
        "maximum-dead-containers",
        "",
        integer(-1),
        "Old instances kept on the node; negative: no limit.",
    ),
    Option("eviction_hard", "eviction-hard", "evictionHard", thresholds, "Thresholds that evict pods at once."),
    Option(
        "eviction_pressure_transition_period_s",
        "eviction-pressure-transition-period",
        "evictionPressureTransitionPeriod",
        seconds,
        "Time before a pressure condition is taken back.",
    ),
    Option(
        "crash_loop_max_back_off_s",
        "",
        "crashLoopBackOff.maxContainerRestartPeriod",
        seconds,
        "Longest back-off of a crashing container.",
    ),
    Option(
        "verbosity", "v", "logging.verbosity", count, "Log level: 0 key facts, 2 default, 4 debug, 6 every message."
    ),
)

BY_FIELD = {option.field: option for option in OPTIONS if option.field}


def check(settings: Settings) -> None:
    """Refuse settings that contradict each other. Raises SettingError."""
    if settings.image_gc_low_threshold_percent >= settings.image_gc_high_threshold_percent:
        raise SettingError(
            f"image GC's low threshold ({settings.image_gc_low_threshold_percent} %) must be below "
            f"its high threshold ({settings.image_gc_high_threshold_percent} %)"
        )
    if settings.cgroup_driver not in ("cgroupfs", "systemd"):
        raise SettingError(f"cgroup driver {settings.cgroup_driver!r} is neither cgroupfs nor systemd")
    if settings.serialize_image_pulls and (settings.max_parallel_image_pulls or 1) > 1:
        raise SettingError("maxParallelImagePulls above 1 needs serializeImagePulls: false")
