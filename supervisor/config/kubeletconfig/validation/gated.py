"""Rules of fields that depend on a feature gate, among them those of the shutdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from supervisor.config.kubeletconfig.feature_gates import Gates, requirement
from supervisor.config.kubeletconfig.problems import Problem
from supervisor.config.kubeletconfig.typed.types import KubeletConfiguration
from supervisor.config.kubeletconfig.validation.numbers import text

_S = 1_000_000_000
_CFS_DEFAULT = _S // 10
_RESTART_PERIOD = "crashLoopBackOff.maxContainerRestartPeriod"


def rules(config: KubeletConfiguration, gates: Gates) -> Iterator[Problem]:
    """Violations that depend on a gate."""
    for gate, path, is_set in _needs(config):
        if is_set and not gates.enabled(gate):
            yield Problem(path, requirement(gate))
    yield from _restart_period(config, gates)
    yield from _shutdown(config, gates)
    if config.run_once:
        yield Problem(
            "runOnce",
            "the kubelet's run-once mode was removed in 1.31; leave it out and start with the flag --run-once",
        )
    if config.enable_system_log_query and not config.enable_system_log_handler:
        yield Problem("enableSystemLogQuery", "requires enableSystemLogHandler to be true")


def _needs(config: KubeletConfiguration) -> tuple[tuple[str, str, bool], ...]:
    quota_period = config.cpu_cfs_quota_period
    return (
        ("CustomCPUCFSQuotaPeriod", "cpuCFSQuotaPeriod", quota_period not in (None, _CFS_DEFAULT)),
        ("ImageMaximumGCAge", "imageMaximumGCAge", config.image_maximum_gc_age != 0),
        ("RotateKubeletServerCertificate", "serverTLSBootstrap", config.server_tls_bootstrap),
        ("NodeSwap", "memorySwap.swapBehavior", bool(config.memory_swap.swap_behavior)),
        ("NodeLogQuery", "enableSystemLogQuery", bool(config.enable_system_log_query)),
        ("MemoryQoS", "memoryReservationPolicy", config.memory_reservation_policy == "TieredReservation"),
        ("QOSReserved", "qosReserved", bool(config.qos_reserved)),
        ("GracefulNodeShutdown", "shutdownGracePeriod", config.shutdown_grace_period > 0),
        ("GracefulNodeShutdown", "shutdownGracePeriodCriticalPods", config.shutdown_grace_period_critical_pods > 0),
        (
            "GracefulNodeShutdownBasedOnPodPriority",
            "shutdownGracePeriodByPodPriority",
            bool(config.shutdown_grace_period_by_pod_priority),
        ),
        (
            "KubeletCrashLoopBackOffMax",
            _RESTART_PERIOD,
            config.crash_loop_back_off.max_container_restart_period is not None,
        ),
        (
            "KubeletEnsureSecretPulledImages",
            "imagePullCredentialsVerificationPolicy",
            bool(config.image_pull_credentials_verification_policy),
        ),
        (
            "KubeletEnsureSecretPulledImages",
            "preloadedImagesVerificationAllowlist",
            bool(config.preloaded_images_verification_allowlist),
        ),
    )


def _restart_period(config: KubeletConfiguration, gates: Gates) -> Iterator[Problem]:
    period = config.crash_loop_back_off.max_container_restart_period
    if not gates.enabled("KubeletCrashLoopBackOffMax"):
        return
    if period is None:
        yield Problem(_RESTART_PERIOD, "must be set while feature gate KubeletCrashLoopBackOffMax is on")
    elif not 1 * _S <= period <= 300 * _S:
        yield Problem(_RESTART_PERIOD, f"must be between 1s and 300s, not {text(period)}")


def _shutdown(config: KubeletConfiguration, gates: Gates) -> Iterator[Problem]:
    total, critical = config.shutdown_grace_period, config.shutdown_grace_period_critical_pods
    by_priority = config.shutdown_grace_period_by_pod_priority or ()
    if gates.enabled("GracefulNodeShutdown"):
        for path, period in (("shutdownGracePeriod", total), ("shutdownGracePeriodCriticalPods", critical)):
            if 0 < period < 1 * _S:
                yield Problem(path, f"must be either zero or at least 1s, not {text(period)}")
        if critical > total:
            problem = f"must be at most shutdownGracePeriod ({text(total)}), not {text(critical)}"
            yield Problem("shutdownGracePeriodCriticalPods", problem)
    if gates.enabled("GracefulNodeShutdownBasedOnPodPriority") and by_priority and (total > 0 or critical > 0):
        problem = "cannot be set together with shutdownGracePeriod or shutdownGracePeriodCriticalPods; keep one"
        yield Problem("shutdownGracePeriodByPodPriority", problem)
    for index, entry in enumerate(by_priority):
        if entry.shutdown_grace_period_seconds < 0:
            path = f"shutdownGracePeriodByPodPriority[{index}].shutdownGracePeriodSeconds"
            yield Problem(path, f"must be 0 or greater, not {entry.shutdown_grace_period_seconds}")


def provider_tokens(gates: Mapping[str, bool]) -> str:
    """The reason against service account tokens for credential providers; empty when the gate is on."""
    gate = "KubeletServiceAccountTokenForCredentialProviders"
    return "" if Gates(gates).enabled(gate) else requirement(gate)
