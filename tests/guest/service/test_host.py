"""Things that a machine of production has besides: NFS, AppArmor, swap, and systemd's watchdog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.guest.guest import Guest
from tests.guest.service.node import Node, wait_until
from tests.guest.service.pods import READY_S, memory, pod

PROFILE = """\
profile nv-guarded flags=(attach_disconnected,mediate_deleted) {
  file,
  network,
  capability,
  signal,
  deny /guarded w,
}
"""


def confined(name: str, **profile: str) -> dict[str, Any]:
    script = "touch /guarded && echo wrote || echo refused; cat /proc/self/attr/current"
    return pod(name, script, securityContext={"appArmorProfile": profile})


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
UNIT_WATCHDOG_S = 30
"""As in etc/nodevisor.service."""
NAMES = [one["metadata"]["name"] for one in PODS]


@pytest.fixture(scope="module")
def node(guest: Guest, service: Node) -> Iterator[Node]:
    guest.put("/etc/apparmor.d/nv-guarded", PROFILE)
    guest.put("/etc/exports", "/srv/export 127.0.0.1(rw,no_root_squash,no_subtree_check,insecure)\n")
    guest.put("/srv/export/hello", "exported\n")
    guest.run("apparmor_parser -r /etc/apparmor.d/nv-guarded && systemctl start nfs-server && exportfs -ra")
    service.write(*PODS)
    service.wait_all_ready(NAMES, READY_S)
    yield service
    service.remove(NAMES)
    guest.run("systemctl stop nfs-server", check=False)


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


def test_a_static_pod_has_no_swap(node: Node) -> None:
    """It is critical, as in the kubelet, which gives critical pods none."""
    assert [node.swap_limit(name) for name in ("burstable", "guaranteed", "named")] == [0, 0, 0]


def test_an_agent_that_hangs_is_restarted_by_the_watchdog(node: Node) -> None:
    before = node.wait_all_ready(NAMES)
    node.watchdog(UNIT_WATCHDOG_S)
    node.restart()
    node.guest.run("kill -STOP $(systemctl show -P MainPID nodevisor)")
    node.watchdog()  # of the next start
    wait_until(node.guest, 'test "$(systemctl show -P NRestarts nodevisor)" -gt 0', 400)
    assert "Watchdog timeout" in node.guest.run("journalctl --no-pager -u nodevisor -o cat").stdout
    wait_until(node.guest, "systemctl is-active nodevisor", READY_S)
    node.show_pods()
    after = node.wait_all_ready(NAMES, READY_S)
    assert _containers(after) == _containers(before)


def _containers(pods: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {name: [one["containerID"] for one in pods[name]["status"]["containerStatuses"]] for name in NAMES}
