"""The parts that all operations on sandboxes and containers share, and the connection to the monitor."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from actors.runtime.engine.monitor_client import MonitorClient, MonitorLost
from actors.runtime.filesystems.image_volumes import ImageVolumes
from actors.runtime.filesystems.rootfs import RootFs
from actors.runtime.images.local.store import ImageStore
from actors.runtime.model.records import Records
from actors.runtime.model.state import EventHub, State
from actors.runtime.oci import cdi
from actors.runtime.oci.runtime import OciRuntime
from actors.runtime.oci.spec.build import Machine
from actors.runtime.policy import OciChoice, choose_oci
from actors.runtime.selinux.kernel import Labelling

log = logging.getLogger(__name__)


class MonitorManager:
    """Keeps a connection to the monitor, which it starts if needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._client: MonitorClient | None = None
        self._closed = False
        self.on_exited: Callable[[str, int, int], None] = lambda *_: None
        self.adopt: Callable[[MonitorClient], None] = lambda _: None
        """Called with a new connection: makes the monitor watch the running containers."""

    @property
    def closed(self) -> bool:
        """True while this process stops. The monitor goes on with starts under way, and the next runtime finds them."""
        with self._lock:
            return self._closed

    @property
    def client(self) -> MonitorClient:
        """The connection; finds or starts a monitor if there is none. Raises OSError, MonitorError."""
        with self._lock:
            if self._client is None:
                if self._closed:
                    raise MonitorLost("the runtime stops")
                self._client = MonitorClient(self._path, self.on_exited, self._lost)
                self.adopt(self._client)
            return self._client

    def pid(self) -> int:
        """The monitor's pid; 0 before the first connection. Raises MonitorError."""
        with self._lock:
            client = self._client
        return client.containers()[0] if client is not None else 0

    def _lost(self) -> None:
        with self._lock:
            self._client = None
            if self._closed:
                return
        try:
            _ = self.client
        except Exception:
            log.exception("cannot start the containers' monitor; the next container's start tries again")

    def close(self) -> None:
        """Disconnect; the monitor and its containers stay."""
        with self._lock:
            self._closed = True
            if self._client is not None:
                self._client.close()


@dataclass
class Engine:
    """The runtime's shared parts and directories."""

    root: Path
    """Directory that outlives a boot: images, records, writable layers."""
    run: Path
    """Directory that does not: mounts, pinned namespaces, sockets. Its path is short enough for sockets."""
    store: ImageStore
    rootfs: RootFs
    ocis: Mapping[str, OciRuntime]
    """The OCI runtimes of this machine by name, in the order of OCI_PROGRAMS. They share one directory of state."""
    monitor: MonitorManager
    volumes: ImageVolumes
    machine: Machine
    state: State
    labelling: Labelling
    sandboxes: Records
    containers: Records
    boot: str
    hidden: tuple[str, ...] = ()
    """Paths that the image `host` does not show: patterns of host_image.py."""
    host_image_for_all: bool = False
    privileged: bool = True
    """Isolation levels 1 and 2. Without it there are no mounts, no sandbox namespaces and no cgroups."""
    default_cgroup: str = "/nodevisor"
    """Parent of containers whose sandbox has no cgroup_parent, in the cgroup driver's syntax."""
    cdi_directories: tuple[str, ...] = cdi.DIRECTORIES
    """Directories of CDI specifications; a later one goes before."""
    offered: tuple[str, ...] = ()
    """Names of the OCI runtimes that new pods may have."""
    users_problems: Mapping[str, str] = field(default_factory=dict)
    """Why each OCI runtime can give no pod a user namespace of its own; empty if it can. By name, set by the trial."""
    hub: EventHub = field(default_factory=EventHub)

    def choose_oci(self, handler: str, *, users: bool) -> OciChoice:
        """The OCI runtime of a new pod; see policy.choose_oci."""
        return choose_oci({name: self.users_problems[name] for name in self.offered}, handler, users=users)

    def users_by_oci(self) -> dict[str, str]:
        """For people: "yes", or why not, for each OCI runtime that new pods may have, in the order of preference."""
        return {name: self.users_problems[name] or "yes" for name in self.offered}

    def oci_of(self, sandbox_id: str) -> OciRuntime:
        """The OCI runtime that a sandbox has on record; if that is not here any more, the one of new pods.

        Older versions recorded none, and used the first for all pods.
        """
        sandbox = self.state.sandboxes.find(sandbox_id)
        name = sandbox.record.oci if sandbox is not None else ""
        return self.ocis.get(name or next(iter(self.ocis)), self.ocis[self.offered[0]])

    def oci_with(self, id_: str) -> OciRuntime:
        """The OCI runtime that has state of a container without a record."""
        first, *others = self.ocis.values()
        return next((one for one in others if one.has_made(id_)), first)

    def mounts_of(self, container_id: str) -> Path:
        """Mount point of a container's root file system."""
        return self.run / "rootfs" / container_id

    def pins_of(self, sandbox_id: str) -> Path:
        """Directory of a sandbox's pinned namespaces."""
        return self.run / "ns" / sandbox_id

    def shm_of(self, sandbox_id: str) -> Path:
        """Mount point of a sandbox's /dev/shm."""
        return self.run / "shm" / sandbox_id

    def console_of(self, id_: str) -> Path:
        """Socket that the OCI runtime sends a container's terminal to."""
        return self.run / f"tty-{id_[:16]}"
