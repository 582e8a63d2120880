"""Writes a journal of two services by systemd-journald: `python -m tests.server.routes.journald DIRECTORY`.

It runs as the first process of PID, mount and network namespaces of its own, where journald sees neither the machine's
sockets nor its /dev/kmsg.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.harness import wait_for

JOURNALD = "/usr/lib/systemd/systemd-journald"
LINES = 5
CONFIGURATION = "[Journal]\nReadKMsg=no\nAudit=\nRateLimitBurst=0\n"
"""An empty Audit leaves the kernel's auditing as it is."""
SOCKET = Path("/run/systemd/journal/socket")


def write_journal(directory: Path) -> None:
    """A journal of `kubelet.service` and `sshd.service` with LINES entries each."""
    command = ["unshare", "--pid", "--fork", "--mount", "--net", "--mount-proc", "--kill-child"]
    subprocess.run([*command, sys.executable, "-m", __name__, str(directory)], check=True, timeout=60)


def main(directory: str) -> None:
    mount("-t", "tmpfs", "none", "/run")
    for path in ("/run/systemd/journal", "/run/log/journal", "/run/systemd/journald.conf.d"):
        Path(path).mkdir(parents=True)
    Path("/run/systemd/journald.conf.d/test.conf").write_text(CONFIGURATION)
    mount("--bind", directory, "/run/log/journal")
    mount("--bind", "/dev/null", "/dev/kmsg")
    mount("-t", "cgroup2", "none", "/sys/fs/cgroup")  # journald finds a service by the cgroup of the sender
    Path("/run/machine-id").write_text(f"{'0123456789abcdef' * 2}\n")
    mount("--bind", "/run/machine-id", "/etc/machine-id")
    journald = subprocess.Popen([JOURNALD])
    wait_for(SOCKET.exists, 30, "journald listens")
    for service in ("kubelet", "sshd"):
        send_as(service)
    journald.terminate()  # what it has received is in the journal
    journald.wait(30)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def send_as(service: str) -> None:
    """Send entries from a process that is in the service's cgroup, as its /proc says; return once they are written."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    cgroup = Path(f"/run/{service}")
    cgroup.write_text(f"0::/system.slice/{service}.service\n")
    mount("--bind", str(cgroup), f"/proc/{os.getpid()}/cgroup")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.connect(str(SOCKET))
        for number in range(LINES):
            line.send(f"MESSAGE={service} says {number}\nPRIORITY=6\nSYSLOG_IDENTIFIER={service}\n".encode())
    last = f"{service} says {LINES - 1}".encode()
    wait_for(lambda: any(last in path.read_bytes() for path in Path("/run/log/journal").glob("*/*")), 30, "written")
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
