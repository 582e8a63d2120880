"""Logs, exec and port-forward at the agent's port, beside the runtime's own streams.

`python -m tests.bench.measurements.streams`. The agent has TLS and client certificates; the runtime's streaming server
has neither, and its times include the CRI call for its URL. A log has no stream of the runtime: it is read beside the
file itself, and beside a process that only writes as many bytes by TLS. `python -m tests.bench.api` has these in more
detail.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import astuple, dataclass
from pathlib import Path
from ssl import SSLContext
from urllib.parse import urlsplit

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
    in_turns,
    log,
    reached,
    run,
    until_said,
)
from tests.bench.reporting.table import print_table
from tests.containerd import ContainerdInstance, missing_requirements
from tests.controlplane.certificates import Authority
from tests.harness import wait_for

LOG_MB = 20
LOGS, SESSIONS = 5, 20
"""Of each round; a round's figure is their median."""
LINE = 100
"""Bytes of a line of the log, with its end."""
NODE, POD = "bench", "streams"
BYTE = b"first byte"
"""The first bytes of the forwarded port."""
Ways = Sequence[Callable[[], object]]


@dataclass(frozen=True)
class Streams:
    """Milliseconds, medians of one round."""

    log_mb: int
    log_ms: float
    log_by_bare_tls_ms: float
    log_by_file_ms: float
    exec_ms: float
    """Of `true`, from connection to exit status."""
    own_exec_ms: float
    forward_ms: float
    """From connection to the port's first byte."""
    own_forward_ms: float


def measure(rounds: int, log_mb: int = LOG_MB) -> list[Streams]:
    """Measure on a containerd of its own."""
    with ContainerdInstance(Path(tempfile.mkdtemp(prefix="nvbench-"))) as containerd:
        return measure_on(containerd, rounds, log_mb, SESSIONS)


def measure_on(containerd: ContainerdInstance, rounds: int, log_mb: int, sessions: int) -> list[Streams]:
    """One agent with one pod. The ways alternate, since a machine's speed changes."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nvbench-")))
        agent = stack.enter_context(closing(Agent(containerd, NODE)))
        authority = Authority(directory / "pki")
        writing = stack.enter_context(bare_writer(authority, log_mb * 1_000_000))
        port = stack.enter_context(_first_byte())
        _start(agent, authority, log_mb)
        secure = client(authority)
        logs = _logs(agent, writing, secure, log_mb * 1_000_000)
        execs, forwards = _execs(agent, secure), _forwards(agent, secure, port)
        return [_round(log_mb, sessions, logs, execs, forwards) for _ in range(rounds)]


def _round(log_mb: int, sessions: int, logs: Ways, execs: Ways, forwards: Ways) -> Streams:
    taken = in_turns(logs, 0.0, LOGS) + in_turns(execs, APART_S, sessions) + in_turns(forwards, APART_S, sessions)
    return Streams(log_mb, *(1000 * seconds for seconds in taken))


def _start(agent: Agent, authority: Authority, log_mb: int) -> None:
    """Start the agent and its pod, whose container has written its log when it is ready."""
    configure(agent, authority)
    agent.start()
    script = f"yes {'x' * (LINE - 1)} | head -n {log_mb * 1_000_000 // LINE}; touch /tmp/done; exec sleep 100000"
    ready = {"exec": {"command": ["test", "-e", "/tmp/done"]}, "periodSeconds": 1}
    agent.write(POD, pod(POD, container("c", script, readinessProbe=ready), hostNetwork=True))
    wait_for(lambda: is_ready(agent.pod(POD)), 180, f"the log is written; log: {agent.log}")


def _logs(agent: Agent, writing: int, secure: SSLContext, size: int) -> Ways:
    file = Path(agent.containerd.cri.container_status(_container(agent)).result().status.log_path)
    return (
        lambda: log(agent.port, secure, f"default/{POD}-{NODE}/c", size),
        lambda: download(writing, secure, b"", size),
        lambda: _read(file),
    )


def _read(file: Path) -> None:
    with file.open("rb", buffering=0) as opened:
        while opened.read(BLOCK):
            pass


def _execs(agent: Agent, secure: SSLContext) -> Ways:
    cri, identity = agent.containerd.cri, _container(agent)
    return (
        lambda: run(connected(agent.port, secure), f"/exec/default/{POD}-{NODE}/c?command=true&output=1"),
        lambda: run(*reached(exec_url(identity, cri, "true"))),
    )


def _forwards(agent: Agent, secure: SSLContext, port: int) -> Ways:
    cri, sandbox = agent.containerd.cri, agent.sandboxes()[0]
    return (
        lambda: until_said(connected(agent.port, secure), f"/portForward/default/{POD}-{NODE}?port={port}", BYTE),
        lambda: _own_forward(cri, sandbox, port),
    )


def _own_forward(cri: Cri, sandbox: str, port: int) -> None:
    until_said(*reached(urlsplit(cri.port_forward(sandbox, [port]).result())), BYTE)


def _container(agent: Agent) -> str:
    return next(iter(agent.running()))


@contextlib.contextmanager
def _first_byte() -> Iterator[int]:
    """A port, in the node's network as the pod is, that greets each who connects."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_greet, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)  # ends its accept


def _greet(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            accepted, _ = listener.accept()
            with accepted:
                accepted.sendall(BYTE)


def main() -> None:
    """Print a row for each round."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.measurements.streams", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--log-mb", type=int, default=LOG_MB)
    options = parser.parse_args()
    if problem := missing_requirements():
        raise SystemExit(problem)
    headers = ("LOG MB", "MS", "BARE TLS", "FILE", "EXEC MS", "RUNTIME'S", "FORWARD MS", "RUNTIME'S")
    print_table(headers, [astuple(one) for one in measure(options.rounds, options.log_mb)])


if __name__ == "__main__":
    main()
