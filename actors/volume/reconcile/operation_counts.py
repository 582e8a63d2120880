"""What the volume manager counts for /metrics, in the kubelet's terms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from actors._metrics import kubelet as metrics
from actors.volume.policy import Wanted
from actors.volume.reconcile.volume_state import PodVolumes

DESIRED, ACTUAL = "desired_state_of_world", "actual_state_of_world"


def plugin_name(wanted: Wanted) -> str:
    """A plugin as the kubelet names it: kubernetes.io/configmap."""
    plugin = wanted.plugin
    return (plugin.directory or f"kubernetes.io~{plugin.source.replace('_', '-')}").replace("~", "/")


def set_up(wanted: Wanted | None, took_s: float, *, failed: bool) -> None:
    """One attempt to set a volume up. Those of a batch take the time of the batch."""
    if wanted is not None:
        status = "fail-unknown" if failed else "success"
        metrics.STORAGE_SECONDS.observe(took_s, plugin_name(wanted), "volume_mount", status, "false")


def measure(pods: Mapping[str, PodVolumes]) -> None:
    """Set the gauges of volumes, wanted and there."""
    found: Counter[tuple[str, str]] = Counter()
    for pod in pods.values():
        for name, wanted in pod.wanted.items():
            plugin = plugin_name(wanted)
            found[plugin, DESIRED] += 1
            found[plugin, ACTUAL] += name in pod.actual and pod.actual[name].mounted
    metrics.TOTAL_VOLUMES.replace(found.items())
