"""Cgroups for one machine, one in every hierarchy of this machine: the roots that the machine's processes see."""

import contextlib
import os
import time
from pathlib import Path
from typing import NamedTuple


class Hierarchy(NamedTuple):
    """A mounted cgroup hierarchy."""

    mount: Path
    kind: str
    """cgroup or cgroup2."""
    options: str
    """The mount options that mount the same hierarchy elsewhere."""


def hierarchies() -> list[Hierarchy]:
    """The hierarchies that are mounted at /sys/fs/cgroup or below it."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _source, options = after.split()
        mount = before.split()[4]
        if kind in ("cgroup", "cgroup2") and mount.startswith("/sys/fs/cgroup"):
            names = [name for name in options.split(",") if name not in ("rw", "ro", "xattr")]
            if any(name.startswith("name=") for name in names):
                names.insert(0, "none")
            found.append(Hierarchy(Path(mount), kind, ",".join(names) if kind == "cgroup" else "rw"))
    return found


class Cgroups:
    """The cgroups NAME, from `make` to `delete`."""

    def __init__(self, name: str) -> None:
        self.roots = {hierarchy: hierarchy.mount / name for hierarchy in hierarchies()}

    def make(self) -> None:
        """Make them, ready to take processes."""
        for hierarchy, root in self.roots.items():
            root.mkdir(exist_ok=True)
            if "cpuset" in hierarchy.options.split(","):
                for name in ("cpuset.cpus", "cpuset.mems"):  # a new cpuset has none, and takes no process then
                    (root / name).write_text((hierarchy.mount / name).read_text())
            if hierarchy.kind == "cgroup2":
                # Cgroup v2 gives controllers to what is below a cgroup without processes only.
                (root / "init.scope").mkdir(exist_ok=True)
                self._enable_controllers(hierarchy.mount)

    def _enable_controllers(self, mount: Path) -> None:
        for controller in (mount / "cgroup.controllers").read_text().split():
            with contextlib.suppress(OSError):
                (mount / "cgroup.subtree_control").write_text(f"+{controller}")

    def entrances(self) -> list[Path]:
        """The files that a process of the machine writes its pid to."""
        below = {"cgroup": "cgroup.procs", "cgroup2": "init.scope/cgroup.procs"}
        return [root / below[hierarchy.kind] for hierarchy, root in self.roots.items()]

    def made_inside(self) -> set[str]:
        """Cgroups that processes of the machine made, as paths below /sys/fs/cgroup there."""
        found = set()
        for hierarchy, root in self.roots.items():
            shown = Path("/sys/fs/cgroup") / hierarchy.mount.relative_to("/sys/fs/cgroup")
            below = (Path(path) for path, _, _ in os.walk(root))
            found |= {str(shown / path.relative_to(root)) for path in below if path not in (root, root / "init.scope")}
        return found

    def delete(self, timeout_s: float = 10.0) -> None:
        """Delete them and what is below. No process is in them any more, or is about to be gone."""
        deadline = time.monotonic() + timeout_s
        for root in self.roots.values():
            while root.exists():
                for path, _, _ in os.walk(root, topdown=False):
                    with contextlib.suppress(OSError):
                        Path(path).rmdir()
                if root.exists() and time.monotonic() > deadline:
                    raise TimeoutError(f"cannot delete {root}: processes are in it: {_processes(root)}")
                time.sleep(0.01)


def _processes(root: Path) -> list[str]:
    return [pid for path in root.rglob("cgroup.procs") for pid in path.read_text().split()]
