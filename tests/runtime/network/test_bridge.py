"""The runtime's own bridge on a machine of two network namespaces, the node and an outside host."""

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from actors._cri.client import Cri
from actors._cri.errors import CriError
from actors.runtime.model.namespace_threads import in_namespace
from actors.runtime.model.records import SandboxRecord, new_id
from actors.runtime.model.state import Sandbox
from actors.runtime.network import bridge as bridge_module
from actors.runtime.network import netlink, nftables
from actors.runtime.network.api import NetworkError
from actors.runtime.network.ports import translation
from actors.runtime.sandboxes.sandboxes import Sandboxes
from proto.agent.actor import Describe
from proto.cri import api_pb2 as pb
from tests.containerd.images import PYTHON, python
from tests.containerd.pods import container_config, sandbox_config
from tests.harness import ActorProcess
from tests.runtime.inside import WEB
from tests.runtime.instance import EmbeddedInstance, wait_for
from tests.runtime.network.node import (
    GATEWAY,
    NODE,
    OUTSIDE,
    PATIENCE_S,
    SUBNET,
    Node,
    answered,
    client,
    machine,
    seen_as,
    server,
)

pytestmark = pytest.mark.needs("networks", "nftables")


@pytest.fixture
def node() -> Iterator[Node]:
    with machine() as made:
        yield made


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Node, EmbeddedInstance]]:
    """A node with a runtime; removes pods that a test leaves."""
    with (
        machine() as made,
        EmbeddedInstance(Path(tempfile.mkdtemp(prefix="nvbr-")), [python()], cni=False, netns=made.netns) as one,
    ):
        yield made, one


def filter_bridged(node: Node, filtered: str) -> None:
    """Bridged frames bypass netfilter ("0") or pass it, as kube-proxy wants."""
    if not Path("/proc/sys/net/bridge").exists():
        subprocess.run(["modprobe", "br_netfilter"], check=True, timeout=60)
    node.sysctl("bridge/bridge-nf-call-iptables", filtered)


@pytest.mark.parametrize("filtered", ["0", "1"])
def test_host_port_reaches_its_pod_from_everywhere(node: Node, filtered: str) -> None:
    filter_bridged(node, filtered)
    web, other = node.start((8080, 80, "", pb.TCP), (8080, 80, "", pb.UDP)), node.start()
    with server(web, 80) as listener:
        assert seen_as(listener, node.netns, ("127.0.0.1", 8080)) == GATEWAY
        assert seen_as(listener, node.netns, (NODE, 8080)) == NODE
        assert seen_as(listener, node.netns, (GATEWAY, 8080)) == GATEWAY
        assert seen_as(listener, node.outside, (NODE, 8080)) == OUTSIDE
        assert seen_as(listener, other, (NODE, 8080)) == GATEWAY
        assert seen_as(listener, web, (NODE, 8080)) == GATEWAY
        assert seen_as(listener, web, (GATEWAY, 8080)) == GATEWAY
        assert seen_as(listener, node.netns, (node.pods[web][1], 80)) == GATEWAY
    with server(web, 80, socket.SOCK_DGRAM) as listener:
        for netns, address in (
            (node.netns, "127.0.0.1"),
            (node.netns, NODE),
            (node.outside, NODE),
            (other, NODE),
            (web, NODE),
        ):
            with client(netns, socket.SOCK_DGRAM) as sock:
                answered(listener, sock, (address, 8080))


def test_pods_traffic_to_others_has_the_nodes_address(node: Node) -> None:
    pod = node.start()
    with server(node.outside, 80) as listener:
        assert seen_as(listener, pod, (OUTSIDE, 80)) == NODE
    with server(node.netns, 81) as listener:
        assert seen_as(listener, pod, (NODE, 81)) == node.pods[pod][1]


def test_host_port_of_one_address_is_not_on_others(node: Node) -> None:
    local, public = node.start((8080, 80, "127.0.0.1", pb.TCP)), node.start((8080, 80, NODE, pb.TCP))
    with server(local, 80) as one, server(public, 80) as two:
        assert seen_as(one, node.netns, ("127.0.0.1", 8080)) == GATEWAY
        assert seen_as(two, node.outside, (NODE, 8080)) == OUTSIDE
    node.stop(public)
    with client(node.outside) as sock, pytest.raises(ConnectionRefusedError):
        sock.connect((NODE, 8080))


def test_sctp_host_port(node: Node) -> None:
    """Kernels without SCTP have no SCTP sockets, but forward it all the same."""
    node.sysctl("netfilter/nf_conntrack_checksum", "0")
    pod = node.start((7000, 7, "", pb.SCTP))
    init = struct.pack("!BBHIIHHI", 1, 0, 20, 1234, 65536, 1, 1, 1)
    with (
        in_namespace(pod, lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_SCTP)) as listener,
        in_namespace(node.outside, lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_SCTP)) as sock,
    ):
        listener.settimeout(PATIENCE_S)
        sock.sendto(struct.pack("!HHII", 5000, 7000, 0, 0) + init, (NODE, 0))
        packet = listener.recv(1000)
        assert struct.unpack_from("!HH", packet, 20) == (5000, 7)


@pytest.mark.parametrize("filtered", ["0", "1"])
def test_pods_cannot_reach_the_nodes_loopback(node: Node, filtered: str) -> None:
    """route_localnet, which host ports on 127.0.0.1 need, would let a pod's frames to 127.0.0.1 in."""
    filter_bridged(node, filtered)
    mapped, pod = node.start((8080, 80, "", pb.TCP)), node.start()
    mac = node.inside(lambda: _mac("nvtest"))
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + 8 + 4, 0, 0, 64, socket.IPPROTO_UDP, 0)
    header += socket.inet_aton(node.pods[pod][1]) + socket.inet_aton("127.0.0.1")
    header = header[:10] + struct.pack("!H", _checksum(header)) + header[12:]
    frame = header + struct.pack("!HHHH", 999, 6000, 12, 0) + b"evil"
    with (
        server(node.netns, 6000, socket.SOCK_DGRAM, "127.0.0.1") as listener,
        in_namespace(pod, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)) as raw,
        client(node.netns, socket.SOCK_DGRAM) as sock,
    ):
        for _ in range(2):
            raw.sendto(frame, ("eth0", 0x0800, 0, 0, mac))
            sock.sendto(b"good", ("127.0.0.1", 6000))
            assert listener.recv(100) == b"good"
            node.stop(mapped)  # route_localnet stays until the bridge is removed


def _mac(link: str) -> bytes:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind((link, 0))
        return bytes(sock.getsockname()[4])


def _checksum(header: bytes) -> int:
    total = sum(struct.unpack("!10H", header))
    return ~(total + (total >> 16)) & 0xFFFF


@pytest.mark.parametrize("others", [0, 1])
def test_udp_client_reaches_each_new_pod_of_the_port(node: Node, others: int) -> None:
    for _ in range(others):
        node.start()
    with client(node.outside, socket.SOCK_DGRAM) as sock:
        with server(node.netns, 5353, socket.SOCK_DGRAM) as before:
            sock.sendto(b"too early", (NODE, 5353))
            assert before.recv(100) == b"too early"
        for _ in range(2):
            pod = node.start((5353, 53, "", pb.UDP))
            with server(pod, 53, socket.SOCK_DGRAM) as listener:
                answered(listener, sock, (NODE, 5353))
            node.stop(pod)
        bystander = node.start()  # it gets that pod's address
        with server(bystander, 53, socket.SOCK_DGRAM) as listener:
            sock.sendto(b"stray", (NODE, 5353))
            with client(node.netns, socket.SOCK_DGRAM) as known:
                answered(listener, known, (node.pods[bystander][1], 53))


def test_host_port_in_use_is_refused_until_it_is_free(node: Node) -> None:
    first = node.start((8080, 80, "", pb.TCP))
    with pytest.raises(NetworkError, match=r"8080/tcp: pod sandbox \w+ has it"):
        node.start((8080, 81, "", pb.TCP))
    node.stop(first)
    second = node.start((8080, 81, "", pb.TCP))
    with server(second, 81) as listener:
        assert seen_as(listener, node.netns, ("127.0.0.1", 8080)) == GATEWAY


def test_pod_with_a_reused_address_is_reached_at_once(node: Node) -> None:
    bystander = node.start()
    mac = node.inside(lambda: _mac("nvtest"))
    for _ in range(2):
        pod = node.start()
        with server(pod, 80) as listener:
            assert seen_as(listener, node.netns, ("10.249.249.3", 80)) == GATEWAY
            assert seen_as(listener, bystander, ("10.249.249.3", 80)) == "10.249.249.2"
        node.stop(pod)
        assert node.inside(lambda: _mac("nvtest")) == mac  # else pods would have a stale MAC address of the node


def test_bridge_and_table_are_removed_with_the_last_pod(node: Node) -> None:
    pods = [node.start(), node.start((8080, 80, "", pb.TCP))]
    assert [node.pods[netns][1] for netns in pods] == ["10.249.249.2", "10.249.249.3"]
    for netns in pods:
        assert in_namespace(netns, lambda: Path("/proc/thread-self/net/route").read_text()).count("eth0") == 2
        assert node.has_table()
        assert node.has_bridge()
        node.stop(netns)
        node.stop(netns)
    assert not node.has_table()
    assert not node.has_bridge()


def test_leftovers_of_a_kill_are_repaired(node: Node) -> None:
    kept = node.start((8080, 80, "", pb.TCP))
    node.start((9090, 80, "", pb.TCP), on_record=False)  # killed before its record
    node.network = node.runtime()
    node.inside(node.network.reconcile)
    with client(node.netns) as sock, pytest.raises(ConnectionRefusedError):
        sock.connect(("127.0.0.1", 9090))
    with server(kept, 80) as listener:
        assert seen_as(listener, node.netns, ("127.0.0.1", 8080)) == GATEWAY
    assert len(node.inside(lambda: netlink.ports_of("nvtest"))) == 1
    sandbox, _ = node.pods[kept]
    sandbox.record = msgspec.structs.replace(
        sandbox.record, ips=()
    )  # the record has its end, and nothing else was done
    node.network = node.runtime()
    node.inside(node.network.reconcile)
    assert not node.has_table()
    assert not node.has_bridge()


def test_flushed_rules_are_restored(node: Node) -> None:
    web = node.start((8080, 80, "", pb.TCP))
    for put_right in (node.start, lambda: node.inside(node.network.reconcile)):
        node.inside(lambda: nftables.delete("nvtest"))
        put_right()
        with server(web, 80) as listener:
            assert seen_as(listener, node.netns, ("127.0.0.1", 8080)) == GATEWAY


def test_actor_reconciles_its_network_periodically() -> None:
    with ActorProcess("runtime", None, (), container_runtime_endpoint="embedded") as actor:
        wait_for(lambda: any(one.type == "every:repair" and one.handled for one in actor.ask(Describe()).messages))


def test_pods_without_kernel_support_reach_the_node_only(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = nftables.Rule("postrouting", (nftables.Statement("unknown thing", nftables._expression("unknown", b"")),))
    made = translation

    def lacking_kernel(*given: object) -> nftables.Table:
        table = made(*given)  # type: ignore[arg-type]
        return table._replace(rules=(*table.rules, unknown))

    monkeypatch.setattr(bridge_module, "translation", lacking_kernel)
    pods = [node.start(), node.start()]
    assert caplog.text.count(r"pods of bridge nvtest reach the node and each other only") == 1
    with server(pods[0], 80) as listener:
        assert seen_as(listener, node.netns, (node.pods[pods[0]][1], 80)) == GATEWAY
    with pytest.raises(NetworkError, match=r"host ports on bridge nvtest: this kernel lacks .*\(rule unknown thing\)"):
        node.start((8080, 80, "", pb.TCP))
    assert len(node.inside(lambda: netlink.ports_of("nvtest"))) == 2
    for netns in pods:
        node.stop(netns)
    assert not node.has_bridge()


def test_host_ports_survive_a_restart_of_the_runtime(served: tuple[Node, EmbeddedInstance]) -> None:
    node, instance = served
    _serve(instance.cri, _mapped("web"))
    bridge = _bridge(node)
    wait_for(lambda: _fetch(node) == b"served\n")
    with pytest.raises(CriError, match=r"\*:8080/tcp: pod sandbox \w+ has it"):
        instance.cri.run_pod_sandbox(_mapped("another")).result()
    instance.kill()
    assert _fetch(node) == b"served\n"
    node.inside(lambda: nftables.delete(bridge))
    instance.start()
    assert _fetch(node) == b"served\n"
    instance.remove_pods()
    assert not node.inside(lambda: nftables.exists(bridge))
    assert bridge not in node.inside(_links)
    instance.kill()
    node.inside(lambda: netlink.add_bridge(bridge, b"\2\0\0\0\0\1"))  # as after a kill before the first pod's record
    node.inside(lambda: nftables.replace(translation(bridge, SUBNET, [])))
    instance.start()
    assert not node.inside(lambda: nftables.exists(bridge))
    assert bridge not in node.inside(_links)


def test_bandwidth_annotation_on_the_bridge_is_logged(served: tuple[Node, EmbeddedInstance]) -> None:
    _, instance = served
    config = sandbox_config("shaped")
    config.annotations["kubernetes.io/ingress-bandwidth"] = "1M"
    instance.cri.run_pod_sandbox(config).result()
    wait_for(lambda: "default/shaped: its bandwidth annotations have no effect" in instance.log.read_text())
    instance.remove_pods()


def test_pod_with_dead_pause_process_keeps_address_till_stop(
    served: tuple[Node, EmbeddedInstance],
) -> None:
    node, instance = served
    cri, sandbox = instance.cri, _mapped("shared")
    sandbox.linux.security_context.namespace_options.pid = pb.POD
    pod = cri.run_pod_sandbox(sandbox).result()
    told = json.loads(cri.pod_sandbox_status(pod, verbose=True).result().info["info"])
    os.kill(told["pid"], signal.SIGKILL)
    wait_for(lambda: cri.pod_sandbox_status(pod).result().status.state == pb.SANDBOX_NOTREADY)
    other = cri.run_pod_sandbox(sandbox_config("other")).result()
    assert cri.pod_sandbox_status(other).result().status.network.ip != told["network"]["address"]
    cri.stop_pod_sandbox(pod).result()
    assert len(node.inside(lambda: netlink.ports_of(_bridge(node)))) == 1
    instance.remove_pods()
    assert not any(name.startswith("nv") for name in node.inside(_links))


def test_exit_report_during_stop_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reporting thread continues: the thread that stops the sandbox may wait for it."""
    saved: list[SandboxRecord] = []
    sandboxes = Sandboxes.__new__(Sandboxes)
    engine = SimpleNamespace(boot="now", sandboxes=SimpleNamespace(save=saved.append))
    monkeypatch.setattr(sandboxes, "_engine", engine, raising=False)
    monkeypatch.setattr(sandboxes, "_pause", SimpleNamespace(runs=lambda _: False), raising=False)
    record = SandboxRecord(id=new_id(), config=b"", created_at_ns=1, boot="now", pause_pid=7, ips=("10.0.0.2",))
    sandbox = Sandbox(record)
    with sandbox.lock:
        sandboxes.on_exited(sandbox)
        stopped = sandbox.record = msgspec.structs.replace(record, stopped=True, ips=(), pause_pid=0)
    for thread in [one for one in threading.enumerate() if one.name == "sandbox"]:
        thread.join(PATIENCE_S)
    assert (sandbox.record, saved) == (stopped, [])
    sandbox.record = record
    sandboxes.on_exited(sandbox)
    wait_for(lambda: saved)
    assert saved == [msgspec.structs.replace(record, stopped=True)]


def _mapped(name: str) -> pb.PodSandboxConfig:
    sandbox = sandbox_config(name)
    sandbox.port_mappings.add(host_port=8080, container_port=80)
    return sandbox


def _serve(cri: Cri, sandbox: pb.PodSandboxConfig) -> None:
    pod = cri.run_pod_sandbox(sandbox).result()
    container = cri.create_container(pod, container_config(WEB, image=PYTHON), sandbox).result()
    cri.start_container(container).result()


def _fetch(node: Node) -> bytes:
    with client(node.netns) as sock, contextlib.suppress(ConnectionError):
        sock.connect(("127.0.0.1", 8080))
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with sock.makefile("rb") as answer:
            return answer.read().rpartition(b"\r\n")[2]
    return b""


def _links() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def _bridge(node: Node) -> str:
    """`nv` and eight digits; a pod's link name is longer."""
    return next(name for name in node.inside(_links) if len(name) == 10 and name.startswith("nv"))
