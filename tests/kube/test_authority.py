"""The API server's certificate authority is replaced while clients of it run (feature gate ClientsAllowCARotation)."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from actors._kube.client import KubeClient, connect, connect_node
from actors._kube.connection.session import Session
from actors._kube.errors import Unreachable
from proto.agent.settings import Settings
from tests.controlplane.certificates import Authority
from tests.harness import wait_for
from tests.kube.caller import Caller, Loop, caller
from tests.kube.faulty_server import FaultyServer, Reply, Stream

DISTRUST = "certificate verify failed"


class Cluster:
    """An HTTPS server with a certificate of one of two authorities, and the file that clients trust."""

    def __init__(self, directory: Path) -> None:
        self.authorities = {name: Authority(directory / name) for name in ("old", "new")}
        self.pairs = {name: one.issue("server", "kube-apiserver") for name, one in self.authorities.items()}
        self.file = directory / "ca.crt"
        self.trust("old")
        self.server = FaultyServer(lambda _: Reply(), self.pairs["old"])
        self.kubeconfig = str(self.server.kubeconfig(directory / "kubeconfig", self.file))

    def trust(self, *names: str) -> None:
        """Replace the file as a rotation does: at once."""
        self.write(b"".join(self.authorities[name].path.read_bytes() for name in names))

    def write(self, content: bytes) -> None:
        before = self.file.with_name("ca.new")
        before.write_bytes(content)
        before.replace(self.file)

    def serve(self, name: str) -> None:
        """Present this authority's certificate to new connections."""
        socket: Any = self.server._server.socket
        socket.context.load_cert_chain(*self.pairs[name])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    with made.server:
        yield made


@pytest.fixture
def session(cluster: Cluster) -> Iterator[Session]:
    made = Session(cluster.kubeconfig)
    yield made
    made.close_connections()


def call(one: Session) -> bytes:
    return one.call("GET", "/x", timeout_s=20)


def stream(one: Session) -> bytes:
    one.stream("/watch", {}, 20).close()
    return b"{}"


@pytest.mark.parametrize("ask", [call, stream])
def test_changed_authority_is_trusted_without_a_restart(
    cluster: Cluster, session: Session, ask: Callable[[Session], bytes]
) -> None:
    cluster.server.always("GET", "/watch", Stream())
    assert ask(session) == b"{}"
    cluster.serve("new")
    session.close_connections()
    with pytest.raises(Unreachable, match=DISTRUST):
        ask(session)
    cluster.trust("old", "new")
    assert ask(session) == b"{}"
    cluster.trust("old")
    with pytest.raises(Unreachable, match=DISTRUST):
        ask(session)


def test_only_a_changed_authority_closes_idle_connections(cluster: Cluster, session: Session) -> None:
    call(session)
    cluster.serve("new")
    assert call(session) == b"{}", "on the connection from before"
    os.utime(cluster.file)
    assert call(session) == b"{}", "its content is the same"
    cluster.trust("old", "old")
    with pytest.raises(Unreachable, match=DISTRUST):
        call(session)


def test_watch_goes_on_after_the_authority_has_changed(cluster: Cluster, session: Session) -> None:
    cluster.server.always("GET", "/watch", Stream(({"type": "ADDED"},)))
    with closing(session.stream("/watch", {}, 20)) as watch:
        wait_for(lambda: watch.read() == ([b'{"type": "ADDED"}'], False), 20, "the event")
        cluster.serve("new")
        cluster.trust("new")
        assert call(session) == b"{}"
        assert watch.read() == ([], False)
        cluster.server.release()
        wait_for(lambda: watch.read()[1], 20, "the end that the server made")


@contextmanager
def broken(cluster: Cluster, how: str) -> Iterator[None]:
    """The authority's file cannot be used."""
    pem = cluster.authorities["new"].path.read_bytes()
    contents = {"empty": b"", "no certificate": b"nonsense", "cut off": pem[: len(pem) // 2], "no text": b"\xff\xfe"}
    if how in contents:
        cluster.write(contents[how])
        yield
        return
    cluster.file.unlink()
    if how == "a directory":
        cluster.file.mkdir()
    if how == "a pipe":
        os.mkfifo(cluster.file)
    yield
    if cluster.file.is_dir():
        shutil.rmtree(cluster.file)


BROKEN = ["empty", "no certificate", "cut off", "no text", "a directory", "a pipe", "missing"]


@pytest.mark.parametrize("how", BROKEN)
def test_broken_file_leaves_the_authority_from_before(
    cluster: Cluster, session: Session, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "actors._kube")
    call(session)
    with broken(cluster, how):
        for _ in range(3):
            session.close_connections()
            assert call(session) == b"{}"
    warned = [record.getMessage() for record in caplog.records if "that were read before" in record.getMessage()]
    assert len(warned) == (how != "missing"), "once; a file may be missing during its replacement"
    assert all(str(cluster.file) in one for one in warned)
    cluster.serve("new")
    cluster.trust("new")
    assert call(session) == b"{}"


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("how", ["no certificate", "missing"])
def test_file_that_is_broken_at_first_is_read_until_it_is_good(cluster: Cluster, how: str, follow: bool) -> None:
    """As at the start of an actor after a kill: nothing is left of what the one before had read."""
    one = Session(cluster.kubeconfig, follow_authority=follow)
    with broken(cluster, how), pytest.raises(Unreachable, match=f"certificate-authority .*{cluster.file}"):
        call(one)
    cluster.trust("old")
    assert call(one) == b"{}"
    one.close_connections()


def of_node(actor: Caller, kubeconfig: str, *, gate: bool) -> KubeClient:
    return connect_node(actor, Settings(kubeconfig=kubeconfig, follow_api_authority=gate))


def of_bootstrap(actor: Caller, kubeconfig: str, *, gate: bool) -> KubeClient:
    return connect(actor, kubeconfig, follow_authority=gate)


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("connected", [of_node, of_bootstrap])
def test_gate_decides_for_the_clients_of_actors(cluster: Cluster, connected: Any, gate: bool) -> None:
    loop: Any = Loop()
    with caller(loop) as actor:
        clients = [connected(actor, cluster.kubeconfig, gate=gate) for _ in range(2)]
        for client in clients:
            actor.run(client.get("/x", shape=dict))
        cluster.serve("new")
        cluster.trust("new")
        for client in clients:
            client.session.close_connections()
            if gate:
                actor.run(client.get("/x", shape=dict))
            else:
                with pytest.raises(Unreachable, match=DISTRUST):
                    actor.run(client.get("/x", shape=dict))
        next_start = connected(actor, cluster.kubeconfig, gate=gate)
        actor.run(next_start.get("/x", shape=dict))
        for client in (*clients, next_start):
            client.close()
