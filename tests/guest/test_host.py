"""What a machine of production has besides: NFS, AppArmor, swap, systemd's watchdog, and systemd-oomd."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.containerd.images import BUSYBOX
from tests.guest.guest import Guest
from tests.guest.node import Node, wait_until

PROFILE = """\
profile nv-guarded flags=(attach_disconnected,mediate_deleted) {
  file,
  network,
  capability,
  signal,
  deny /guarded w,
}
"""
SWAP_BYTES = 512 << 20
SWAP = {"failSwapOn": False, "memorySwap": {"swapBehavior": "LimitedSwap"}}
FILL_BYTES = 700 << 20
READY_S = 600.0
"""Under emulation."""


def pod(name: str, script: str = "", resources: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", f"{script or ':'}; exec sleep 100000"],
        "resources": resources or {},
    }
    if "volumes" in spec:
        container["volumeMounts"] = [{"name": one["name"], "mountPath": "/data"} for one in spec["volumes"]]
    metadata = {"name": name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"hostNetwork": True, "terminationGracePeriodSeconds": 1, "containers": [container], **spec},
    }


def confined(name: str, **profile: str) -> dict[str, Any]:
    script = "touch /guarded && echo wrote || echo refused; cat /proc/self/attr/current"
    return pod(name, script, securityContext={"appArmorProfile": profile})


def memory(request: str, limit: str) -> dict[str, Any]:
    return {"requests": {"memory": request}, "limits": {"memory": limit}}


PODS = (
    pod(
        "nfs",
        "cat /data/hello; echo written >/data/answer",
        volumes=[{"name": "export", "nfs": {"server": "127.0.0.1", "path": "/srv/export"}}],
    ),
    confined("named", type="Localhost", localhostProfile="nv-guarded"),
    confined("default", type="RuntimeDefault"),
    confined("unconfined", type="Unconfined"),
    pod("burstable", resources=memory("256Mi", "512Mi")),
    pod("guaranteed", resources={"limits": {"memory": "64Mi", "cpu": "100m"}}),
)
NAMES = [one["metadata"]["name"] for one in PODS]


@pytest.fixture(scope="module")
def node(guest: Guest) -> Iterator[Node]:
    guest.put("/etc/apparmor.d/nv-guarded", PROFILE)
    guest.put("/etc/exports", "/srv/export 127.0.0.1(rw,no_root_squash,no_subtree_check,insecure)\n")
    guest.put("/srv/export/hello", "exported\n")
    guest.run(
        "apparmor_parser -r /etc/apparmor.d/nv-guarded && systemctl start nfs-server systemd-oomd && exportfs -ra && "
        f"fallocate -l {SWAP_BYTES} /swap && chmod 600 /swap && mkswap /swap && swapon /swap"
    )
    with closing(Node(guest)) as started:
        started.start(**SWAP)
        started.write(*PODS)
        started.wait_all_ready(NAMES, READY_S)
        yield started
    guest.run("swapoff /swap; rm -f /swap; systemctl stop nfs-server systemd-oomd", check=False)


def swap_limit(node: Node, name: str) -> int:
    """memory.swap.max of the pod's container; -1 is no limit."""
    (container,) = node.pods()[name]["status"]["containerStatuses"]
    identity = container["containerID"].partition("://")[2]
    found = node.guest.run(f"cat $(find /sys/fs/cgroup/kubepods.slice -name '*{identity}.scope')/memory.swap.max")
    return -1 if found.stdout == "max\n" else int(found.stdout)


def facts(guest: Guest, key: str) -> int:
    """Bytes of a line of /proc/meminfo."""
    return int(guest.run(f"grep '^{key}:' /proc/meminfo").stdout.split()[1]) << 10


def test_an_nfs_export_is_mounted_and_written_to(node: Node) -> None:
    assert node.supervisor("logs nfs-guest") == "exported\n"
    assert node.guest.get("/srv/export/answer") == "written\n"
    mounts = node.guest.run("findmnt --list --noheadings --types nfs,nfs4 --output TARGET").stdout.split()
    assert [path.endswith("/volumes/kubernetes.io~nfs/export") for path in mounts] == [True]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("named", "refused\nnv-guarded (enforce)\n"),
        ("default", "wrote\ncri-containerd.apparmor.d (enforce)\n"),
        ("unconfined", "wrote\nunconfined\n"),
    ],
)
def test_a_container_has_its_apparmor_profile(node: Node, name: str, said: str) -> None:
    lines = [line for line in node.supervisor(f"logs {name}-guest").splitlines() if not line.startswith("touch:")]
    assert "\n".join(lines) + "\n" == said


def test_limited_swap_is_in_proportion_to_requests(node: Node) -> None:
    share = (256 << 20) / facts(node.guest, "MemTotal")
    wanted = int(share * facts(node.guest, "SwapTotal"))
    assert wanted - 4096 < swap_limit(node, "burstable") <= wanted
    assert swap_limit(node, "guaranteed") == 0
    assert swap_limit(node, "named") == 0


def test_an_agent_that_hangs_is_restarted_by_the_watchdog(node: Node) -> None:
    before = node.wait_all_ready(NAMES)
    node.guest.run("kill -STOP $(systemctl show -P MainPID nodevisor)")
    wait_until(node.guest, 'test "$(systemctl show -P NRestarts nodevisor)" -gt 0', 400)
    assert "Watchdog timeout" in node.guest.run("journalctl --no-pager -u nodevisor -o cat").stdout
    wait_until(node.guest, "systemctl is-active nodevisor", READY_S)
    node.show_pods()
    after = node.wait_all_ready(NAMES, READY_S)
    assert _containers(after) == _containers(before)


def _containers(pods: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {name: [one["containerID"] for one in pods[name]["status"]["containerStatuses"]] for name in NAMES}


def test_no_swap_and_an_eviction_beside_systemd_oomd(node: Node) -> None:
    """With another configuration. New containers have no swap, and memory runs short for real."""
    before = node.wait_all_ready(NAMES)
    available = facts(node.guest, "MemFree") + facts(node.guest, "Inactive(file)")  # as the kubelet counts it
    limit = available - FILL_BYTES // 2
    node.configure(
        failSwapOn=False, memorySwap={"swapBehavior": "NoSwap"}, evictionHard={"memory.available": str(limit)}
    )
    node.restart()
    volumes = [{"name": "fill", "emptyDir": {"medium": "Memory"}}]
    fill = f"dd if=/dev/zero of=/data/fill bs=1M count={FILL_BYTES >> 20}"
    node.write(pod("small", resources=memory("64Mi", "128Mi")))
    node.wait_all_ready([*NAMES, "small"], READY_S)
    assert swap_limit(node, "small") == 0
    node.write(pod("greedy", fill, volumes=volumes))
    deadline = time.monotonic() + READY_S
    while (status := node.pods().get("greedy", {}).get("status", {})).get("reason") != "Evicted":
        assert time.monotonic() < deadline, f"{status}\n{node.journal()}"
        time.sleep(1.0)
    assert status["phase"] == "Failed"
    assert "memory" in status["message"]
    assert _containers(node.pods()) == _containers(before)
    assert node.guest.run("systemctl is-active systemd-oomd").stdout == "active\n"
    assert "Killed" not in node.guest.run("journalctl --no-pager -u systemd-oomd -o cat").stdout
