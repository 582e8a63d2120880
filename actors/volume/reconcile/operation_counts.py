"""The kubelet's metrics of volume operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from actors._metrics import kubelet as metrics
from actors.volume.policy import Wanted
from actors.volume.reconcile.volume_state import PodVolumes

DESIRED, ACTUAL = "desired_state_of_world", "actual_state_of_world"


def plugin_name(wanted: Wanted) -> str:
    """The kubelet's name of a plugin: kubernetes.io/configmap."""
    plugin = wanted.plugin
    return (plugin.directory or f"kubernetes.io~{plugin.source.replace('_', '-')}").replace("~", "/")


def set_up(wanted: Wanted | None, took_s: float, *, failed: bool) -> None:
    """Count one attempt to set a volume up; `took_s` of its whole batch."""
    if wanted is not None:
        status = "fail-unknown" if failed else "success"
        metrics.STORAGE_SECONDS.observe(took_s, plugin_name(wanted), "volume_mount", status, "false")


def measure(pods: Mapping[str, PodVolumes]) -> None:
    """Set the gauges of desired and actual volumes."""
    found: Counter[tuple[str, str]] = Counter()
    for pod in pods.values():
        for name, wanted in pod.wanted.items():
            plugin = plugin_name(wanted)
            found[plugin, DESIRED] += 1
            found[plugin, ACTUAL] += name in pod.actual and pod.actual[name].mounted
    metrics.TOTAL_VOLUMES.replace(found.items())
