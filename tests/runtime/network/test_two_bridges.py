"""Two runtimes on one machine: neither uses or removes parts of the other's network."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from actors.runtime.model.records import SandboxRecord, new_id
from actors.runtime.model.state import Sandbox
from actors.runtime.network import netlink, nftables, subnets
from actors.runtime.network.bridge import BridgeNetwork
from tests.runtime.network.node import Node, config, machine, seen_as, server

pytestmark = pytest.mark.needs("networks", "nftables")

SUBNET = subnets.SUBNETS[0]


@pytest.fixture
def node() -> Iterator[Node]:
    with machine() as made:
        yield made


class Runtime:
    """A bridge on the node and its pods; without records, so that only the bridge knows each pod."""

    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self.network = BridgeNetwork(name, SUBNET, dict)

    def start(self) -> tuple[Sandbox, str, str]:
        """A pod: (sandbox, namespace, address)."""
        told = config().SerializeToString()
        sandbox = Sandbox(SandboxRecord(id=new_id(), config=told, created_at_ns=1, boot=""))
        netns = self.node.namespace(sandbox.record.id)
        _, ips = self.node.inside(lambda: self.network.attach(sandbox, netns, self.node.directory))
        return sandbox, netns, ips[0]

    def stop(self, sandbox: Sandbox) -> None:
        self.node.inside(lambda: self.network.detach(sandbox, self.node.directory))


def prefix(address: str) -> str:
    return address.rpartition(".")[0]


def test_a_second_bridge_has_another_subnet(node: Node) -> None:
    one, other = Runtime(node, "nvone"), Runtime(node, "nvother")
    (_, first, here), (_, second, there) = one.start(), other.start()
    assert prefix(here) != prefix(there)
    with server(first, 80) as listener:
        assert seen_as(listener, first, (here, 80)) == here
    with server(second, 80) as listener:
        assert seen_as(listener, node.netns, (there, 80)) == f"{prefix(there)}.1"


def test_returning_bridge_avoids_a_subnet_taken_meanwhile(node: Node) -> None:
    one, other = Runtime(node, "nvone"), Runtime(node, "nvother")
    pod, _, before = one.start()
    one.stop(pod)
    assert not node.inside(lambda: netlink.exists("nvone"))
    _, _, theirs = other.start()
    assert prefix(theirs) == prefix(before), "it is the first choice of both"
    _, _, after = one.start()
    assert prefix(after) != prefix(theirs)


def test_removing_one_network_keeps_the_other(node: Node) -> None:
    one, other = Runtime(node, "nvone"), Runtime(node, "nvother")
    mine, _, _ = one.start()
    _, netns, address = other.start()
    one.stop(mine)
    node.inside(one.network.reconcile)
    assert not node.inside(lambda: netlink.exists("nvone"))
    assert not node.inside(lambda: nftables.exists("nvone"))
    assert node.inside(lambda: nftables.exists("nvother"))
    with server(netns, 80) as listener:
        assert seen_as(listener, node.netns, (address, 80)) == f"{prefix(address)}.1"


def test_concurrent_starts_get_different_subnets(node: Node) -> None:
    for turn in range(5):
        runtimes = [Runtime(node, f"nv{turn}{number}") for number in range(4)]
        together = threading.Barrier(len(runtimes))
        found: list[tuple[Runtime, Sandbox, str]] = []

        def begin(runtime: Runtime, together: threading.Barrier = together, found: list = found) -> None:  # type: ignore[type-arg]
            together.wait()
            pod, _, address = runtime.start()
            found.append((runtime, pod, address))

        threads = [threading.Thread(target=begin, args=(runtime,)) for runtime in runtimes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({prefix(address) for _, _, address in found}) == len(runtimes)
        for runtime, pod, _ in found:
            runtime.stop(pod)
