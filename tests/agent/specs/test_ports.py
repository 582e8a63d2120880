"""Ports of pods on the node, through CNI's portmap: TCP, UDP, one address only, and gone with their pod."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.agent.agent import Agent, container, pod
from tests.agent.faults import Eye, condition
from tests.containerd import ContainerdInstance
from tests.containerd.requirements import missing_for_host_ports
from tests.harness import wait_for
from tests.ports import free_port, free_ports

pytestmark = pytest.mark.usefixtures("containerd")

WEB = "mkdir -p /w; echo $NAME > /w/index.html; exec httpd -f -p 8080 -h /w"
ECHO = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", 5353))
print("up", flush=True)
while True:
    words, sender = server.recvfrom(100)
    server.sendto(b"echo " + words, sender)
"""


@pytest.fixture(scope="module")
def eye() -> Iterator[Eye]:
    """On a containerd of its own: portmap writes to the node's nat table for every pod that goes."""
    if problem := missing_for_host_ports():
        pytest.fail(problem, pytrace=False)
    directory = Path(tempfile.mkdtemp(prefix="nvctd-"))
    with ContainerdInstance(directory, host_ports=True) as instance, closing(Agent(instance)) as one:
        one.start()
        looking = Eye(one)
        with closing(looking.client):
            yield looking


def web(name: str, *ports: dict) -> dict:
    return pod(name, container("c", WEB.replace("$NAME", name), ports=list(ports)))


def run(eye: Eye, *names: str) -> bool:
    pods = eye.pods()
    return all(name in pods and condition(pods[name], "Ready") == "True" for name in names)


def node_address(eye: Eye) -> str:
    """The bridge's: an address of the node that leads to no loopback."""
    return str(eye.pods()["open"].status.pod_ip).rpartition(".")[0] + ".1"


def says(address: str, port: int) -> str:
    """Return a web server's answer; empty when there is none."""
    try:
        with socket.create_connection((address, port), 2) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
    except OSError:
        return ""
    return answer.partition(b"\r\n\r\n")[2].decode().strip()


def asks(address: str, port: int) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.settimeout(1)
        one.sendto(b"hello", (address, port))
        try:
            return one.recv(100)
        except OSError:
            return b""


@contextmanager
def echo_server(agent: Agent, name: str) -> Iterator[None]:
    """A UDP server in the network of a pod."""
    cri = agent.containerd.cri
    identity = next(one for one, which in agent.running().items() if which == f"{name}-{agent.node}/c")
    pid = cri.container_status(identity, verbose=True).result().info["info"].split('"pid":')[1].split(",")[0]
    command = ["nsenter", f"--net=/proc/{pid}/ns/net", sys.executable, "-c", ECHO]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"up\n"
            yield
        finally:
            server.kill()


def test_host_ports(eye: Eye) -> None:
    agent = eye.agent
    tcp, bound, udp = free_ports(3)  # no process listens on them: they are forwarded to the pods
    agent.write("open", web("open", {"containerPort": 8080, "hostPort": tcp}))
    agent.write("closed", web("closed", {"containerPort": 8080}))
    agent.write("udp", web("udp", {"containerPort": 5353, "hostPort": udp, "protocol": "UDP"}, {"containerPort": 8080}))
    wait_for(lambda: run(eye, "open", "closed", "udp"), 60, "all run")
    node = node_address(eye)
    agent.write("bound", web("bound", {"containerPort": 8080, "hostPort": bound, "hostIP": node}))
    wait_for(lambda: run(eye, "bound"), 30, "runs")

    wait_for(lambda: says(node, tcp) == "open", 10, "reached by the node's port")
    wait_for(lambda: says(node, bound) == "bound", 10, "reached by the address it names")
    others = [one for one in addresses() if one != node and not one.startswith("127.")]
    assert all(says(other, bound) == "" for other in others), others
    assert says(node, 8080) == ""
    with echo_server(agent, "udp"):
        wait_for(lambda: asks(node, udp) == b"echo hello", 10, "reached by UDP")
    assert says(node, udp) == ""

    (agent.manifests / "open.yaml").unlink()
    wait_for(lambda: (shown := eye.pods()) and "open" not in shown, 30, "it has ended")
    assert says(node, tcp) == ""
    agent.write("next", web("next", {"containerPort": 8080, "hostPort": tcp}))
    wait_for(lambda: says(node, tcp) == "next", 30, "the port is the next one's")


def addresses() -> list[str]:
    """The node's own, IPv4."""
    shown = subprocess.run(["ip", "-4", "-o", "addr"], capture_output=True, text=True, check=True).stdout
    return [line.split()[3].partition("/")[0] for line in shown.splitlines()]


def test_a_host_network_pods_port_is_the_nodes(eye: Eye) -> None:
    port = free_port()
    script = f"mkdir -p /w; echo node > /w/index.html; exec httpd -f -p {port} -h /w"
    eye.agent.write("node", pod("node", container("c", script, ports=[{"containerPort": port}]), hostNetwork=True))
    wait_for(lambda: says("127.0.0.1", port) == "node", 30, "reached on loopback")
    assert eye.pods()["node"].spec.containers[0].ports[0].host_port == port
