"""The agent as a service of systemd, with the systemd cgroup driver and containerd."""

import json
from collections.abc import Iterator

import pytest

from tests.guest.guest import Guest
from tests.guest.service.node import Node
from tests.guest.service.pods import pod


@pytest.fixture(scope="module")
def node(service: Node) -> Iterator[Node]:
    service.write(pod("web", "echo hello", hostNetwork=False))
    yield service
    service.remove(["web"])


def test_the_host_is_one_of_production(guest: Guest) -> None:
    assert guest.run("stat -f -c %T /sys/fs/cgroup; cat /proc/1/comm").stdout.split() == ["cgroup2fs", "systemd"]


def test_the_service_is_active_with_all_its_processes(node: Node) -> None:
    assert node.guest.run("systemctl is-active nodevisor").stdout.strip() == "active"
    states = {row["name"]: row["state"] for row in json.loads(node.supervisor("ps -o json"))}
    assert set(states.values()) == {"ready"}, states


def test_a_static_pod_gets_ready_with_an_address(node: Node) -> None:
    assert node.wait_ready("web")["status"]["podIP"].startswith("10.88.0.")
    assert "web-guest" in node.supervisor("pods")
    assert node.supervisor("logs web-guest").strip() == "hello"
    assert node.supervisor("exec web-guest -- echo there").strip() == "there"


def test_its_container_is_in_a_scope_of_the_pods_slice(node: Node) -> None:
    uid = node.wait_ready("web")["metadata"]["uid"].replace("-", "_")
    tree = node.guest.run("systemctl list-units --no-legend --plain 'kubepods*' 'cri-containerd*'").stdout
    assert f"kubepods-besteffort-pod{uid}.slice" in tree
    assert "cri-containerd-" in tree


def test_a_restart_of_the_service_leaves_the_container(node: Node) -> None:
    before = node.wait_ready("web")["status"]["containerStatuses"][0]
    node.restart()
    after = node.wait_ready("web")["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
