"""Ports open when they can, serve clients of each address family, and notice vanished clients."""

from __future__ import annotations

import socket
import ssl
import time
from pathlib import Path

import pytest

from actors._net.stream import Stream
from actors.server.base.http import Request, Response
from actors.server.transport import listening
from tests.controlplane.certificates import Authority
from tests.ports import free_port
from tests.server.site import HELLO, Site, client, read_all, say, server_files, site, until


def test_client_with_nagle_waits_for_no_delayed_acknowledgement(pki: Authority) -> None:
    """Linux delays one by 40 ms at least; the fastest of many connections is told apart on the busiest machine."""
    tls = ssl.create_default_context(cafile=str(pki.path))
    took: list[float] = []
    with site(*HELLO, files=server_files(pki)) as made_:
        while len(took) < 20 or (min(took) >= 0.03 and len(took) < 500):
            began = time.monotonic()
            with client(made_.secure, tls) as connected:
                connected.sendall(b"GET /hello/x HTTP/1.1\r\nHost: x\r\n\r\n")
                assert connected.recv(1000)
            took.append(time.monotonic() - began)
    assert min(took) < 0.03, took


def test_plain_http_on_the_tls_port_is_told_so(pki: Authority) -> None:
    with site(*HELLO, files=server_files(pki)) as made_:
        answer = say(made_.secure, b"GET /hello/x HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.endswith(b"Client sent an HTTP request to an HTTPS server.\n")


def test_port_in_use_is_opened_once_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "RETRY_S", 0.02)
    number = free_port()  # which no connection takes before a listener does
    with site(*HELLO) as made_, socket.create_server(("127.0.0.1", number)) as holder:
        port = listening.Port(made_.loop, made_.connections, made_.serve, None)
        made_.loop.call(lambda: made_.loop.spawn(port.listen("127.0.0.1", number)))
        holder.close()
        until(lambda: port.listener is not None)
        assert say(number, b"GET /hello/x HTTP/1.0\r\n\r\n").endswith(b"hello x")


@pytest.mark.needs("IPv6")
@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_wildcard_address_serves_clients_of_both_families(address: str) -> None:
    async def remote(client_: Stream, _: Request) -> Response:
        return Response(200, f"of {client_.remote}.".encode())

    with site() as made_:
        port = listening.Port(made_.loop, made_.connections, remote, None)
        made_.loop.call(lambda: made_.loop.spawn(port.listen(address, 0)))
        until(lambda: port.number)
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, port.number), timeout=20) as connected:
                connected.sendall(b"GET / HTTP/1.0\r\n\r\n")
                assert read_all(connected).endswith(f"of {host}.".encode())


def test_vanished_clients_connection_is_probed(plain: Site) -> None:
    with client(plain.plain):
        (served,) = until(lambda: list(plain.connections.streams))
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert [served._socket.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [15, 15, 9]
        assert served._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


def test_plain_port_needs_no_certificate_files(tmp_path: Path) -> None:
    with site(*HELLO) as made_:
        assert made_.secure == 0
