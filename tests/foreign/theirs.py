"""Things of another agent: a process in a pod's cgroups, logs, links, a mounted volume, a bridge, a table.

All of it is real, and `missing` lists the changed parts.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from actors._cgroup import fs
from actors._cgroup.hierarchy import hierarchy
from actors._cgroup.quantities.resources import PodLimits
from actors.runtime.model.namespace_threads import in_namespace
from actors.runtime.network import netlink, nftables
from actors.runtime.network.nftables import Table
from tests.harness import alive, wait_for

BRIDGE, TABLE = "nvffffffff", "nvffffffff"
"""As another nodevisor might call them."""
ADDRESS = "10.88.0.1/24"
"""The first choice of ours, too."""


class Theirs:
    """One foreign pod, on these directories and below `CGROUP_ROOT/kubepods`."""

    def __init__(self, root: Path, cgroup_root: str, logs: Path, links: Path, netns: str = "") -> None:
        """`netns`: the network namespace to have a bridge in; without one there is none."""
        self.uid = str(uuid.uuid4())
        self.root, self.netns, self.mountinfo = root, netns, Path("/proc/self/mountinfo")
        self._cgroup_root = cgroup_root
        self.cgroups = self._make_cgroups()
        self.process = subprocess.Popen(["sleep", "100000"])
        self.files = self._make_logs(logs, links)
        self.volume = root / "pods" / self.uid / "volumes/kubernetes.io~empty-dir/v"
        self.volume.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "theirs", self.volume], check=True)
        (self.volume / "precious").touch()
        if netns:
            in_namespace(netns, self._make_network)

    def _make_cgroups(self) -> list[Path]:
        top = f"{self._cgroup_root}/kubepods/besteffort"
        self._pods = [f"{top}/pod{self.uid}", f"{self._cgroup_root}/kubepods/podempty"]
        container = f"{self._pods[0]}/{'c' * 64}"
        for name in (*self._pods, container):
            fs.create(name, PodLimits(cpu_shares=2), hierarchy())
        self._empty = [Path(path) for path in hierarchy().paths(self._pods[1])]
        return [Path(path) for path in hierarchy().paths(container)]

    def _make_logs(self, logs: Path, links: Path) -> list[Path]:
        log = logs / f"default_theirs_{self.uid}" / "c/0.log"
        log.parent.mkdir(parents=True)
        log.write_text("2026-11-20T10:00:00.000000000Z stdout F theirs\n" * 1000)
        (log.parent / "linked").symlink_to(log)
        other = logs / "lost+found"
        other.mkdir()
        trash = logs / f".removed-default_old_{uuid.uuid4()}"
        trash.mkdir()
        links.mkdir(exist_ok=True)
        link, dangling = (links / f"theirs_default_c-{letter * 64}.log" for letter in "cd")
        link.symlink_to(log)
        dangling.symlink_to(log.with_name("1.log"))
        return [log, log.parent / "linked", other, trash, link, dangling]

    def _make_network(self) -> None:
        netlink.add_bridge(BRIDGE, b"\x0a\x58\x0a\x58\x00\x01")
        netlink.add_address(BRIDGE, ADDRESS)
        netlink.set_up(BRIDGE)
        nftables.replace(Table(TABLE, (), ()))

    def enter(self) -> None:
        """Have the process in its pod's cgroups. While it is in there, an agent of ours may refuse to start."""
        for path in self.cgroups:
            (path / "cgroup.procs").write_text(str(self.process.pid))

    def leave(self) -> None:
        """Have it outside of them."""
        for path in hierarchy().paths("/"):
            Path(path, "cgroup.procs").write_text(str(self.process.pid))

    def missing(self) -> list[str]:
        """Return the things that were changed."""
        found = [str(path) for path in (*self.cgroups, *self._empty) if not path.is_dir()]
        found += [str(path) for path in self.files if not os.path.lexists(path)]
        if not alive(self.process.pid):
            found.append(f"the process {self.process.pid}")
        if str(self.volume) not in self.mountinfo.read_text() or not (self.volume / "precious").exists():
            found.append(f"the mount {self.volume}")
        if self.netns:
            found += in_namespace(self.netns, self._missing_network)
        return found

    def _missing_network(self) -> list[str]:
        here = {"bridge": netlink.exists(BRIDGE), "table": nftables.exists(TABLE)}
        here["address"] = ADDRESS.partition("/")[0] in netlink.local_addresses()
        return [f"the {what}" for what, there in here.items() if not there]

    def close(self) -> None:
        """All of it but the logs, which are in a directory of the test's."""
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(subprocess.CalledProcessError):
            subprocess.run(["umount", self.volume], check=True)
        for name in self._pods:
            wait_for(functools.partial(fs.remove, name, hierarchy()), 10, "their cgroups go")


@contextmanager
def theirs(root: Path, cgroup_root: str, logs: Path, links: Path, netns: str = "") -> Iterator[Theirs]:
    logs.mkdir(parents=True, exist_ok=True)
    found = Theirs(root, cgroup_root, logs, links, netns)
    try:
        assert found.missing() == []
        yield found
    finally:
        found.close()
