"""The addresses in a status: of the sandbox, of the machine and of the Node."""

from dataclasses import replace

import pytest

from actors.pod_workers.model.view import SandboxView
from tests.pod_workers.status.pods import SANDBOX, life, of, pod, view


def test_pod_ips_stay_after_sandbox_and_node_ip_family_is_first():
    first = of(pod(), view(life()), host_ips=("192.0.2.2",))
    assert [ip.ip for ip in first.pod_ips] == ["10.0.0.1", "fd00::1"]
    assert of(pod(), view(sandbox=SandboxView(id="t")), old=first).pod_ip == "10.0.0.1"
    assert of(pod(), view(life()), host_ips=("192.0.2.2",), node_ip="2001:db8::2").pod_ip == "fd00::1"
    assert of(pod(), view(life()), host_ips=("2001:db8::2", "192.0.2.2")).pod_ip == "10.0.0.1", "not the Node's"
    assert of(pod(hostNetwork=True), view(life()), host_ips=("192.0.2.2",)).pod_ip == "192.0.2.2"


def test_loopback_address_is_replaced_once_the_machine_has_another():
    host = pod(hostNetwork=True)
    early = of(host, view(life()), host_ips=("127.0.0.1",))
    assert (early.pod_ip, early.host_ip) == ("127.0.0.1", "127.0.0.1")
    assert of(host, view(life()), host_ips=(), old=early).pod_ip == "127.0.0.1"
    late = of(host, view(life()), host_ips=("192.0.2.2",), old=early)
    assert ([one.ip for one in late.pod_ips], late.host_ip) == (["192.0.2.2"], "192.0.2.2")


def test_published_host_ips_stay_until_the_nodes_are_told():
    known = of(pod(), view(life()), host_ips=("203.0.113.9", "fd00::9"))
    early = of(pod(), view(life()), host_ips=("192.0.2.2",), host_ips_told=False, old=known)
    assert [one.ip for one in early.host_ips] == ["203.0.113.9", "fd00::9"]
    assert of(pod(), view(life()), host_ips=("192.0.2.2",), host_ips_told=False).host_ip == "192.0.2.2"
    assert of(pod(), view(life()), host_ips=("192.0.2.2",), old=known).host_ip == "192.0.2.2"
    assert of(pod(), view(life()), old=known).host_ip == "203.0.113.9", "the Node has none now"


def test_host_network_pod_keeps_its_ip_and_gets_a_second_family():
    host = pod(hostNetwork=True)
    none = of(host, view(life()))
    assert (none.host_ip, none.pod_ip) == (None, None)
    first = of(host, view(life()), host_ips=("192.0.2.2",), old=none)
    moved = of(host, view(life()), host_ips=("192.0.2.3", "fd00::3"), old=first, keeps_ips=True)
    assert (moved.host_ip, [ip.ip for ip in moved.pod_ips]) == ("192.0.2.3", ["192.0.2.2", "fd00::3"])
    turned = of(host, view(life()), host_ips=("fd00::4", "192.0.2.4"), old=first, keeps_ips=True)
    assert [ip.ip for ip in turned.pod_ips] == ["192.0.2.2"], "no second one of its family"


ENDED = replace(SANDBOX, state="notready")


@pytest.mark.parametrize(
    ("sandbox", "host_ips", "told", "expected"),
    [
        (SANDBOX, ("192.0.2.3", "fd00::3"), True, ["192.0.2.3", "fd00::3"]),
        (SANDBOX, ("fd00::3",), True, ["fd00::3"]),
        (SANDBOX, (), True, ["192.0.2.2"]),  # the Node has none now
        (SANDBOX, ("127.0.0.1",), True, ["192.0.2.2"]),  # nor has the machine of a pod without an API server
        (SANDBOX, ("192.0.2.3",), False, ["192.0.2.2"]),  # it may not be the Node's
        (ENDED, ("192.0.2.3",), True, ["192.0.2.2"]),
        (None, ("192.0.2.3",), True, ["192.0.2.2"]),  # after a reboot, until it has a sandbox
    ],
)
def test_fresh_status_of_host_pod_has_the_nodes_ips(sandbox, host_ips, told, expected):
    host = pod(hostNetwork=True)
    old = of(host, view(life()), host_ips=("192.0.2.2",))
    new = of(host, view(life(), sandbox=sandbox), host_ips=host_ips, host_ips_told=told, old=old)
    assert ([ip.ip for ip in new.pod_ips], new.pod_ip) == (expected, expected[0])
