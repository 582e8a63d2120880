"""The shape of /stats/summary: stats/v1alpha1 of Kubernetes, field for field as its JSON has it.

https://kubernetes.io/docs/reference/instrumentation/node-metrics/. Bytes, nanoseconds, nano cores, inodes, and times as
RFC 3339; what is None is left out. One JSON document between stats and whoever serves or shows it.
"""

from __future__ import annotations

import msgspec


class _Shape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Written as JSON by camel-case names."""


class PsiLine(_Shape, frozen=True, kw_only=True):
    """Shares of time that tasks were stalled, in per cent, and the stalled time in microseconds."""

    total: int
    avg10: float
    avg60: float
    avg300: float


class Psi(_Shape, frozen=True, kw_only=True):
    """`some`: at least one task was; `full`: all were."""

    full: PsiLine
    some: PsiLine


class Cpu(_Shape, frozen=True, kw_only=True):
    """CPU time: in all, and over the latest interval."""

    time: str
    usage_nano_cores: int | None = None
    usage_core_nano_seconds: int | None = None
    psi: Psi | None = None


class Memory(_Shape, frozen=True, kw_only=True):
    """`available_bytes`: up to the limit, where there is one."""

    time: str
    available_bytes: int | None = None
    usage_bytes: int | None = None
    working_set_bytes: int | None = None
    rss_bytes: int | None = None
    page_faults: int | None = None
    major_page_faults: int | None = None
    psi: Psi | None = None


class Io(_Shape, frozen=True, kw_only=True):
    """Only its pressure."""

    time: str
    psi: Psi | None = None


class Swap(_Shape, frozen=True, kw_only=True):
    """Swap that is used, and what is left up to the limit."""

    time: str
    swap_available_bytes: int | None = None
    swap_usage_bytes: int | None = None


class Fs(_Shape, frozen=True, kw_only=True):
    """A file system, and what of it is used by what is described."""

    time: str
    available_bytes: int | None = None
    capacity_bytes: int | None = None
    used_bytes: int | None = None
    inodes_free: int | None = None
    inodes: int | None = None
    inodes_used: int | None = None


class ClaimRef(_Shape, frozen=True, kw_only=True):
    """The PersistentVolumeClaim behind a volume."""

    name: str
    namespace: str


class Volume(Fs, frozen=True, kw_only=True):
    """A volume of a pod."""

    name: str
    pvc_ref: ClaimRef | None = None


class Interface(_Shape, frozen=True, kw_only=True):
    """A network interface's counters."""

    name: str
    rx_bytes: int
    rx_errors: int
    tx_bytes: int
    tx_errors: int


class Network(_Shape, frozen=True, kw_only=True):
    """The default interface's counters, and those of all."""

    time: str
    name: str = ""
    rx_bytes: int | None = None
    rx_errors: int | None = None
    tx_bytes: int | None = None
    tx_errors: int | None = None
    interfaces: tuple[Interface, ...] = ()


class Rlimit(_Shape, frozen=True, kw_only=True):
    """How many tasks there may be on the node, and how many there are."""

    time: str
    maxpid: int
    curproc: int


class Container(_Shape, frozen=True, kw_only=True):
    """A container that runs, or a part of the node (`pods`)."""

    name: str
    start_time: str
    cpu: Cpu | None = None
    memory: Memory | None = None
    io: Io | None = None
    rootfs: Fs | None = None
    logs: Fs | None = None
    swap: Swap | None = None


class PodRef(_Shape, frozen=True, kw_only=True):
    """Which pod."""

    name: str
    namespace: str
    uid: str


class Processes(msgspec.Struct, frozen=True, kw_only=True):
    """Processes of a pod's containers."""

    process_count: int


class Pod(_Shape, frozen=True, kw_only=True):
    """A pod with a running sandbox."""

    pod_ref: PodRef
    start_time: str
    containers: tuple[Container, ...]
    cpu: Cpu | None = None
    memory: Memory | None = None
    io: Io | None = None
    network: Network | None = None
    volume: tuple[Volume, ...] = ()
    ephemeral_storage: Fs | None = msgspec.field(default=None, name="ephemeral-storage")
    process_stats: Processes | None = msgspec.field(default=None, name="process_stats")
    swap: Swap | None = None


class Runtime(_Shape, frozen=True, kw_only=True):
    """Where the runtime keeps images and writable layers."""

    image_fs: Fs | None = None
    container_fs: Fs | None = None


class Node(_Shape, frozen=True, kw_only=True):
    """The machine."""

    node_name: str
    start_time: str
    system_containers: tuple[Container, ...] = ()
    cpu: Cpu | None = None
    memory: Memory | None = None
    io: Io | None = None
    network: Network | None = None
    fs: Fs | None = None
    runtime: Runtime | None = None
    rlimit: Rlimit | None = None
    swap: Swap | None = None


class Summary(_Shape, frozen=True, kw_only=True):
    """The document. `pods` is there even when there is none."""

    node: Node
    pods: tuple[Pod, ...]
