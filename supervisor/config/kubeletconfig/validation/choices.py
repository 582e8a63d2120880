"""Rules of fields with a closed set of values."""

from __future__ import annotations

from collections.abc import Iterator

from supervisor.config.kubeletconfig.problems import Problem
from supervisor.config.kubeletconfig.suggestion import suggestion
from supervisor.config.kubeletconfig.typed import schema
from supervisor.config.kubeletconfig.typed.types import KubeletConfiguration

_CHOICES: dict[str, tuple[str, ...]] = {
    "authorization.mode": ("AlwaysAllow", "Webhook"),
    "cgroupDriver": ("cgroupfs", "systemd"),
    "cpuManagerPolicy": ("none", "static"),
    "memoryManagerPolicy": ("None", "Static"),
    "topologyManagerPolicy": ("none", "best-effort", "restricted", "single-numa-node"),
    "topologyManagerScope": ("container", "pod"),
    "hairpinMode": ("none", "hairpin-veth", "promiscuous-bridge"),
    "configMapAndSecretChangeDetectionStrategy": ("Get", "Cache", "Watch"),
    "memorySwap.swapBehavior": ("", "NoSwap", "LimitedSwap"),
    "memoryReservationPolicy": ("None", "TieredReservation"),
    "tlsMinVersion": ("", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"),
    "logging.format": ("text", "json"),
}


def rules(config: KubeletConfiguration) -> Iterator[Problem]:
    """Violations of closed sets."""
    for path, allowed in _CHOICES.items():
        yield from one_of(path, schema.get(config, path), allowed)


def one_of(path: str, value: str, allowed: tuple[str, ...]) -> Iterator[Problem]:
    """A violation, unless the value is allowed."""
    if value not in allowed:
        named = ", ".join(word or '""' for word in allowed)
        hint = suggestion(value, filter(None, allowed))
        yield Problem(path, f"must be one of {named}, not {value[:60]!r}{hint}")
