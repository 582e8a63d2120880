"""Everything that pods may leave behind on a node, and what the agent's processes hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from proto.agent.actor import Describe
from proto.wire.errors import ActorError
from tests.agent.faults import Eye

KINDS = {
    "sandbox", "container", "directory", "mount", "cgroup", "runtime mounts", "network namespaces", "addresses",
    "interfaces", "CNI results", "shims", "runtime directories",
}  # fmt: skip
_SMAPS = ("Private_Clean:", "Private_Dirty:")


def of_the_node(eye: Eye) -> Counter[str]:
    """Return kind to number of things of this agent and its containerd."""
    instance = eye.agent.containerd
    directory, bridge = instance.directory, _bridge(instance.directory)
    found: Counter[str] = Counter(left.split(" ")[0].split("/")[0] or "directory" for left in eye.left())
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    found["runtime mounts"] = sum(mount.startswith(f"{directory}/state/") for mount in mounts)
    found["network namespaces"] = sum("/netns/" in mount for mount in mounts if mount.startswith(f"{directory}/"))
    found["addresses"] = sum(path.name[0].isdigit() for path in (directory / "ipam").glob("*/*"))
    found["interfaces"] = len(list(Path(f"/sys/class/net/{bridge}/brif").glob("*")))
    found["CNI results"] = len(list(Path("/var/lib/cni/results").glob(f"{bridge}-*")))
    found["shims"] = sum(str(directory) in _command(pid) for pid in _named("containerd-shim"))
    found["runtime directories"] = len(list((directory / "state").glob("io.containerd.runtime.*/k8s.io/*")))
    return +found


def _bridge(directory: Path) -> str:
    """The network's name, from its configuration."""
    text = next((directory / "net.d").iterdir()).read_text()
    return text.partition('"bridge": "')[2].partition('"')[0]


def _named(prefix: str) -> list[str]:
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "comm").read_text().startswith(prefix):
                pids.append(entry.name)
        except OSError:
            continue
    return pids


def _command(pid: str) -> str:
    try:
        return Path("/proc", pid, "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


@dataclass(frozen=True)
class Held:
    """Resources of one process."""

    pid: int
    fds: int
    threads: int
    private_kib: int
    tasks: int
    timers: int

    def __str__(self) -> str:
        return (
            f"{self.fds} fds, {self.threads} threads, {self.private_kib} KiB, {self.tasks} tasks, {self.timers} timers"
        )


def of_the_actors(eye: Eye) -> dict[str, Held]:
    """Return the resources of each process of the agent, by name."""
    found = {}
    for name, row in eye.actors().items():
        if not row.pid:
            continue
        process = Path(f"/proc/{row.pid}")
        tasks = timers = 0
        if name not in ("supervisor", "forkserver"):
            try:
                described = eye.client.ask(name, Describe(), 5.0)
            except ActorError as error:
                raise AssertionError(f"{name} does not answer: {error}") from error
            tasks, timers = described.tasks, described.timers
        smaps = (process / "smaps_rollup").read_text().splitlines()
        found[name] = Held(
            pid=row.pid,
            fds=len(list((process / "fd").iterdir())),
            threads=len(list((process / "task").iterdir())),
            private_kib=sum(int(line.split()[1]) for line in smaps if line.startswith(_SMAPS)),
            tasks=tasks,
            timers=timers,
        )
    return found
