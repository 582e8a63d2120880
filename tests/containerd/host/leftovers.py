"""Takes away what a private containerd left: processes, mounts, its bridge, its directory.

The instance's own directory and network name identify all of it, so nothing else is touched.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from actors.runtime.network import netlink
from tests.containerd.requirements import which


def clear(directory: Path, network: str) -> None:
    """Take away everything the containerd in `directory` left, whose pods' bridge is called `network`."""
    end_processes(directory)
    unmount_below(directory)
    delete_network(network)
    delete_directory(directory)


def end_processes(directory: Path) -> list[int]:
    """Kill the containerd that lives under `directory`, its shims, what they run, and all below; their pids."""
    ended: list[int] = []
    deadline = time.monotonic() + 10
    while doomed := _processes_of(directory):  # until a look finds none: they start others
        if time.monotonic() > deadline:
            raise TimeoutError(f"cannot end the processes {doomed} of {directory}: they outlive SIGKILL")
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended += [pid for pid in doomed if pid not in ended]
        while any(Path(f"/proc/{pid}").exists() and not _is_zombie(pid) for pid in doomed):
            if time.monotonic() > deadline:
                raise TimeoutError(f"cannot end the processes {doomed} of {directory}: they outlive SIGKILL")
            time.sleep(0.02)
    return ended


def _processes_of(directory: Path) -> list[int]:
    doomed: list[int] = []
    parents = _parents()
    for pid in parents:
        command = command_line(pid)
        named = command and Path(command[0]).name.startswith(("containerd", "runc"))
        if named and any(part.startswith(f"{directory}/") for part in command):
            doomed += [pid, *_descendants(pid, parents)]
    return doomed


def _parents() -> dict[int, int]:
    """Each process's parent."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    return parents


def _descendants(pid: int, parents: dict[int, int]) -> list[int]:
    found: list[int] = []
    level = {pid}
    while level := {child for child, parent in parents.items() if parent in level}:
        found += level
    return found


def command_line(pid: int) -> list[str]:
    """The arguments of a process; empty when it is gone or a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def unmount_below(directory: Path) -> None:
    """Unmount everything under `directory`, the last mounted first."""
    for _ in range(3):  # one mount may lie over another
        points = mounts_below(directory)
        if not points:
            return
        for point in reversed(points):
            subprocess.run(["umount", "-l", point], check=False, capture_output=True)


def mounts_below(directory: Path) -> list[str]:
    """Mount points under `directory`, in the order of mounting."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in points if point.startswith(f"{directory}/")]


def delete_network(name: str) -> None:
    """Delete the bridge `name` and what CNI remembers of the network of that name."""
    netlink.delete(name)
    for result in Path("/var/lib/cni/results").glob(f"{name}-*"):
        result.unlink(missing_ok=True)


def delete_empty_host_port_chains() -> None:
    """Delete portmap's chains in the nat table when no pod on the machine has a host port."""
    iptables = which("iptables") or "iptables"
    listed = subprocess.run([iptables, "-w", "-t", "nat", "-S"], check=True, capture_output=True, text=True).stdout
    rules = [line.split() for line in listed.splitlines() if "CNI-HOSTPORT-" in line]
    if any(rule[:2] == ["-A", "CNI-HOSTPORT-DNAT"] for rule in rules):
        return  # somebody's pod
    jumps = [["-D", *rule[1:]] for rule in rules if rule[0] == "-A"]
    chains = [rule[1] for rule in rules if rule[0] == "-N"]
    for change in (*jumps, *(["-F", chain] for chain in chains), *(["-X", chain] for chain in chains)):
        subprocess.run([iptables, "-w", "-t", "nat", *change], check=False, capture_output=True)


def delete_empty_cgroups(name: str) -> None:
    """Delete the cgroup `name` at the top of each hierarchy where nothing is below it."""
    for controller in Path("/sys/fs/cgroup").iterdir():
        with contextlib.suppress(OSError):
            (controller / name).rmdir()
    with contextlib.suppress(OSError):
        (Path("/sys/fs/cgroup") / name).rmdir()


def delete_directory(directory: Path) -> None:
    """Delete `directory`, unless something is still mounted in it, whose contents would go with it."""
    if points := mounts_below(directory):
        raise OSError(f"cannot delete {directory}: still mounted below it: {', '.join(points)}")
    if directory.exists():
        shutil.rmtree(directory)
