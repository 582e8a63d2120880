"""The types of /stats/summary: stats/v1alpha1 of Kubernetes, with the fields of its JSON.

Source: https://kubernetes.io/docs/reference/instrumentation/node-metrics/. Units are bytes, nanoseconds, nano cores and
inodes. Times are RFC 3339. Fields that are None are left out. The server and the command line read the document.
"""

from __future__ import annotations

import msgspec


class _Shape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """JSON object with camel-case names."""


class PsiLine(_Shape, frozen=True, kw_only=True):
    """Shares of time that tasks were stalled, in per cent, and the stalled time in microseconds."""

    total: int
    avg10: float
    avg60: float
    avg300: float


class Psi(_Shape, frozen=True, kw_only=True):
    """Pressure stall information. `some`: at least one task was stalled; `full`: all were."""

    full: PsiLine
    some: PsiLine


class Cpu(_Shape, frozen=True, kw_only=True):
    """CPU time in total and over the latest interval."""

    time: str
    usage_nano_cores: int | None = None
    usage_core_nano_seconds: int | None = None
    psi: Psi | None = None


class Memory(_Shape, frozen=True, kw_only=True):
    """Memory usage. `available_bytes` is the rest up to the limit, if there is a limit."""

    time: str
    available_bytes: int | None = None
    usage_bytes: int | None = None
    working_set_bytes: int | None = None
    rss_bytes: int | None = None
    page_faults: int | None = None
    major_page_faults: int | None = None
    psi: Psi | None = None


class Io(_Shape, frozen=True, kw_only=True):
    """Pressure stall information of I/O."""

    time: str
    psi: Psi | None = None


class Swap(_Shape, frozen=True, kw_only=True):
    """Used swap, and the rest up to the limit."""

    time: str
    swap_available_bytes: int | None = None
    swap_usage_bytes: int | None = None


class Fs(_Shape, frozen=True, kw_only=True):
    """A file system, and the part that the described pod, container or image store uses."""

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
    """Counters of the default interface and of all interfaces."""

    time: str
    name: str = ""
    rx_bytes: int | None = None
    rx_errors: int | None = None
    tx_bytes: int | None = None
    tx_errors: int | None = None
    interfaces: tuple[Interface, ...] = ()


class Rlimit(_Shape, frozen=True, kw_only=True):
    """Limit and present number of tasks on the node."""

    time: str
    maxpid: int
    curproc: int


class Container(_Shape, frozen=True, kw_only=True):
    """A running container, or a part of the node such as `pods`."""

    name: str
    start_time: str
    cpu: Cpu | None = None
    memory: Memory | None = None
    io: Io | None = None
    rootfs: Fs | None = None
    logs: Fs | None = None
    swap: Swap | None = None


class PodRef(_Shape, frozen=True, kw_only=True):
    """Identity of a pod."""

    name: str
    namespace: str
    uid: str


class Processes(msgspec.Struct, frozen=True, kw_only=True):
    """Number of processes in a pod's containers."""

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
    """File systems of the runtime's images and writable layers."""

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
    """The whole document. `pods` is present even when it is empty."""

    node: Node
    pods: tuple[Pod, ...]
