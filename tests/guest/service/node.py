"""A node in the guest: containerd with the systemd driver, and the agent as the service that README describes."""

from __future__ import annotations

import json
import shlex
import tempfile
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.containerd.images import PAUSE, busybox, pause, write_archive
from tests.guest.guest import CHECKOUT, Guest

MANIFESTS = "/etc/kubernetes/manifests"
PODS = "/root/pods.json"
"""Written by tests.guest.service.statuses, which outlives the agent."""
_CONTAINERD = f"""\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
"""
_NETWORK = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipMasq": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": "10.88.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}
PATIENCE_S = 20.0
WATCHDOG_S = 120
"""Beside other work the emulated machine stands still for longer than the unit's 30 s."""
_KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "staticPodPath": MANIFESTS,
    "cgroupDriver": "systemd",
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
}


class Node:
    """The service in a guest, started."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest

    def start(self, **configuration: Any) -> None:
        """Configure containerd and the service, and start both. Returns once the service says that it is ready.

        `configuration` is added to the agent's.
        """
        self.guest.put("/etc/containerd/config.toml", _CONTAINERD)
        self.guest.put("/etc/cni/net.d/10-pods.conflist", json.dumps(_NETWORK))
        self.configure(**configuration)
        self.guest.put("/etc/systemd/system/nodevisor.service", (CHECKOUT / "etc/nodevisor.service").read_text())
        with tempfile.TemporaryDirectory(prefix="nv-guest-images-") as name:
            archive = Path(name, "images.tar")
            write_archive(archive, [busybox(), pause()])
            self.guest.put("/root/images.tar", archive.read_bytes())
        program = shlex.quote(str(self.guest.checkout / ".venv/bin/supervisor"))
        self.guest.run(
            f"mkdir -p {MANIFESTS} /opt/nodevisor/bin && ln -sfn {program} /opt/nodevisor/bin/supervisor && "
            "systemctl restart containerd && ctr -n k8s.io images import /root/images.tar",
            300,
        )
        self.watchdog()
        self.restart()

    def configure(self, **configuration: Any) -> None:
        """Write the agent's configuration, with this in addition."""
        self.guest.put("/etc/kubernetes/kubelet.yaml", yaml.safe_dump(_KUBELET | configuration))

    def watchdog(self, limit_s: int = WATCHDOG_S) -> None:
        """Set the WatchdogSec of the service's next start."""
        directory = "/etc/systemd/system/nodevisor.service.d"
        self.guest.put(f"{directory}/watchdog.conf", f"[Service]\nWatchdogSec={limit_s}\n")
        self.guest.run("systemctl daemon-reload")

    def restart(self) -> None:
        """End the service if it runs, and start it. Returns once it says that it is ready."""
        self.guest.run("systemctl stop nodevisor", 120)
        self.show_pods()
        started = self.guest.run("systemctl start nodevisor", 660, check=False)
        assert started.returncode == 0, f"{started.stdout}\n{self.journal()}"

    def show_pods(self) -> None:
        """Have `pods` tell what the next agent says, and after its end what it said last."""
        python = shlex.quote(str(self.guest.checkout / ".venv/bin/python"))
        self.guest.run(
            f"rm -f {PODS}; systemctl is-active -q pods-shown || "
            f"systemd-run -q --unit=pods-shown -p WorkingDirectory={shlex.quote(str(self.guest.checkout))} "
            f"-p Before=nodevisor.service {python} -m tests.guest.service.statuses {PODS}"
        )

    def close(self) -> None:
        """End all pods, then the service, and leave nothing of them in the cgroups.

        A container that ignores SIGTERM is killed after `PATIENCE_S`: its own grace period may be ten minutes.
        """
        self.guest.run(f"rm -f {MANIFESTS}/*")
        began = time.monotonic()
        while (left := self.tasks()) and time.monotonic() < began + 120:
            if time.monotonic() > began + PATIENCE_S:
                kills = "; ".join(f"ctr -n k8s.io tasks kill -s SIGKILL {one}" for one in left)
                self.guest.run(kills, check=False)
            time.sleep(1.0)
        told = f"containers are left: {self.left(left)}\n{self.journal()}" if left else ""
        self.guest.run(
            "systemctl disable nodevisor; systemctl stop nodevisor pods-shown; systemctl stop kubepods.slice",
            check=False,
        )
        assert not told, told

    def supervisor(self, command: str, timeout_s: float = 120.0) -> str:
        """Output of a command of the CLI."""
        return self.guest.run(f"/opt/nodevisor/bin/supervisor {command}", timeout_s).stdout

    def pods(self) -> dict[str, dict[str, Any]]:
        """The pods with their last statuses, by name without the node's. None before the agent has told of any."""
        text = self.guest.run(f"cat {PODS} 2>/dev/null", check=False).stdout
        items = json.loads(text)["items"] if text else []
        return {item["metadata"]["name"].removesuffix("-guest"): item for item in items}

    def swap_limit(self, name: str) -> int:
        """memory.swap.max of the pod's container; -1 is no limit."""
        (container,) = self.pods()[name]["status"]["containerStatuses"]
        identity = container["containerID"].partition("://")[2]
        found = self.guest.run(f"cat $(find /sys/fs/cgroup/kubepods.slice -name '*{identity}.scope')/memory.swap.max")
        return -1 if found.stdout == "max\n" else int(found.stdout)

    def memory(self, key: str) -> int:
        """Bytes of a line of /proc/meminfo there."""
        return int(self.guest.run(f"grep '^{key}:' /proc/meminfo").stdout.split()[1]) << 10

    def write(self, *manifests: dict[str, Any]) -> None:
        """Put static pods there, all at once."""
        for manifest in manifests:
            self.guest.put(f"/root/new-pods/{manifest['metadata']['name']}.yaml", yaml.safe_dump(manifest))
        self.guest.run(f"mv /root/new-pods/* {MANIFESTS}/")

    def remove(self, names: Collection[str], timeout_s: float = 240.0) -> None:
        """Remove static pods, and wait until no container of them runs. Fails with what is left, and the journal."""
        self.guest.run(f"cd {MANIFESTS} && rm -f {' '.join(shlex.quote(f'{name}.yaml') for name in names)}")
        deadline = time.monotonic() + timeout_s
        while left := self.tasks():
            assert time.monotonic() < deadline, f"left after {timeout_s:g} s: {self.left(left)}\n{self.journal()}"
            time.sleep(0.5)

    def tasks(self) -> dict[str, str]:
        """States of containerd's tasks, such as RUNNING and STOPPED, by ID."""
        rows = [line.split() for line in self.guest.run("ctr -n k8s.io tasks list").stdout.splitlines()[1:]]
        return {row[0]: row[-1] for row in rows}

    def left(self, tasks: Mapping[str, str]) -> str:
        """For people: these tasks with their pods' names, and the state of the service."""
        inspect = 'ctr -n k8s.io containers info {} | grep -o \'io.kubernetes.[a-z.]*name": "[^"]*\''
        names = {one: self.guest.run(inspect.format(one), check=False).stdout.split("\n") for one in tasks}
        service = self.guest.run("systemctl show -P ActiveState -P NRestarts nodevisor", check=False).stdout.split()
        return f"{[(state, *names[one]) for one, state in tasks.items()]}, service {service}"

    def wait_ready(self, name: str, timeout_s: float = 240.0) -> dict[str, Any]:
        """The pod once it is Ready. Fails with the agent's journal past the deadline."""
        return self.wait_all_ready([name], timeout_s)[name]

    def wait_all_ready(self, names: Collection[str], timeout_s: float = 240.0) -> dict[str, dict[str, Any]]:
        """The pods once all these are Ready. Fails with the agent's journal past the deadline."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            pods = self.pods()
            waited_for = {name: pods.get(name) for name in names if not _is_ready(pods.get(name, {}))}
            if not waited_for:
                return pods
            time.sleep(1.0)
        raise AssertionError(f"not Ready within {timeout_s:g} s: {waited_for}\n{self.journal()}")

    def journal(self) -> str:
        """The agent's last lines."""
        return self.guest.run("journalctl --no-pager -u nodevisor -n 60", check=False).stdout


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def wait_until(guest: Guest, script: str, timeout_s: float = 120.0) -> None:
    """Wait until a shell's script succeeds there."""
    deadline = time.monotonic() + timeout_s
    while guest.run(script, check=False).returncode != 0:
        assert time.monotonic() < deadline, f"{script} fails"
        time.sleep(0.5)
