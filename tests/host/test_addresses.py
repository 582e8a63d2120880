"""The node's addresses: of --node-ip, its name and the default route, in this order."""

from __future__ import annotations

import ipaddress
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from actors._host.node import addresses
from actors._host.node.addresses import NoAddressError, configured_ips, host_ips, node_ips, primary_ips
from tests.harness import wait_for

V4, V6, NAMED4, NAMED6 = "198.51.100.1", "2001:db8:1::1", "198.51.100.2", "2001:db8:1::2"
FAR = "203.0.113.9"


@pytest.mark.parametrize(
    ("flag", "wanted"),
    [
        ("", ()),
        ("0.0.0.0", ()),
        ("::", ()),
        ("0::0", ()),
        ("192.0.2.7", ("192.0.2.7",)),
        (" 192.0.2.7, 2001:DB8:0::1 ", ("192.0.2.7", "2001:db8::1")),
        ("::ffff:192.0.2.7", ("192.0.2.7",)),
        ("::ffff:0:102:304", ("::ffff:0:102:304",)),
    ],
)
def test_node_ip_has_addresses_or_names_a_family(flag: str, wanted: tuple[str, ...]) -> None:
    assert configured_ips(flag) == wanted


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        ([], ()),
        ([("Hostname", V4)], ()),
        ([("ExternalIP", FAR), ("Hostname", "n"), ("InternalIP", V4), ("InternalIP", NAMED4)], (V4,)),
        ([("InternalIP", V6), ("InternalIP", NAMED6), ("ExternalIP", FAR)], (V6, FAR)),
        ([("ExternalIP", FAR), ("InternalIP", "no address")], (FAR,)),
    ],
)
def test_pods_report_one_address_of_each_family(stored: list[tuple[str, str]], wanted: tuple[str, ...]) -> None:
    assert primary_ips(stored) == wanted


class Machine:
    """The kernel's routes and the resolver's answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.routes = {socket.AF_INET: V4, socket.AF_INET6: V6}
        self.own = {V4, V6, NAMED4, NAMED6, "127.0.0.1", "::1", "fe80::1"}
        self.names: dict[str, list[str]] = {}
        self.lookup: Callable[[str], list[str]] = self._lookup
        monkeypatch.setattr(addresses, "_source_address", self.source)
        monkeypatch.setattr(addresses, "_is_own", lambda address: str(address) in self.own)
        monkeypatch.setattr(addresses, "_resolver", addresses._Resolver())
        monkeypatch.setattr(socket, "getaddrinfo", self.getaddrinfo)

    def source(self, family: socket.AddressFamily, destination: str) -> str:
        return destination if destination in self.own else self.routes.get(family, "")

    def getaddrinfo(self, name: bytes, *_: Any, **__: Any) -> list[Any]:
        return [(0, 0, 0, "", (one, 0)) for one in self.lookup(name.decode())]

    def _lookup(self, name: str) -> list[str]:
        if name not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return self.names[name]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.mark.parametrize(
    ("name", "answers", "flag", "wanted"),
    [
        ("n", [NAMED4], f"{V6},{V4}", (V6, V4)),
        ("n", [NAMED4], V4, (V4,)),
        (FAR, [], "", (FAR,)),
        ("n", [NAMED6, FAR, NAMED4], "", (NAMED4,)),
        ("n", [NAMED6, NAMED4], "::", (NAMED6,)),
        ("n", [NAMED6], "", (NAMED6,)),
        ("n", ["127.0.0.1", "::1", FAR, "fe80::1", "fe80::1%eth0"], "", (V4,)),
        ("n", [], "0.0.0.0", (V4,)),
        ("n", [], "::", (V6,)),
    ],
)
def test_address_is_given_or_named_or_routed(
    machine: Machine, name: str, answers: list[str], flag: str, wanted: tuple[str, ...]
) -> None:
    machine.names = {"n": answers}
    assert node_ips(name, flag) == host_ips(name, flag) == wanted


def test_other_family_is_used_where_the_preferred_has_no_route(machine: Machine) -> None:
    machine.routes = {socket.AF_INET6: V6}
    assert node_ips("none", "") == (V6,)
    machine.routes = {socket.AF_INET: V4, socket.AF_INET6: "fe80::1"}
    assert node_ips("none", "::") == (V4,)


@pytest.mark.parametrize(
    ("flag", "problem"),
    [
        ("127.0.0.1", "it is a loopback address"),
        ("::1", "it is a loopback address"),
        ("224.0.0.1", "it is a multicast address"),
        ("169.254.0.1", "it is a link-local address"),
        (f"{V4},fe80::1", "it is a link-local address"),
        (FAR, "no interface has it"),
    ],
)
def test_node_ip_of_another_machine_is_refused(machine: Machine, flag: str, problem: str) -> None:
    with pytest.raises(NoAddressError, match=f"cannot use --node-ip .*: {problem}"):
        node_ips("n", flag)
    assert host_ips("n", flag) == tuple(flag.split(",")), "pods run all the same"


def test_machine_without_a_network_runs_pods_on_loopback(machine: Machine) -> None:
    machine.routes, machine.names = {}, {"n": ["127.0.0.1"]}
    with pytest.raises(NoAddressError, match="no default route"):
        node_ips("n", "")
    assert host_ips("n", "") == ("127.0.0.1",)


def test_silent_resolver_delays_one_search(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "LOOKUP_S", 0.05)
    monkeypatch.setattr(addresses, "ANSWER_S", 1e9)
    answer, asked = threading.Event(), []

    def silent(name: str) -> list[str]:
        asked.append(name)
        answer.wait(60)
        return [NAMED4]

    machine.lookup = silent
    for _ in range(5):
        with pytest.raises(NoAddressError, match="has not answered yet"):
            node_ips("n", "")
    assert host_ips("n", "") == (V4,), "pods do not wait for it"
    monkeypatch.setattr(addresses, "ANSWER_S", -1.0)
    assert [node_ips("n", "") for _ in range(5)] == [(V4,)] * 5
    wait_for(lambda: asked, what="the thread of the first search has begun")
    assert asked == ["n"], "no second thread hangs there"
    answer.set()
    wait_for(lambda: node_ips("n", "") == (NAMED4,), 10)

    def failing(name: str) -> list[str]:
        raise socket.gaierror(socket.EAI_AGAIN, "later")

    machine.lookup = failing
    assert node_ips("n", "") == (NAMED4,), "a failing server takes no address away"


@pytest.mark.parametrize("binds_any", [False, True])
def test_own_addresses_can_be_bound(binds_any: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.2 stands for a second address of a network: the kernel sends to it from the first one."""
    monkeypatch.setattr(addresses, "_binds_any", lambda _: binds_any)
    own = [text for text in ("127.0.0.1", "127.0.0.2", FAR, V6) if addresses._is_own(ipaddress.ip_address(text))]
    assert own == (["127.0.0.1"] if binds_any else ["127.0.0.1", "127.0.0.2"])


def test_temporary_failure_of_the_first_lookup_is_no_answer(machine: Machine) -> None:
    def failing(name: str) -> list[str]:
        raise socket.gaierror(socket.EAI_AGAIN, "later")

    machine.lookup = failing
    with pytest.raises(NoAddressError, match="has not answered yet"):
        node_ips("n", "")


@pytest.mark.parametrize("name", ["a" * 64, "a..b", "\N{LATIN SMALL LETTER U WITH DIAERESIS}\udcff"])
def test_name_that_no_resolver_takes_has_no_address(name: str) -> None:
    """They reach no name server, so that the test needs no network."""
    assert addresses._Resolver().addresses(name) == ()


def test_lookup_imports_no_codec() -> None:
    script = (
        "import sys; from actors._host.node import addresses; addresses._Resolver().addresses('localhost'); "
        "sys.exit('encodings.idna' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-P", "-c", script], check=False, timeout=60).returncode == 0
