"""Builds the managers of the node's resources from the settings."""

from __future__ import annotations

from dataclasses import dataclass

from actors.resources.model.provider import Provider
from proto.agent.settings import Settings


@dataclass(frozen=True)
class Managers:
    """The managers that the settings ask for."""

    providers: tuple[Provider, ...] = ()
    """In the kubelet's order: devices, CPUs, memory."""
    device_resources: tuple[str, ...] = ()
    """Extended resources that device plugins provide."""
    shared_cpus: str = ""
    """CPUs of containers without exclusive ones. Empty: any."""


def make_managers(settings: Settings) -> Managers:  # noqa: ARG001 - no manager exists yet
    """Read the machine and the state files. Blocks on the disk."""
    return Managers()
