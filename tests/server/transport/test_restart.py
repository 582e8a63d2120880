"""A killed server: clients are not refused during its restart, and its ports become free at the end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from actors._base.process.listener_store import ListenerStore
from actors.server.actor import places_of
from actors.server.transport.listening import Listeners
from proto.agent.settings import Settings
from proto.agent.supervisor import RestartActor
from proto.common.machine.listening import listen
from tests.harness import wait_for
from tests.ports import free_port
from tests.server.site import read_all, status_of
from tests.supervisor.agent import Agent, kill, spec, wait_gone


@pytest.fixture
def agent() -> Iterator[Agent]:
    """An agent with the server and another actor that the forkserver starts."""
    children = spec("server"), spec("events")
    with Agent(*children, entry="actors._base.process.child:main", page_address=f"127.0.0.1:{free_port()}") as started:
        started.wait_ready("server", "events")
        wait_for(lambda: listens(started), what="the port")
        yield started


def place(agent: Agent) -> tuple[str, int]:
    return places_of(agent.settings)["page"]


def status(agent: Agent) -> int:
    with socket.create_connection(place(agent), timeout=20) as connected:
        connected.sendall(b"GET /page/page.css HTTP/1.0\r\n\r\n")
        return status_of(read_all(connected))


def listens(agent: Agent) -> bool:
    try:
        return status(agent) == 200
    except ConnectionRefusedError:
        return False


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (b"localhost", 200),
        (b"127.0.0.1:%d", 200),
        (b"[::1]:%d", 200),
        (b"evil.example:%d", 421),
        (b"127.0.0.1.evil.example", 421),
        (b"192.0.2.1", 421),
    ],
)
def test_the_page_answers_only_to_names_of_this_machine(agent: Agent, host: bytes, expected: int) -> None:
    named = host % place(agent)[1] if b"%d" in host else host
    for path in (b"/page/page.json", b"/metrics"):
        with socket.create_connection(place(agent), timeout=20) as connected:
            connected.sendall(b"GET %b HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % (path, named))
            assert status_of(read_all(connected)) == expected, path


def test_ports_outlive_the_forkserver(agent: Agent) -> None:
    refused: list[OSError] = []
    over = threading.Event()

    def come_and_go() -> None:
        while not over.wait(0.005):
            try:
                socket.create_connection(place(agent), timeout=20).close()
            except OSError as error:
                refused.append(error)

    coming = threading.Thread(target=come_and_go)
    coming.start()
    before = agent.row("forkserver").pid
    kill(before)
    agent.wait("forkserver", lambda row: row.pid not in (0, before) and row.state == "ready", 60)
    agent.ask(RestartActor(name="server"), 30)
    assert status(agent) == 200
    over.set()
    coming.join()
    assert not refused


def test_client_during_a_restart_waits_and_is_not_refused(agent: Agent) -> None:
    refused: list[OSError] = []
    over = threading.Event()

    def come_and_go() -> None:
        while not over.wait(0.005):
            try:
                socket.create_connection(place(agent), timeout=20).close()
            except OSError as error:
                refused.append(error)

    coming = threading.Thread(target=come_and_go)
    coming.start()
    try:
        for _ in range(3):
            before = agent.row("server")
            kill(before.pid)
            wait_gone(before.pid)
            assert status(agent) == 200
            agent.wait_ready("server", incarnation=before.incarnation + 1)
        agent.ask(RestartActor(name="server"), 30)
        assert status(agent) == 200
    finally:
        over.set()
        coming.join()
    assert not refused


def test_port_is_free_after_the_forkserver_is_killed(agent: Agent) -> None:
    kill(agent.row("forkserver").pid)
    agent.wait_ready("forkserver", incarnation=2)
    kill(agent.row("server").pid)
    agent.wait_ready("server", incarnation=2)
    wait_for(lambda: listens(agent), what="the port, opened anew")


def test_only_wanted_listening_sockets_are_taken_over() -> None:
    store = ListenerStore()
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        places = [one.getsockname(), two.getsockname()]
        first = Listeners(store)
        first.add(*places[0], one)
        first.add(*places[1], two)
    second = Listeners(store, [places[0], ("127.0.0.1", 1)])
    assert second.find(*places[1]) is None
    with socket.socket() as late:
        assert late.connect_ex(places[1]) != 0
    found = second.find(*places[0])
    assert found is not None
    with socket.create_connection(places[0], timeout=20):
        assert found.accept()[0].close() is None
    found.close()
    assert store.take().keys() == {f"127.0.0.1 {places[0][1]}"}
    assert not store.take()
    store.close()


@pytest.mark.parametrize(("stored", "kept"), [("0.0.0.0", False), ("::", True)])
def test_stored_wildcard_without_ipv6_is_opened_anew(stored: str, kept: bool) -> None:
    store = ListenerStore()
    with listen(stored, 0, 8) if kept else socket.create_server((stored, 0)) as old:
        place = "0.0.0.0", int(old.getsockname()[1])
        Listeners(store).add(*place, old)
    found = Listeners(store, [place]).find(*place)
    assert (found is not None) == kept
    left = store.take()
    assert len(left) == kept
    for one in (*left.values(), *([found] if found else [])):
        one.close()
    listen(*place, 8).close()
    store.close()


def test_connections_of_a_stored_socket_probe_their_peers() -> None:
    store = ListenerStore()
    with socket.create_server(("127.0.0.1", 0)) as old:
        place = old.getsockname()
        Listeners(store).add(*place, old)
    found = Listeners(store, [place]).find(*place)
    assert found is not None
    with found, socket.create_connection(place, timeout=20), found.accept()[0] as accepted:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
    store.close()


@pytest.mark.parametrize(
    ("settings", "places"),
    [
        (Settings(), {"secure": ("0.0.0.0", 10250)}),
        (Settings(page_address="127.0.0.1:1"), {"page": ("127.0.0.1", 1)}),
        (
            Settings(page_address="[::1]:1", anonymous_auth=True),
            {"secure": ("0.0.0.0", 10250), "page": ("::1", 1)},
        ),
        (
            Settings(server_address="::", read_only_port=2, page_address="127.0.0.1:1"),
            {"secure": ("::", 10250), "read-only": ("::", 2), "page": ("127.0.0.1", 1)},
        ),
        (Settings(enable_server=False, kubeconfig="/x"), {}),
    ],
)
def test_settings_determine_the_ports(settings: Settings, places: dict[str, tuple[str, int]]) -> None:
    assert places_of(settings) == places
