"""The resources that a container is granted, as pod_workers passes them to the runtime."""

from __future__ import annotations

from proto.wire.message import Record


class GrantedDevice(Record, frozen=True, kw_only=True):
    """A device node of the host (CRI's Device)."""

    host_path: str
    container_path: str
    permissions: str
    """Any of r, w, m."""


class GrantedMount(Record, frozen=True, kw_only=True):
    """A mount that a device plugin asks for (CRI's Mount)."""

    host_path: str
    container_path: str
    read_only: bool = False


class Grant(Record, frozen=True, kw_only=True):
    """The resources of one container. Empty values leave the runtime's default."""

    cpus: str = ""
    """cpuset.cpus in the kernel's list format, such as 0-3,8."""
    memory_nodes: str = ""
    """cpuset.mems in the same format."""
    exclusive_cpus: bool = False
    """No other container runs on `cpus`. The container then has no CFS quota."""
    environment: dict[str, str] = {}
    devices: tuple[GrantedDevice, ...] = ()
    mounts: tuple[GrantedMount, ...] = ()
    annotations: dict[str, str] = {}
    cdi_devices: tuple[str, ...] = ()
    """Qualified CDI names: vendor/class=device."""
