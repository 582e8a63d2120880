"""What operations on sandboxes and containers work with, made once; and the monitor, whoever it is at the moment."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from actors.runtime.containers.image_volumes import ImageVolumes
from actors.runtime.containers.rootfs import RootFs
from actors.runtime.images.local.store import ImageStore
from actors.runtime.model.records import Records
from actors.runtime.model.state import Hub, State
from actors.runtime.oci.runtime import OciRuntime
from actors.runtime.oci.spec.build import Machine
from actors.runtime.service.supervision import MonitorClient

log = logging.getLogger(__name__)


class Keeper:
    """Sees to it that there is a monitor."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._client: MonitorClient | None = None
        self._closed = False
        self.on_exited: Callable[[str, int, int], None] = lambda *_: None
        self.adopt: Callable[[MonitorClient], None] = lambda _: None
        """Hands a monitor the containers it does not watch."""

    @property
    def client(self) -> MonitorClient:
        """The present one, started if need be. Raises OSError, MonitorError."""
        with self._lock:
            if self._client is None:
                self._client = MonitorClient(self._path, self.on_exited, self._lost)
                self.adopt(self._client)
            return self._client

    def watcher(self) -> int:
        """The monitor's pid; 0 when nobody has needed one yet. Raises MonitorError."""
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
            log.exception("cannot start the containers' monitor; tried again with the next container")

    def close(self) -> None:
        """Leave it alone with its containers."""
        with self._lock:
            self._closed = True
            if self._client is not None:
                self._client.close()


@dataclass
class Engine:
    """The runtime's parts."""

    root: Path
    """What outlives a boot: images, records, what containers write."""
    run: Path
    """What does not: mounts, pinned namespaces, sockets. Its path is short: sockets are in it."""
    store: ImageStore
    rootfs: RootFs
    oci: OciRuntime
    keeper: Keeper
    volumes: ImageVolumes
    machine: Machine
    state: State
    sandboxes: Records
    containers: Records
    boot: str
    hidden: tuple[str, ...] = ()
    """What the image `host` does not show: patterns of host_image.py."""
    host_image_for_all: bool = False
    privileged: bool = True
    """Isolation levels 1 and 2. Without it there are no mounts, no namespaces of sandboxes and no cgroups."""
    default_cgroup: str = "/nodevisor"
    """Above containers whose sandbox has no cgroup_parent, in the syntax of the driver."""
    hub: Hub = field(default_factory=Hub)

    @property
    def names_cgroups(self) -> bool:
        """Whether a container's cgroup is known before it is there: systemd chooses itself."""
        return self.privileged and not self.machine.systemd_cgroups

    def mounts_of(self, container_id: str) -> Path:
        """Where a container's root file system is mounted."""
        return self.run / "rootfs" / container_id

    def pins_of(self, sandbox_id: str) -> Path:
        """Where a sandbox's namespaces are pinned."""
        return self.run / "ns" / sandbox_id

    def shm_of(self, sandbox_id: str) -> Path:
        """Where a sandbox's /dev/shm is mounted."""
        return self.run / "shm" / sandbox_id

    def console_of(self, id_: str) -> Path:
        """Where the OCI runtime sends a terminal."""
        return self.run / f"tty-{id_[:16]}"
