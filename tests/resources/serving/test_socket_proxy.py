"""The proxy between clients and a plain server on a unix socket."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.resources.serving import socket_proxy
from actors.resources.serving.socket_proxy import SocketProxy
from tests.harness import wait_for

MOST = 3


class Echo:
    """A server behind: sends back what it gets, and counts its starts and stops."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.starts = self.stops = 0
        self.refuses = False
        self.connections: list[socket.socket] = []

    def start(self) -> Callable[[], None]:
        if self.refuses:
            raise OSError("no room")
        self.starts += 1
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(self.path))
        listening.listen()
        threading.Thread(target=self._serve, args=(listening,), daemon=True).start()

        def stop() -> None:
            listening.shutdown(socket.SHUT_RDWR)
            self.path.unlink(missing_ok=True)
            self.close_all()
            self.stops += 1  # last: tests wait for it in another thread

        return stop

    def close_all(self) -> None:
        for connection in self.connections:
            connection.close()
        self.connections.clear()

    def _serve(self, listening: socket.socket) -> None:
        while True:
            try:
                connection = listening.accept()[0]
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        try:
            while data := connection.recv(1000):
                connection.sendall(data)
        except OSError:
            pass
        connection.close()


@pytest.fixture
def echo(tmp_path: Path) -> Echo:
    return Echo(tmp_path / "behind.sock")


@pytest.fixture
def path(tmp_path: Path, echo: Echo, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(socket_proxy, "UNUSED_S", 0.2)
    monkeypatch.setattr(socket_proxy, "CLOSE_S", 0.5)
    proxy = SocketProxy(str(tmp_path / "front.sock"), str(echo.path), echo.start, MOST)
    yield tmp_path / "front.sock"
    proxy.stop()
    assert echo.starts == echo.stops


def client(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(10)
    made.connect(str(path))
    return made


def echoed(one: socket.socket, data: bytes = b"hello") -> bool:
    try:
        one.sendall(data)
        return one.recv(1000) == data
    except OSError:
        return False


def is_closed(one: socket.socket) -> bool:
    try:
        return one.recv(1000) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_server_runs_while_there_are_clients(path: Path, echo: Echo) -> None:
    assert echo.starts == 0
    for number in (1, 2):
        with client(path) as one, client(path) as other:
            assert echoed(one)
            assert echoed(other)
            assert (echo.starts, echo.stops) == (number, number - 1)
        wait_for(lambda number=number: echo.stops == number, 10, "the end of the unused server")
        assert not echo.path.exists()


def test_much_is_passed_on_both_ways_at_once(path: Path) -> None:
    data = os.urandom(5_000_000)
    with client(path) as one:
        threading.Thread(target=one.sendall, args=(data,), daemon=True).start()
        got = bytearray()
        while len(got) < len(data):
            got += one.recv(100_000)
    assert bytes(got) == data


def test_connections_beyond_the_limit_are_closed(path: Path) -> None:
    clients = [client(path) for _ in range(MOST)]
    assert all(echoed(one) for one in clients)
    with client(path) as further:
        assert is_closed(further)
    assert all(echoed(one) for one in clients)
    clients[0].close()

    def one_more_is_served() -> bool:
        with client(path) as further:
            return echoed(further)

    wait_for(one_more_is_served, 10, "a free place")
    for one in clients:
        one.close()


def test_client_that_takes_nothing_is_cut_off(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not in other tests: a machine that stands still is no stalled client.
    monkeypatch.setattr(socket_proxy, "STALLED_S", 0.5)
    with client(path) as one, client(path) as other:
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            one.sendall(bytes(100_000_000))
        assert echoed(other)


def test_client_is_closed_with_its_server(path: Path, echo: Echo) -> None:
    with client(path) as one:
        assert echoed(one)
        for connection in echo.connections:
            connection.shutdown(socket.SHUT_RDWR)
        assert is_closed(one)


def test_server_that_cannot_start_is_tried_again(path: Path, echo: Echo, caplog: pytest.LogCaptureFixture) -> None:
    echo.refuses = True
    for _ in range(5):
        with client(path) as one:
            assert is_closed(one)
    assert caplog.text.count("cannot serve") == 1
    assert "cannot serve clients: the server behind the socket: no room" in caplog.text
    echo.refuses = False
    with client(path) as one:
        assert echoed(one)


def test_proxy_serves_while_its_last_client_was_served(tmp_path: Path, echo: Echo) -> None:
    path = tmp_path / "front.sock"
    proxy = SocketProxy(str(path), str(echo.path), echo.start, MOST)
    for refuses in (False, True, False):
        echo.refuses = refuses
        with client(path) as one:
            assert is_closed(one) if refuses else echoed(one)
        wait_for(lambda refuses=refuses: proxy.serves != refuses, 10, f"refuses: {refuses}")
        echo.close_all()
        proxy._loop.call_soon_threadsafe(proxy._stop_server)
        wait_for(lambda: echo.starts == echo.stops, 10, "the server behind is stopped")
    proxy.stop()
    assert not proxy.serves


def test_server_whose_socket_is_gone_is_replaced(path: Path, echo: Echo) -> None:
    with client(path) as one:
        assert echoed(one)
        echo.path.unlink()
        with client(path) as other:
            assert is_closed(other)
        with client(path) as other:
            assert echoed(other)
    assert echo.starts == 2


def test_end_in_a_flood_of_clients_leaves_no_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(10):
        echo, front = Echo(tmp_path / f"b{number}"), tmp_path / f"f{number}"
        proxy = SocketProxy(str(front), str(echo.path), echo.start, MOST)
        over = threading.Event()

        def flood(front: Path = front, over: threading.Event = over) -> None:
            while not over.is_set():
                try:
                    client(front).close()
                except OSError:
                    return

        threads = [threading.Thread(target=flood) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_for(lambda echo=echo: echo.starts, 10, "the first client")
        proxy.stop()
        over.set()
        for thread in threads:
            thread.join()
        assert echo.starts == echo.stops
    assert [record for record in caplog.records if record.name == socket_proxy.__name__] == []


def test_end_closes_clients_and_server(tmp_path: Path, echo: Echo) -> None:
    proxy = SocketProxy(str(tmp_path / "front.sock"), str(echo.path), echo.start, MOST)
    with client(tmp_path / "front.sock") as one:
        assert echoed(one)
        proxy.stop()
        proxy.stop()
        assert is_closed(one)
    assert echo.stops == 1


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_socket_is_closed_to_others_from_its_creation(
    tmp_path: Path, echo: Echo, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    """A kill right after it must leave no socket that looks like a kubelet's."""
    created: list[int] = []

    class Observed(socket.socket):
        def bind(self, address: Any) -> None:
            super().bind(address)
            created.append(stat.S_IMODE(os.lstat(address).st_mode))

    before = os.umask(umask)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(socket_proxy.socket, "socket", Observed)
            proxy = SocketProxy(str(tmp_path / "front.sock"), str(echo.path), echo.start, MOST)
    finally:
        os.umask(before)
    assert created == [0o600]
    with client(tmp_path / "front.sock") as one:
        assert echoed(one)
    proxy.stop()


def test_socket_is_closed_to_others_and_replaces_sockets_only(tmp_path: Path, echo: Echo) -> None:
    front = tmp_path / "front.sock"
    for _ in range(2):
        proxy = SocketProxy(str(front), str(echo.path), echo.start, MOST)
        assert stat.S_IMODE(front.stat().st_mode) == 0o600
        proxy.stop()
    front.unlink(missing_ok=True)  # Python 3.13 removes it at the end
    front.write_text("no socket")
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="in use"):
        SocketProxy(str(front), str(echo.path), echo.start, MOST)
    assert front.read_text() == "no socket"
    # Threads that other tests have left may open something for a moment.
    wait_for(lambda: set(os.listdir("/proc/self/fd")) <= before, what="nothing is left open")
