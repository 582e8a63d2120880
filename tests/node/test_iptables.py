"""The kubelet's iptables chains, in a network namespace of the test's own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.node.iptables import CANARY, FIREWALL, HINT, WANTED, ensure
from tests.harness import wait_for
from tests.kube.faulty_server import FaultyServer
from tests.node.node_actor import Server, world

OTHERS = "-A INPUT -s 192.0.2.1/32 -j DROP"


class Network:
    """A namespace whose iptables and ip6tables come first in PATH."""

    def __init__(self, place: Path, pid: int) -> None:
        self._enter = f"nsenter --net=/proc/{pid}/ns/net"
        for program in WANTED:
            script = place / program
            script.write_text(f'#!/bin/sh\nexec {self._enter} /usr/sbin/{program} "$@"\n')
            script.chmod(0o755)

    def run(self, command: str) -> str:
        done = subprocess.run([*self._enter.split(), *command.split()], capture_output=True, text=True, check=True)
        return done.stdout

    def rules(self, table: str, program: str = "iptables") -> list[str]:
        return [line for line in self.run(f"{program} -t {table} -S").splitlines() if not line.startswith("-P")]


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    holder = subprocess.Popen(["unshare", "--net", "sleep", "300"])
    own = os.readlink("/proc/self/ns/net")
    wait_for(lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != own, 10, "the namespace is there")
    try:
        yield Network(tmp_path, holder.pid)
    finally:
        holder.kill()
        holder.wait(10)


@pytest.mark.needs("iptables", "networks")
def test_chains_are_made_once_and_again_after_a_flush(network: Network) -> None:
    network.run("iptables " + OTHERS)
    for _ in range(2):
        assert [ensure(program, entries) for program, entries in WANTED.items()] == ["", ""]
        assert network.rules("mangle") == network.rules("mangle", "ip6tables") == [f"-N {HINT}", f"-N {CANARY}"]
        assert network.rules("nat") == network.rules("nat", "ip6tables") == network.rules("filter", "ip6tables")
        assert network.rules("nat") == [f"-N {CANARY}"]
        chain, canary, input_, others, output, martians = network.rules("filter")
        assert canary == f"-N {CANARY}"
        assert [chain, input_, output] == [f"-N {FIREWALL}", f"-A INPUT -j {FIREWALL}", f"-A OUTPUT -j {FIREWALL}"]
        assert others == OTHERS
        assert martians.startswith(f"-A {FIREWALL} ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment")
        assert martians.endswith("-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP")
    for table in ("mangle", "nat", "filter"):
        network.run(f"iptables -t {table} -F")
        network.run(f"iptables -t {table} -X")
    assert ensure("iptables", WANTED["iptables"]) == ""
    assert network.rules("mangle") == [f"-N {HINT}", f"-N {CANARY}"]
    assert len(network.rules("filter")) == 5


@pytest.mark.needs("iptables", "networks")
def test_node_makes_chains_with_and_without_a_cluster(network: Network, tmp_path: Path) -> None:
    with (
        FaultyServer(Server()) as server,
        world(server, tmp_path, kubeconfig="", make_iptables_util_chains=True) as one,
    ):
        wait_for(lambda: one.state()["iptables"] == {"iptables": "", "ip6tables": ""}, 20, "the chains are there")
        assert network.rules("mangle") == [f"-N {HINT}", f"-N {CANARY}"]


def test_missing_or_failing_program_is_the_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ensure("no-such-tables", WANTED["iptables"]) == "there is no program no-such-tables; install iptables"
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "badtables").write_text("#!/bin/sh\necho 'Permission denied\nyou must be root' >&2\nexit 4\n")
    (tmp_path / "badtables").chmod(0o755)
    assert ensure("badtables", WANTED["ip6tables"]).startswith("badtables: Permission denied")
