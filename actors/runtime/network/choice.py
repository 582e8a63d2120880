"""Chooses the pod network: CNI if it is configured, else the runtime's own bridge."""

from __future__ import annotations

import logging
import threading
import zlib
from pathlib import Path
from typing import Any

from actors.runtime.model.state import Sandbox, State
from actors.runtime.network import netlink
from actors.runtime.network.api import Network
from actors.runtime.network.bridge import BridgeNetwork, remove
from actors.runtime.network.cni import BIN_DIRS, CONF_DIR, STATE_FILE, CniNetwork
from actors.runtime.network.host import HostNetwork
from actors.runtime.network.ports import Pod, host_ports
from actors.runtime.network.subnets import SUBNETS
from proto.agent.settings import Settings

log = logging.getLogger(__name__)


class PodNetwork(Network):
    """Attaches a pod to the network configured now, and detaches it from the network that it was attached to."""

    def __init__(self, cni: CniNetwork, state: State, bridge_name: str) -> None:
        self._cni = cni
        self._state = state
        self._bridge_name = bridge_name
        self._bridge: BridgeNetwork | None = None
        self._lock = threading.Lock()

    @property
    def kind(self) -> str:
        """Name of the network, for people."""
        return "CNI" if self._cni.is_configured() else f"bridge {self._bridge_name}"

    def problem(self) -> str:
        """See Network."""
        return self._cni.problem() if self._cni.is_configured() else ""

    def attach(self, sandbox: Sandbox, netns: str, directory: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
        """See Network."""
        network = self._cni if self._cni.is_configured() else self._bridge_network()
        return network.attach(sandbox, netns, directory)

    def detach(self, sandbox: Sandbox, directory: Path) -> None:
        """See Network."""
        if (directory / STATE_FILE).exists():
            self._cni.detach(sandbox, directory)
        elif "network" in sandbox.record.namespaces or not sandbox.record.namespaces:
            self._bridge_network().detach(sandbox, directory)

    def release(self, directory: Path) -> None:
        """See Network. On the bridge a record holds the address, and a link ends with its namespace."""
        self._cni.release(directory)

    def reconcile(self) -> None:
        """See Network."""
        if self._bridge is not None or self._on_record():
            self._bridge_network().reconcile()
            return
        try:
            with self._lock:
                if self._bridge is None and netlink.exists(self._bridge_name):  # with its table
                    remove(self._bridge_name)
        except OSError as error:
            log.warning("cannot remove bridge %s, which has no pods: %s", self._bridge_name, error)

    def _bridge_network(self) -> BridgeNetwork:
        with self._lock:
            if self._bridge is None:
                recorded = next((one for one in self._attached() if "subnet" in one), {})
                name, subnet = recorded.get("bridge", self._bridge_name), recorded.get("subnet", SUBNETS[0])
                self._bridge = BridgeNetwork(name, subnet, self._on_record)
            return self._bridge

    def _attached(self) -> list[dict[str, Any]]:
        """Network data of recorded pods. A pod that a reboot ended has none."""
        return [one.record.network for one in self._state.sandboxes.all() if one.record.ips]

    def _on_record(self) -> dict[str, Pod]:
        """Recorded pods of the bridge, by sandbox ID."""
        return {
            one.record.id: Pod(one.record.network["address"], host_ports(one.config))
            for one in self._state.sandboxes.all()
            if "address" in one.record.network and one.record.ips
        }


def choose_network(settings: Settings, state: State, root: Path, *, privileged: bool) -> PodNetwork | HostNetwork:
    """The network of this machine's pods. `root` is the runtime's directory.

    Settings.extra may have `cni_conf_dir` and a list `cni_bin_dirs`."""
    if not privileged:
        return HostNetwork()
    extra: dict[str, Any] = settings.extra
    cni = CniNetwork(extra.get("cni_conf_dir", CONF_DIR), extra.get("cni_bin_dirs", BIN_DIRS))
    return PodNetwork(cni, state, bridge_name(root))


def bridge_name(directory: Path) -> str:
    """Name of this agent's bridge, the same after a restart. Raises OSError.

    It follows from the directory's inode, not its path: two agents in containers on the machine's network may use one
    path.
    """
    found = directory.stat()
    return f"nv{zlib.crc32(f'{found.st_dev}:{found.st_ino}'.encode()):08x}"
