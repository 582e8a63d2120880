"""A running agent with a pod under attack: no process of it ends, hangs or grows, and its log stays bounded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from proto.agent.actor import Describe
from supervisor.sockets.client import Client
from tests.agent.agent import Agent, container, is_ready, pod
from tests.agent.embedded import embedded_agent
from tests.fuzz.guard import MOST_GROWTH_BYTES
from tests.fuzz.parsers.wire import TARGETS as WIRE
from tests.fuzz.sockets import attacks
from tests.harness import wait_for
from tests.ports import free_ports
from tests.server.streaming.websockets import V5, websocket

COUNT = int(os.environ.get("NODEVISOR_MUTATIONS", "300"))
pytestmark = pytest.mark.timeout(300 + COUNT)
MOST_LOGGED_BYTES = 1024 * 1024
ANSWER_S = 20.0
SOCKET_COUNT = 60
"""Messages for one socket at the usual COUNT; there are some forty sockets."""


class Attacked(NamedTuple):
    """An agent with one pod, `victim`, whose container reads its standard input."""

    agent: Agent
    api: int
    read_only: int
    page: int
    healthz: int


@pytest.fixture(scope="module")
def attacked() -> Iterator[Attacked]:
    ports = free_ports(4)
    flags = [
        f"--port={ports[0]}", f"--read-only-port={ports[1]}", f"--page-address={ports[2]}",
        f"--healthz-port={ports[3]}", "--anonymous-auth=true", "--authorization-mode=AlwaysAllow",
    ]  # fmt: skip
    with embedded_agent(*flags) as agent:
        agent.write("victim", pod("victim", container("main", "cat > /dev/null; exec sleep 100000", stdin=True)))
        wait_for(lambda: is_ready(agent.pod("victim")), 60, f"the pod is ready; log: {agent.log}")
        yield Attacked(agent, *ports)


@pytest.fixture(autouse=True)
def unharmed(attacked: Attacked) -> Iterator[None]:
    """After each attack: the same processes, each answers, none has grown, the pod runs on, the log is small."""
    agent = attacked.agent
    before = {name: (row["pid"], _resident(row["pid"])) for name, row in agent.rows().items()}
    running, logged = agent.running(), agent.log.stat().st_size
    yield
    with Client(agent.run_dir) as client:
        for name in before:
            if name not in ("supervisor", "forkserver"):
                client.ask(name, Describe(), ANSWER_S)
    rows = agent.rows()
    assert {name: row["pid"] for name, row in rows.items()} == {name: pid for name, (pid, _) in before.items()}, (
        f"an actor was restarted: {agent.log}"
    )
    grown = {name: _resident(pid) - size for name, (pid, size) in before.items()}
    assert max(grown.values()) <= MOST_GROWTH_BYTES, f"bytes that processes have grown by: {grown}"
    assert agent.running() == running
    assert agent.log.stat().st_size - logged <= MOST_LOGGED_BYTES, f"the log was flooded: {agent.log}"


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.needs("cgroups")
def test_every_socket_withstands_frames(attacked: Attacked) -> None:
    for number, path in enumerate(attacks.sockets(attacked.agent.run_dir)):
        if path.name != "cri.sock":
            attacks.send_frames(path, max(1, COUNT * SOCKET_COUNT // 300), number)


@pytest.mark.needs("cgroups")
def test_every_socket_withstands_other_protocols(attacked: Attacked) -> None:
    for number, path in enumerate(attacks.sockets(attacked.agent.run_dir)):
        attacks.send_raw(path, 10, number)


def _requests(paths: tuple[str, ...]) -> tuple[bytes, ...]:
    plain = [f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: x\r\n\r\n" for path in paths]
    upgrade = [
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
        "X-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n"
        for path in paths
        if "?" in path
    ]
    chunked = [
        "POST /run/default/victim-vm/main HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        "3\r\nabc\r\n0\r\n\r\n"
    ]
    return tuple(text.encode() for text in (*plain, *upgrade, *chunked))


POD = "default/victim-vm"
PATHS = (
    "/pods", "/metrics", "/stats/summary", "/healthz", "/configz", "/logs/", "/", "/debug/flags/v",
    f"/containerLogs/{POD}/main", f"/containerLogs/{POD}/main?tailLines=1&sinceSeconds=5&limitBytes=10",
    f"/exec/{POD}/main?command=cat&stdin=1&stdout=1", f"/attach/{POD}/main?stdin=1&stdout=1",
    f"/portForward/{POD}?port=80",
)  # fmt: skip


@pytest.mark.parametrize("where", ["api", "read_only", "page", "healthz"])
def test_port_withstands_requests(attacked: Attacked, where: str) -> None:
    target = attacks.http_target(_requests(PATHS))
    # A handshake for each costs more than the request.
    count = COUNT // 5 if where == "api" else COUNT
    attacks.send_requests(getattr(attacked, where), target, count, 1, tls=where == "api")


@pytest.mark.parametrize("path", [path for path in PATHS if path.startswith(("/exec", "/attach", "/portForward"))])
def test_live_stream_withstands_websocket_frames(attacked: Attacked, path: str) -> None:
    protocol = "SPDY/3.1+portforward.k8s.io" if path.startswith("/portForward") else V5
    handshake = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{websocket(protocol)}\r\n".encode()
    target = next(one for one in WIRE if one.name == ("spdy" if "SPDY" in protocol else "websocket"))
    attacks.send_websocket(attacked.api, handshake, target, max(1, COUNT // 15), 1, tls=True)
