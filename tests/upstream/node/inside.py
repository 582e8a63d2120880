"""Runs the suite in its machine: `python -m tests.upstream.node.inside '{"focus": ..., "skip": ..., "nodes": ...}'`."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

from tests.containerd import ContainerdInstance
from tests.containerd.images import Image
from tests.controlplane.binaries import CACHE
from tests.fresh.cgroups import hierarchies
from tests.upstream.images import images
from tests.upstream.node.kubelet import PID_FILE, RUNTIME_CGROUP
from tests.upstream.node.machine import REPORT

NODE, ADDRESS = "upstream-node", "192.0.2.1"
"""The machine has no network but this address (RFC 5737)."""
SUITE = Path(os.environ.get("E2E_NODE", CACHE / "e2e_node.test"))
_TOOLS = Path("/usr/local/bin")
_SYSTEMCTL = f"""#!/bin/sh
# A unit of a machine without systemd: the suite starts its program again whenever it ends.
case $1 in
list-units) echo "kubelet-1.service loaded active running" ;;
kill|restart|stop) kill "$(cat {PID_FILE})" ;;
start|reset-failed) ;;
*) exit 1 ;;
esac
"""


def main() -> int:
    """The exit code of the suite."""
    asked = json.loads(sys.argv[1])
    _prepare()
    work, report = Path("/tmp/suite"), Path(REPORT)
    for directory in (work, report):
        directory.mkdir()
    program = work / "kubelet"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m tests.upstream.node.kubelet "$@"\n')
    program.chmod(0o755)
    _move_to(RUNTIME_CGROUP)
    with ContainerdInstance(
        Path("/tmp/containerd"),
        [*images(), _device_plugin(), Image("docker.io/library/busybox:1.31.1")],
        host_ports=True,
    ) as containerd:
        over = threading.Event()
        threading.Thread(target=_restart, args=(containerd, over)).start()
        _move_to("/system")  # the suite's value of systemCgroups
        command = [
            CACHE / "ginkgo", f"-nodes={asked['nodes']}", "-noColor", "-v", f"-focus={asked['focus']}",
            f"-skip={asked['skip']}", SUITE, "--",
            "--container-runtime=remote", f"--container-runtime-endpoint={containerd.endpoint}",
            "--container-runtime-process-name=containerd", "--container-runtime-pid-file=",
            "--prepull-images=false", f"--node-name={NODE}", f"--report-dir={report}", f"--k8s-bin-dir={work}",
        ]  # fmt: skip
        try:
            done = subprocess.run([str(part) for part in command], cwd=work, stdin=subprocess.DEVNULL, check=False)
        finally:
            over.set()
        shutil.copy(containerd.log, report / "containerd.log")
    return done.returncode


def _prepare() -> None:
    """Give the machine an address, and the two commands of upstream's machines that the specs run."""
    for line in (
        "link add eth0 type veth peer name eth0-peer",
        f"address add {ADDRESS}/24 dev eth0",
        "link set eth0 up",
        "link set eth0-peer up",
        "route add default via 192.0.2.2 dev eth0",
    ):
        subprocess.run(["ip", *line.split()], check=True)
    _make_traffic()
    Path("/etc/resolv.conf").unlink()
    Path("/etc/resolv.conf").write_text("nameserver 127.0.0.1\n")  # refuses at once what the suite asks the Internet
    with Path("/etc/hosts").open("a") as hosts:
        hosts.write(f"{ADDRESS} {NODE}\n")
    for name in ("systemd-run", "journalctl"):  # with them the suite would make a unit of systemd
        Path("/usr/bin", name).unlink(missing_ok=True)
    _TOOLS.mkdir(parents=True, exist_ok=True)
    for name, script in (("sudo", '#!/bin/sh\nexec "$@"\n'), ("systemctl", _SYSTEMCTL)):
        (_TOOLS / name).write_text(script)
        (_TOOLS / name).chmod(0o755)


def _make_traffic() -> None:
    """Let 2 MB of frames that nobody reads go each way: the summary's spec expects a node that has had some."""
    frame = b"\xff" * 6 + b"\x02" + b"\x00" * 5 + b"\x88\xb5" + bytes(1000)  # broadcast, an EtherType for experiments
    for device in ("eth0", "eth0-peer"):
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind((device, 0))
            for _ in range(2000):
                raw.send(frame)


def _device_plugin() -> Image:
    program = "/sampledeviceplugin"
    content = (CACHE / "sample-device-plugin").read_bytes()
    return Image("gcr.io/kubernetes-e2e-test-images/sample-device-plugin:1.0", (program,), (), files={program: content})


def _restart(containerd: ContainerdInstance, over: threading.Event) -> None:
    """Start containerd again whenever it ends, as systemd does."""
    _move_to(RUNTIME_CGROUP)
    while not over.wait(1):
        if containerd.pid is None:
            containerd.start()


def _move_to(cgroup: str) -> None:
    """Move this thread, and with it the processes that it starts, to a cgroup that the agent measures."""
    for hierarchy in hierarchies():
        if hierarchy.kind == "cgroup" and "cpuset" not in hierarchy.options:
            place = hierarchy.mount / cgroup.removeprefix("/")
            place.mkdir(exist_ok=True)
            (place / "tasks").write_text(str(threading.get_native_id()))


if __name__ == "__main__":
    sys.exit(main())
