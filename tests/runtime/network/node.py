"""A machine made of network namespaces: a node with the runtime's own bridge, and an outside host."""

import contextlib
import functools
import itertools
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from actors.runtime.model import namespaces
from actors.runtime.model.namespace_threads import in_namespace
from actors.runtime.model.records import SandboxRecord, new_id
from actors.runtime.model.state import Sandbox
from actors.runtime.network import netlink, nftables
from actors.runtime.network.bridge import BridgeNetwork
from actors.runtime.network.ports import Pod, host_ports
from proto.cri import api_pb2 as pb

T = TypeVar("T")
SUBNET, GATEWAY = "10.249.249.0/28", "10.249.249.1"
NODE, OUTSIDE = "203.0.113.1", "203.0.113.2"
PATIENCE_S = 10.0
_numbers = itertools.count(1)


def config(*mappings: tuple[int, int, str, "pb.Protocol.ValueType"]) -> pb.PodSandboxConfig:
    """From host port, container port, host address and protocol."""
    return pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(name="web", namespace="default", uid="u"),
        port_mappings=[
            pb.PortMapping(host_port=host, container_port=container, host_ip=ip, protocol=protocol)
            for host, container, ip, protocol in mappings
        ],
    )


class Node:
    """The machine; `inside` runs a function in the node's namespace."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.netns, self.outside = self.namespace("node"), self.namespace("outside")
        self.pods: dict[str, tuple[Sandbox, str]] = {}
        self.network = self.runtime()
        self.sysctl("ipv4/ip_forward", "0")
        self.inside(lambda: netlink.add_veth("uplink", "uplink", self.outside))
        for netns, address in ((self.netns, NODE), (self.outside, OUTSIDE)):
            in_namespace(netns, functools.partial(netlink.add_address, "uplink", f"{address}/24"))
            in_namespace(netns, functools.partial(netlink.set_up, "uplink"))

    def namespace(self, name: str) -> str:
        return namespaces.make(self.directory / name, ["network"], name, {})["network"]

    def runtime(self) -> BridgeNetwork:
        """Make a new network object, as a restarted runtime does."""
        return BridgeNetwork("nvtest", SUBNET, self._on_record)

    def _on_record(self) -> dict[str, Pod]:
        sandboxes = [sandbox for sandbox, _ in self.pods.values()]
        return {one.record.id: Pod(one.record.ips[0], host_ports(one.config)) for one in sandboxes if one.record.ips}

    def inside(self, function: Callable[[], T]) -> T:
        return in_namespace(self.netns, function)

    def start(self, *mappings: tuple[int, int, str, "pb.Protocol.ValueType"], on_record: bool = True) -> str:
        """Start a pod; return its network namespace."""
        told = config(*mappings).SerializeToString()
        sandbox = Sandbox(SandboxRecord(id=new_id(), config=told, created_at_ns=1, boot=""))
        netns = self.namespace(sandbox.record.id)
        network, ips = self.inside(lambda: self.network.attach(sandbox, netns, self.directory))
        if on_record:
            sandbox.record = msgspec.structs.replace(sandbox.record, network=network, ips=ips)
        self.pods[netns] = sandbox, ips[0]
        return netns

    def stop(self, netns: str) -> None:
        sandbox, _ = self.pods[netns]
        self.inside(lambda: self.network.detach(sandbox, self.directory))
        sandbox.record = msgspec.structs.replace(sandbox.record, ips=(), stopped=True)

    def sysctl(self, name: str, value: str) -> None:
        self.inside(lambda: Path("/proc/sys/net", name).write_text(value))

    def has_table(self) -> bool:
        return self.inside(lambda: nftables.exists("nvtest"))

    def has_bridge(self) -> bool:
        return self.inside(lambda: netlink.exists("nvtest"))


@contextlib.contextmanager
def machine() -> Iterator[Node]:
    directory = Path(tempfile.mkdtemp(prefix="nvnet-"))
    try:
        yield Node(directory)
    finally:
        for pins in directory.iterdir():
            namespaces.release(pins)
        directory.rmdir()


def server(netns: str, port: int, kind: socket.SocketKind = socket.SOCK_STREAM, address: str = "") -> socket.socket:
    """A socket of that namespace, usable here: a socket stays in its namespace."""
    made = in_namespace(netns, lambda: socket.socket(socket.AF_INET, kind))
    made.settimeout(PATIENCE_S)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((address, port))
    if kind == socket.SOCK_STREAM:
        made.listen()
    return made


def client(netns: str, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    made = in_namespace(netns, lambda: socket.socket(socket.AF_INET, kind))
    made.settimeout(PATIENCE_S)
    return made


def seen_as(listener: socket.socket, netns: str, target: tuple[str, int]) -> str:
    """Exchange bytes over a connection from that namespace; return the server's view of the client. Raises OSError."""
    with client(netns) as sock:
        sock.connect(target)
        served, peer = listener.accept()
        with served:
            sock.sendall(b"ping")
            assert served.recv(4) == b"ping"
            served.sendall(b"pong")
            assert sock.recv(4) == b"pong"
    return str(peer[0])


def answered(listener: socket.socket, sock: socket.socket, target: tuple[str, int]) -> None:
    """Exchange datagrams. They may be lost while the pod's link comes up, or arrive late and twice.

    Each call has its own content: leftovers of earlier calls come from closed clients. Any other datagram is an error.
    """
    listener.settimeout(PATIENCE_S / 10)
    deadline = time.monotonic() + PATIENCE_S
    ping = b"ping %d" % next(_numbers)
    content, peer = b"", None
    while content != ping and time.monotonic() < deadline:
        sock.sendto(ping, target)
        with contextlib.suppress(TimeoutError):
            content, peer = listener.recvfrom(100)
            assert content.startswith(b"ping ")
    assert content == ping
    listener.sendto(b"pong", peer)
    assert sock.recvfrom(100) == (b"pong", target)
