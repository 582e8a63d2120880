"""Listening sockets: families of wildcards, machines without IPv6, keepalive, IPv4-mapped addresses."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from proto.common.machine.listening import KEEPALIVE_PROBES, KEEPALIVE_S, end_lost_connections, family_of, listen, plain

BOTH = ("127.0.0.1", "::1")


def reaches(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=20).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.needs("IPv6")
@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        ("0.0.0.0", BOTH),
        ("::", BOTH),
        ("0:0::0", BOTH),
        ("::ffff:0.0.0.0", BOTH),
        ("127.0.0.1", BOTH[:1]),
        ("::ffff:127.0.0.1", BOTH[:1]),
        ("::1", BOTH[1:]),
    ],
)
def test_only_a_wildcard_listens_on_both_families(address: str, hosts: tuple[str, ...]) -> None:
    with listen(address, 0, 8) as listener:
        assert tuple(host for host in BOTH if reaches(host, listener.getsockname()[1])) == hosts
        assert listener.family == family_of(address)


def test_wildcard_has_ipv4_where_the_kernel_has_no_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    for address in ("0.0.0.0", "::"):
        with listen(address, 0, 8) as listener:
            assert (listener.family, family_of(address)) == (socket.AF_INET, socket.AF_INET)
            assert reaches("127.0.0.1", listener.getsockname()[1])


@pytest.mark.needs("root", "networks", "ip")
@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_wildcard_has_ipv4_where_a_sysctl_disables_ipv6(address: str) -> None:
    script = (
        "import socket; from proto.common.machine.listening import listen; "
        f"one = listen({address!r}, 0, 8); socket.create_connection(('127.0.0.1', one.getsockname()[1]), 20)"
    )
    off = 'ip link set lo up; echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; exec "$@"'
    subprocess.run(["unshare", "--net", "sh", "-c", off, "sh", sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize("taken_over", [False, True])
def test_accepted_connections_probe_a_silent_peer(taken_over: bool) -> None:
    made = socket.create_server(("127.0.0.1", 0)) if taken_over else listen("127.0.0.1", 0, 8)
    with made as listener:
        if taken_over:
            end_lost_connections(listener)
        with socket.create_connection(listener.getsockname(), timeout=20), listener.accept()[0] as accepted:
            tcp = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            found = [accepted.getsockopt(socket.IPPROTO_TCP, option) for option in tcp]
            assert found == [KEEPALIVE_S, KEEPALIVE_S, KEEPALIVE_PROBES] == [15, 15, 9]
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::FFFF:c000:207", "192.0.2.7"),
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::1"),
        ("::192.0.2.7", "::192.0.2.7"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("localhost", "localhost"),
        ("", ""),
    ],
)
def test_plain_address_of_an_ipv4_client_is_ipv4(host: str, expected: str) -> None:
    assert plain(host) == expected
