"""`python -m tests.bench.api [ROUNDS [exec]]`: compares the agent's API with minimal programs for the same work.

Logs: a container's whole log over HTTPS. It is compared with `cat` in the container through the same port, and with a
process that only writes as many bytes to such a TLS connection. With `exec`, no logs.

Exec: a command that does nothing, from connection to exit status, at the agent's port (TLS, client certificate). It is
compared with containerd's streaming server, including the Exec call, and with a process that puts TLS before that. Then
a byte goes to `cat` and back within an exec. The ways alternate, since a machine's speed changes.

An exec waits for an RCU grace period when its process is moved into the container's cgroups: 12 ms with 250 ticks a
second. A move just before removes the wait. So in a sequence some execs wait and some do not: 3 ms of sleep before each
make containerd's own 5 ms slower. The agent starts the wait early (actors/_cgroup/migration_prewarm.py), which helps
others, too, for some 40 ms. So execs are timed in three ways. Singly, while a process is moved all the time, none
waits. Alternating, one way gains from the other. Then there is a sequence of each way.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import SplitResult

from actors._cri.client import Cri
from tests.agent.agent import Agent, container, is_ready, pod
from tests.bench.harness.https import (
    APART_S,
    BLOCK,
    bare_writer,
    client,
    configure,
    connected,
    download,
    exec_url,
    in_a_child,
    in_turns,
    log,
    reached,
    run,
    upgrade,
)
from tests.containerd import ContainerdInstance, missing_requirements
from tests.controlplane.certificates import Authority
from tests.harness import wait_for

SIZE = 120_000_000
"""Of each log's lines, as the container wrote them."""
LENGTHS = (100, 250, 1000)
"""Of a line, with its end."""
ECHOES = 300


def main() -> int:
    """Run it; 1 when the machine lacks what it needs."""
    if problem := missing_requirements():
        print(problem, file=sys.stderr)
        return 1
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with (
        tempfile.TemporaryDirectory(prefix="nvapi-") as directory,
        ContainerdInstance(Path(directory, "containerd")) as containerd,
        closing(Agent(containerd, "api")) as agent,
    ):
        authority = Authority(Path(directory, "pki"))
        port = _start(agent, authority)
        secure = client(authority)
        lengths = () if sys.argv[2:] == ["exec"] else LENGTHS
        with bare_writer(authority, SIZE) as cat_port:
            logs = {
                length: [
                    (
                        _logs(port, secure, length),
                        _in_container(port, secure, length),
                        _bare(cat_port, secure),
                    )
                    for _ in range(rounds)
                ]
                for length in lengths
            }
        identity = next(one for one, name in agent.running().items() if name == "lines100-api/c")
        url = exec_url(identity, containerd.cri, "true")
        with _bare_tls(authority, url.netloc) as bare_port:
            ways = _ways(identity, containerd.cri, port, bare_port, secure)
            execs = {"each by itself": [in_turns(ways, APART_S) for _ in range(rounds)]}
            with _moving():
                execs["without a wait for the kernel"] = [in_turns(ways, 0.0) for _ in range(rounds)]
            execs["one after another"] = [in_turns(ways, 0.0) for _ in range(rounds)]
            execs["one after another of each way"] = [_in_rows(ways, first) for first in range(rounds)]
        echoes = _echoes(identity, containerd.cri, port, secure, rounds)
    for length, turns in logs.items():
        rates = [[SIZE / 1e6 / seconds for seconds in turn] for turn in turns]
        _show(f"logs with lines of {length} bytes, MB/s", [(ours, floor) for ours, _, floor in rates])
        print(f"    {statistics.median(ours / floor for ours, _, floor in turns):.2f} x the time of bare TLS")
        print(f"    {statistics.median(ours / cat for ours, cat, _ in turns):.2f} x the time of cat in the container")
        _show("    cat in the container, through the same port, MB/s", [(cat, floor) for _, cat, floor in rates])
    for how, taken in execs.items():
        _show(f"exec, {how}, ms", [(ours * 1000, floor * 1000) for ours, floor, _ in taken])
        print(f"    {statistics.median(ours / floor for ours, floor, _ in taken):.2f} x the time of containerd's own")
        bare_tls = statistics.median(bare / floor for _, floor, bare in taken)
        print(f"    {bare_tls:.2f} x that is what containerd's own takes through bare TLS")
    _show("a byte to cat and back, us", [(ours * 1e6, floor * 1e6) for ours, floor in echoes])
    print(f"    {statistics.median(ours / floor for ours, floor in echoes):.2f} x the time of containerd's own")
    return 0


def _show(what: str, pairs: list[tuple[float, float]]) -> None:
    print(f"{what}: " + ", ".join(f"{ours:.0f} ({floor:.0f})" for ours, floor in pairs))


def _start(agent: Agent, authority: Authority) -> int:
    configure(agent, authority)
    agent.start()
    for length in LENGTHS:
        lines = f"yes {'x' * (length - 1)} | head -n {SIZE // length}"
        script = f"{lines}; {lines} > /tmp/log; touch /tmp/done; exec sleep 100000"
        ready = {"exec": {"command": ["test", "-e", "/tmp/done"]}, "periodSeconds": 1}
        agent.write(f"lines{length}", pod(f"lines{length}", container("c", script, readinessProbe=ready)))
    for length in LENGTHS:
        _until_ready(agent, f"lines{length}")
    return agent.port


def _until_ready(agent: Agent, name: str) -> None:
    wait_for(lambda: is_ready(agent.pod(name)), 180, f"logs written; log: {agent.log}")


@contextlib.contextmanager
def _bare_tls(authority: Authority, target: str) -> Iterator[int]:
    """A TLS port whose process forwards connections one by one to the plain port `target`.

    Clients need a certificate, and no other check is made.
    """
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        in_a_child(lambda: _serve_bare_tls(listener, authority, target)),
    ):
        yield listener.getsockname()[1]


def _serve_bare_tls(listener: socket.socket, authority: Authority, target: str) -> None:
    secure = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.path))
    secure.load_cert_chain(*authority.issue("bare", "bare"))
    secure.verify_mode = ssl.CERT_REQUIRED
    secure.num_tickets = 0
    host, _, port = target.rpartition(":")
    while True:
        accepted, _ = listener.accept()
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with secure.wrap_socket(accepted, server_side=True) as session, connected(int(port), None, host) as plain:
            plain.sendall(session.recv(BLOCK))
            with contextlib.suppress(OSError):  # the client may close first
                while block := plain.recv(BLOCK):
                    session.sendall(block)


@contextlib.contextmanager
def _moving() -> Iterator[None]:
    """Move a process into its own cgroup all the time, so that other moves do not wait (kernel/rcu/sync.c)."""
    root = next(
        path for path in map(Path, ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")) if (path / "cgroup.procs").exists()
    )
    own = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    procs = root / own.removeprefix("0::").lstrip("/") / "cgroup.procs"
    script = "import sys, time\nwhile True:\n    open(sys.argv[1], 'w').write('0')\n    time.sleep(0.004)"
    with subprocess.Popen([sys.executable, "-c", script, procs]) as mover:
        try:
            yield
        finally:
            mover.kill()


def _logs(port: int, secure: ssl.SSLContext, length: int) -> float:
    began = time.monotonic()
    log(port, secure, f"default/lines{length}-api/c", SIZE)
    return time.monotonic() - began


def _bare(port: int, secure: ssl.SSLContext) -> float:
    began = time.monotonic()
    download(port, secure, b"", SIZE)
    return time.monotonic() - began


def _ways(identity: str, cri: Cri, port: int, bare_port: int, secure: ssl.SSLContext) -> list[Callable[[], object]]:
    """Of an exec: the agent's, the runtime's own, and that through bare TLS."""
    return [
        lambda: run(connected(port, secure), "/exec/default/lines100-api/c?command=true&output=1"),
        lambda: run(*reached(exec_url(identity, cri, "true"))),
        lambda: _exec_by_url(exec_url(identity, cri, "true"), bare_port, secure),
    ]


def _exec_by_url(url: SplitResult, port: int, secure: ssl.SSLContext) -> None:
    run(connected(port, secure), url.path)


def _echoes(identity: str, cri: Cri, port: int, secure: ssl.SSLContext, rounds: int) -> list[tuple[float, float]]:
    through = "/exec/default/lines100-api/c?command=cat&input=1&output=1"
    return [
        (_echo(connected(port, secure), through), _echo(*reached(exec_url(identity, cri, "cat", stdin=True))))
        for _ in range(rounds)
    ]


def _echo(session: socket.socket, path: str) -> float:
    """Median seconds of a byte's way there and back."""
    with session:
        session.sendall(upgrade(path))
        said = b""
        while b"\r\n\r\n" not in said:
            said += session.recv(BLOCK)
        times = []
        for _ in range(ECHOES):
            began, said = time.monotonic(), b""
            session.sendall(b"\x82\x82\0\0\0\0\0x")  # binary, two bytes, masked by nothing: channel 0, and the byte
            while not said.endswith(b"\x01x"):
                part = session.recv(BLOCK)
                assert part
                said += part
            times.append(time.monotonic() - began)
        return statistics.median(times)


def _in_rows(ways: list[Callable[[], object]], first: int) -> list[float]:
    """Median seconds of each; all of one, then all of the next."""
    medians = [0.0] * len(ways)
    for number in range(first, first + len(ways)):
        way = number % len(ways)
        medians[way] = in_turns([ways[way]], 0.0)[0]
    return medians


def _in_container(port: int, secure: ssl.SSLContext, length: int) -> float:
    """Seconds for `cat` of a log's lines."""
    began = time.monotonic()
    path = f"/exec/default/lines{length}-api/c?command=cat&command=/tmp/log&output=1"
    size = run(connected(port, secure), path)
    assert SIZE <= size < SIZE * 1.01, size
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
