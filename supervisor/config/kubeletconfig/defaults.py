"""Fills in the defaults of Kubernetes 1.36: constants, and defaults that depend on other fields.

Eviction thresholds are defaults of the eviction manager instead (`eviction.hard`). The few different defaults of the
kubelet's flags are not used.
Source: https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from supervisor.config.kubeletconfig.feature_gates import Gates
from supervisor.config.kubeletconfig.typed import encode, schema
from supervisor.config.kubeletconfig.typed.types import KubeletConfiguration

_S = 1_000_000_000

_CONSTANTS: dict[str, Any] = {
    "enableServer": True,
    "podLogsDir": "/var/log/pods",
    "syncFrequency": 60 * _S,
    "fileCheckFrequency": 20 * _S,
    "httpCheckFrequency": 20 * _S,
    "address": "0.0.0.0",
    "port": 10250,
    "authentication.webhook.enabled": True,
    "authentication.webhook.cacheTTL": 120 * _S,
    "authentication.anonymous.enabled": False,
    "authorization.mode": "Webhook",
    "authorization.webhook.cacheAuthorizedTTL": 300 * _S,
    "authorization.webhook.cacheUnauthorizedTTL": 30 * _S,
    "registryPullQPS": 5,
    "registryBurst": 10,
    "eventRecordQPS": 50,
    "eventBurst": 100,
    "enableDebuggingHandlers": True,
    "healthzPort": 10248,
    "healthzBindAddress": "127.0.0.1",
    "oomScoreAdj": -999,
    "streamingConnectionIdleTimeout": 4 * 3600 * _S,
    "nodeLeaseDurationSeconds": 40,
    "imageMinimumGCAge": 120 * _S,
    "imageGCHighThresholdPercent": 85,
    "imageGCLowThresholdPercent": 80,
    "volumeStatsAggPeriod": 60 * _S,
    "cgroupsPerQOS": True,
    "cgroupDriver": "cgroupfs",
    "cpuManagerPolicy": "none",
    "cpuManagerReconcilePeriod": 10 * _S,
    "memoryManagerPolicy": "None",
    "topologyManagerPolicy": "none",
    "topologyManagerScope": "container",
    "runtimeRequestTimeout": 120 * _S,
    "hairpinMode": "promiscuous-bridge",
    "maxPods": 110,
    "podPidsLimit": -1,
    "resolvConf": "/etc/resolv.conf",
    "cpuCFSQuota": True,
    "cpuCFSQuotaPeriod": _S // 10,
    "nodeStatusMaxImages": 50,
    "maxOpenFiles": 1_000_000,
    "contentType": "application/vnd.kubernetes.protobuf",
    "kubeAPIQPS": 50,
    "kubeAPIBurst": 100,
    "evictionPressureTransitionPeriod": 300 * _S,
    "mergeDefaultEvictionSettings": False,
    "enableControllerAttachDetach": True,
    "makeIPTablesUtilChains": True,
    "iptablesMasqueradeBit": 14,
    "iptablesDropBit": 15,
    "failSwapOn": True,
    "containerLogMaxSize": "10Mi",
    "containerLogMaxFiles": 5,
    "containerLogMaxWorkers": 1,
    "containerLogMonitorInterval": 10 * _S,
    "configMapAndSecretChangeDetectionStrategy": "Watch",
    "enforceNodeAllocatable": ("pods",),
    "volumePluginDir": "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
    "logging.format": "text",
    "logging.flushFrequency": 5 * _S,
    "enableSystemLogHandler": True,
    "enableProfilingHandler": True,
    "enableDebugFlagsHandler": True,
    "seccompDefault": False,
    "memoryThrottlingFactor": 0.9,
    "memoryReservationPolicy": "None",
    "registerNode": True,
    "localStorageCapacityIsolation": True,
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "failCgroupV1": True,
}


def apply(config: KubeletConfiguration, flag_gates: Mapping[str, bool] | None = None) -> KubeletConfiguration:
    """The configuration with all defaults filled in. Idempotent.

    `flag_gates` are the gates of --feature-gates. As in the kubelet, they decide a default unless the configuration
    has the same gate.
    """
    for path, default in _CONSTANTS.items():
        if is_absent(config, path):
            config = schema.replace(config, path, default)
    gates = Gates({**(flag_gates or {}), **(config.feature_gates or {})})
    for path, decide in _DEPENDENT.items():
        if is_absent(config, path) and (value := decide(config, gates)) is not None:
            config = schema.replace(config, path, value)
    # Last, because nodeStatusReportFrequency depends on an explicit value.
    if config.node_status_update_frequency == 0:
        config = schema.replace(config, "nodeStatusUpdateFrequency", 10 * _S)
    if config.pod_pids_limit is not None and config.pod_pids_limit < -1:
        config = schema.replace(config, "podPidsLimit", -1)
    return config


def before_drop_ins(config: KubeletConfiguration) -> dict[str, Any]:
    """Plain values of absent fields whose defaults the kubelet sets before it merges drop-ins.

    It sets all of them then. Only these could be another value afterwards, because they depend on other fields.
    Defaults that depend on a gate wait, so that a drop-in may switch its gate off; the kubelet then refuses its own
    default.
    """
    full = apply(config)
    return {path: encode.leaf(full, path) for path in _BEFORE_DROP_INS if is_absent(config, path)}


def is_absent(config: KubeletConfiguration, path: str) -> bool:
    """True when a field counts as absent: None, or zero in types where zero means absent."""
    value, field = schema.get(config, path), schema.leaves()[path].field
    return value is None or (not field.nullable and value == field.default)


@lru_cache(maxsize=1)
def default() -> KubeletConfiguration:
    """The default configuration."""
    return apply(KubeletConfiguration())


def changed(config: KubeletConfiguration) -> list[str]:
    """Paths of the fields that differ from the default, in a configuration with defaults."""
    return [path for path in schema.leaves() if schema.get(config, path) != schema.get(default(), path)]


def _status_report_frequency(config: KubeletConfiguration, _: Gates) -> int:
    # An explicit update frequency is the default of the report frequency, as in the kubelet.
    return config.node_status_update_frequency or 300 * _S


def _serialize_image_pulls(config: KubeletConfiguration, _: Gates) -> bool:
    return (config.max_parallel_image_pulls or 1) < 2


def _max_container_restart_period(_: KubeletConfiguration, gates: Gates) -> int | None:
    return 300 * _S if gates.enabled("KubeletCrashLoopBackOffMax") else None


def _verification_policy(_: KubeletConfiguration, gates: Gates) -> str | None:
    return "NeverVerifyPreloadedImages" if gates.enabled("KubeletEnsureSecretPulledImages") else None


_DEPENDENT: dict[str, Callable[[KubeletConfiguration, Gates], Any]] = {
    "nodeStatusReportFrequency": _status_report_frequency,
    "serializeImagePulls": _serialize_image_pulls,
    "crashLoopBackOff.maxContainerRestartPeriod": _max_container_restart_period,
    "imagePullCredentialsVerificationPolicy": _verification_policy,
}
_BEFORE_DROP_INS = ("nodeStatusUpdateFrequency", "nodeStatusReportFrequency", "serializeImagePulls")
