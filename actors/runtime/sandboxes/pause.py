"""The pause process: first process of a pod with a shared pid namespace. It keeps the namespace and reaps orphans.

It is the machine's shell, run by the OCI runtime without capabilities. It sees only the machine's programs and has a
pid namespace of its own. While it waits for its one child, it reaps every orphan of the namespace. The child is a copy
of the shell that blocks opening a FIFO without writers. A `sleep` would look like one of the pod's own processes.

A container with its user may trace it, and open files below its /proc/PID/root. So it has no more than a container: the
pod's namespaces, a seccomp filter, masked paths of /proc, and a FIFO of its own. SELinux gives it no label of the
pod: policies let no container begin with the machine's shell. So a container's process cannot trace it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from actors.runtime.engine.engine import Engine
from actors.runtime.engine.monitor_client import MonitorError
from actors.runtime.filesystems import shown_mounts
from actors.runtime.helper.cgroups import name_of
from actors.runtime.helper.kernel import seccomp
from actors.runtime.model import processes
from actors.runtime.model.records import read_started
from actors.runtime.model.user_mapping import PodUsers, UserMapping
from actors.runtime.oci.runtime import LOG, OciRuntime, last_error
from actors.runtime.oci.spec.build import cgroups_path
from actors.runtime.oci.spec.seccomp import default_seccomp
from actors.runtime.oci.spec.shown import through_places

OOM_SCORE_ADJ = -998
"""The kubelet's value for sandboxes: with this process the whole pod would end."""
_PROGRAMS = ("usr", "bin", "sbin", "lib", "lib32", "lib64")
_FIFO = "fifo"
_READ_ONLY = tuple(f"/proc/{name}" for name in ("bus", "fs", "irq", "sys", "sysrq-trigger"))
_MASKED = tuple(
    f"/proc/{name}"
    for name in (
        "acpi", "asound", "interrupts", "kcore", "keys", "latency_stats", "sched_debug", "scsi", "timer_list",
        "timer_stats",
    )
)  # fmt: skip
"""As in containers: the paths of containerd and runc."""
_REAP = f"trap '' HUP INT TERM; while :; do (: </{_FIFO}); done"


class Pause:
    """Starts and stops pause processes. The monitor knows each as a container with the sandbox's ID."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def start(
        self,
        oci: OciRuntime,
        id_: str,
        directory: Path,
        cgroup_parent: str,
        pins: Mapping[str, str],
        users: UserMapping | None = None,
    ) -> int:
        """Start a pause process in the pod's namespaces `pins`, path by kind, with its users; return its pid.

        Raises OSError, MonitorError.
        """
        machine = self._engine.machine
        cgroup = cgroups_path(cgroup_parent or self._engine.default_cgroup, id_, machine)
        fifo = directory / _FIFO
        os.mkfifo(fifo)
        os.chmod(fifo, 0o444)
        spec = specification(self.root(), fifo, cgroup, max(OOM_SCORE_ADJ, machine.lowest_oom_score_adj), pins)
        command = oci.run_command(id_, directory, "")
        if users is not None:
            command = show(command, directory, spec, PodUsers(users, pins["user"]))
        if seccomp.available():
            spec["linux"]["seccomp"] = default_seccomp(())
        (directory / "config.json").write_bytes(msgspec.json.encode(spec))
        for name in ("stdout", "stderr"):
            os.mkfifo(directory / name, 0o600)
        try:
            with oci.starting(name_of(cgroup), {}):
                self._engine.monitor.client.ask("start", id_, str(directory), "", "", "", *command)
        except MonitorError as error:
            raise MonitorError(last_error(directory / LOG) or str(error)) from error
        started = read_started(directory)
        if started is None:
            raise MonitorError("the pod's pause process ended at once")
        return started.pid

    def root(self) -> Path:
        """Make its root directory: mount points, and links for the machine's programs."""
        root = self._engine.run / "pause"
        root.mkdir(mode=0o755, exist_ok=True)
        for name in ("proc", "dev"):
            (root / name).mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkfifo(root / _FIFO, 0o444)  # a mount point; a shell would never wait on a regular file
        for name in _PROGRAMS:
            place = root / name
            if os.path.lexists(place) or not os.path.lexists(f"/{name}"):
                continue
            with contextlib.suppress(FileExistsError):  # another sandbox made it
                if os.path.islink(f"/{name}"):
                    place.symlink_to(os.readlink(f"/{name}"))
                else:
                    place.mkdir(mode=0o755)
        return root

    def stop(self, oci: OciRuntime, id_: str) -> None:
        """Kill the pause process and remove its state. Idempotent. Raises MonitorError."""
        started = read_started(self._engine.sandboxes.path(id_))
        if started is None and not oci.knows(id_):
            return
        if started is not None:
            processes.send_signal(started.pid, started.ticks, 9)
        oci.delete(id_)
        with contextlib.suppress(TimeoutError):
            self._engine.monitor.client.ask("forget", id_)

    def runs(self, id_: str) -> bool:
        """Return True when the pause process runs."""
        started = read_started(self._engine.sandboxes.path(id_))
        return started is not None and processes.is_alive(started.pid, started.ticks)


def show(run: Sequence[str], directory: Path, spec: dict[str, Any], users: PodUsers) -> list[str]:
    """Change a specification for a pod with users of its own. Return the command around `run`, the OCI runtime's start.

    Raises OSError.
    """
    places, root = through_places(spec["mounts"], shown_mounts.place), Path(spec["root"]["path"])
    spec["root"]["path"] = str(shown_mounts.ROOT)
    spec["linux"] |= {"uidMappings": users.ids.to_oci(), "gidMappings": users.ids.to_oci()}
    return shown_mounts.command(run, directory, users, root, places)


def specification(rootfs: Path, fifo: Path, cgroup: str, oom_score_adj: int, pins: Mapping[str, str]) -> dict[str, Any]:
    """The config.json of a pause process. It is in the machine's namespace of each kind that `pins` lacks."""
    joined = [{"type": kind, "path": path} for kind, path in sorted(pins.items())]
    return {
        "ociVersion": "1.0.2",
        "root": {"path": str(rootfs), "readonly": True},
        "process": {
            "user": {"uid": 65534, "gid": 65534},
            "args": ["/bin/sh", "-c", _REAP],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "noNewPrivileges": True,
            "oomScoreAdj": oom_score_adj,
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
            # All pods share this root: two runc at once would make the same links in its /dev, and one would fail.
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "noexec", "mode=755"]},
            {"destination": f"/{_FIFO}", "type": "bind", "source": str(fifo), "options": ["bind", "ro"]},
            *(
                {
                    "destination": f"/{name}",
                    "type": "bind",
                    "source": f"/{name}",
                    "options": ["bind", "ro", "nosuid", "nodev"],
                }
                for name in _PROGRAMS
                if (rootfs / name).is_dir() and not (rootfs / name).is_symlink()
            ),
        ],
        "linux": {
            # Without a mount namespace the OCI runtime would change the machine's mounts.
            "namespaces": [{"type": "pid"}, {"type": "mount"}, *joined],
            "cgroupsPath": cgroup,
            "maskedPaths": list(_MASKED),
            "readonlyPaths": list(_READ_ONLY),
        },
    }
