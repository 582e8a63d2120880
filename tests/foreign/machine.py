"""A machine of its own for an agent with default directories: mounts, cgroups and network that no other test has.

`python -m tests.foreign.machine DIRECTORY COMMAND...` runs in new namespaces of mounts, cgroups and network. It mounts
DIRECTORY's `log`, `lib` and `run` over the machine's. It mounts the cgroup hierarchies anew, so that `/` is its own
cgroup, and executes COMMAND.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from actors._cgroup import fs
from actors._cgroup.hierarchy import hierarchy
from actors._cgroup.quantities.resources import PodLimits
from actors._host.files import mounts
from actors.runtime.model import namespaces
from tests.harness import wait_for

PLACES = {"log": "/var/log", "lib": "/var/lib", "run": "/run"}
HIDDEN = ("/etc/cni",)


class Machine:
    """Directories, a cgroup `/NAME` and a network namespace. `start` runs a command on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cgroup = f"/{directory.name}"
        self.log, self.lib, self.run = (directory / name for name in PLACES)
        self.root = self.lib / "kubelet"
        for path in (self.log, self.lib, self.run, self.root):
            path.mkdir(exist_ok=True)
        self.netns = namespaces.make(directory / "ns", ["network"], "machine", {})["network"]
        fs.create(f"{self.cgroup}/started", PodLimits(), hierarchy())

    def start(self, command: Sequence[str | Path], log: Path, **environment: str) -> subprocess.Popen[bytes]:
        """Start the process; it and its children are in `cgroup`."""
        enter = "".join(f"echo $$ > {path}/cgroup.procs; " for path in hierarchy().paths(self.cgroup))
        inside = [
            *("nsenter", f"--net={self.netns}", "unshare", "--mount", "--cgroup", "--propagation", "private"),
            *(sys.executable, "-m", "tests.foreign.machine", str(self.directory), *map(str, command)),
        ]
        with log.open("ab") as out:
            return subprocess.Popen(
                ["sh", "-c", f'{enter} exec "$@"', "sh", *inside],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                cwd=Path(__file__).parents[2],
                env={**os.environ, **environment},
                start_new_session=True,
            )

    def pids(self) -> set[int]:
        """All that runs on it, without what is in `kubepods`."""
        found: set[int] = set()
        for top in hierarchy().paths(self.cgroup):
            for directory, below, _ in os.walk(top):
                below[:] = [name for name in below if name != "kubepods"]
                with contextlib.suppress(OSError):
                    found.update(map(int, Path(directory, "cgroup.procs").read_text().split()))
        return found

    def close(self) -> None:
        """End what runs on it, and remove it."""
        for path in hierarchy().paths(self.cgroup):
            for directory, _, _ in os.walk(path):
                with contextlib.suppress(OSError):
                    for pid in Path(directory, "cgroup.procs").read_text().split():
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(int(pid), signal.SIGKILL)
        wait_for(lambda: fs.remove(self.cgroup, hierarchy()), 20, f"nothing runs in {self.cgroup}")
        namespaces.release(self.directory / "ns")


@contextmanager
def machine() -> Iterator[Machine]:
    directory = Path(tempfile.gettempdir(), f"nvf{secrets.token_hex(4)}")  # short: sockets are below it
    directory.mkdir(mode=0o700)
    made = Machine(directory)
    try:
        yield made
    finally:
        made.close()
        assert not mounts.mounts_under(str(directory)), "a mount is left"
        subprocess.run(["rm", "-rf", "--one-file-system", directory], check=True)


def _mount_cgroups() -> None:
    """v1's hierarchies each with its options, v2 once."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        if kind in ("cgroup", "cgroup2"):
            words = options.split(" ")[-1].split(",")
            found.append((before.split(" ")[4], kind, [one for one in words if one not in ("rw", "ro")]))
    for point, _, _ in reversed(found):
        mounts.unmount(point, mounts.MNT_DETACH)
    for point, kind, options in found:
        mounts.mount("cgroup", point, kind, ",".join(options) if kind == "cgroup" else "")


def _become(directory: Path, command: list[str]) -> None:
    for name, place in PLACES.items():
        mounts.bind(str(directory / name), place)
    for place in HIDDEN:
        if os.path.isdir(place):
            mounts.mount("none", place, "tmpfs", "")
    _mount_cgroups()
    if hierarchy().unified:  # a cgroup with limited ones below it may have no process of its own
        Path(hierarchy().mounts[""], "started/cgroup.procs").write_text(str(os.getpid()))
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    os.execvp(command[0], command)


if __name__ == "__main__":
    _become(Path(sys.argv[1]), sys.argv[2:])
