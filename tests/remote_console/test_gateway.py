"""The gateway's loop and audit log, with stand-ins for connections."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from actors.remote_console import audit, keys
from actors.remote_console.audit import Audit
from actors.remote_console.gateway import Gateway
from proto.agent.remote_console import AuthorizedKey


class Standing:
    """A connection that is registered nowhere. A use after its end fails, as a closed socket's does."""

    def __init__(self, gateway: Gateway, number: int, key: AuthorizedKey | None, sends: bool = False) -> None:
        self.number, self.address, self.key, self.sends = number, f"address-{number}", key, sends
        self.source = self.address
        self.streams: dict[str, Any] = {}
        self.ends = 0
        gateway.connections[number] = self  # type: ignore[assignment]

    def register(self, *_: Any) -> None:
        assert not self.ends

    pump = check_time = register

    def messages(self) -> list[list[bytes]]:
        assert not self.ends
        return [[b"probe"]] if self.sends else []

    def close(self) -> None:
        self.ends += 1


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    made = Gateway(str(tmp_path), str(tmp_path), ("127.0.0.1", 0), lambda *_: pytest.fail("asked"), lambda *_: None)
    context: Any = zmq.Context()
    made._zap = SimpleNamespace(socket=context.socket(zmq.REP), serve=lambda: None)  # type: ignore[assignment]
    yield made
    made._listener.close()
    made._audit.close()
    context.destroy(linger=0)


def entries(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.glob("audit.log*") for line in path.read_text().splitlines()]


@pytest.mark.parametrize("revoked", ["one", "other", "both"])
def test_revocation_during_a_poll_ends_only_its_connections(revoked: str, gateway: Gateway, tmp_path: Path) -> None:
    folder = keys.directory(str(tmp_path))
    for name in ("one", "other"):
        keys.add(folder, name, "read")
    gateway._look_at_keys()
    made = {
        key.name: Standing(gateway, int(key.name == "other"), key, sends=key.name == "one")
        for key in gateway._authorized.values()
    }
    for name in made:
        if revoked in (name, "both"):
            keys.revoke(folder, name)
    gateway._run_once()
    assert {name: one.ends for name, one in made.items()} == {name: int(revoked in (name, "both")) for name in made}
    ended = [one["key"] for one in entries(folder) if "revoked" in one["result"]]
    assert sorted(ended) == [name for name in made if revoked in (name, "both")]


def test_connections_without_a_key_cannot_displace_entries(tmp_path: Path) -> None:
    now = [1000.0]
    log = Audit(tmp_path, lambda: now[0])
    log.connection("ops", "connected", "ops", "debug")
    for _ in range(20 * 2700):  # 45 minutes of the most that are accepted
        now[0] += 1 / 20
        log.connection("192.0.2.1:1", "ended: it did not show a key in time")
    log.connection("ops", "ended", "ops", "debug")
    found = entries(tmp_path)
    log.close()
    assert [one["address"] for one in found if one["key"]] == ["ops", "ops"]
    assert len(found) <= audit.UNKNOWN_BURST + 2700 * audit.UNKNOWN_PER_S + 3
    counted = [int(one["result"].split()[0]) for one in entries(tmp_path) if "left out" in one["result"]]
    shown = sum("did not show" in one["result"] for one in entries(tmp_path))
    assert shown + sum(counted) == 20 * 2700


def test_entries_left_out_are_counted_soon(tmp_path: Path) -> None:
    now = [1000.0]
    log = Audit(tmp_path, lambda: now[0])
    for _ in range(audit.UNKNOWN_BURST + 5):
        log.connection("192.0.2.1:1", "refused: unknown key")
    log.summarize()
    assert len(entries(tmp_path)) == audit.UNKNOWN_BURST
    now[0] += 1 / audit.UNKNOWN_PER_S
    log.summarize()
    assert entries(tmp_path)[-1]["result"] == "5 more entries of connections without a key were left out"
    log.close()
    assert len(entries(tmp_path)) == audit.UNKNOWN_BURST + 1


@pytest.mark.needs("IPv6")
def test_console_of_ipv4_on_a_wildcard_has_its_ipv4_address(tmp_path: Path) -> None:
    made = Gateway(str(tmp_path), str(tmp_path), ("0.0.0.0", 0), lambda *_: pytest.fail("asked"), lambda *_: None)
    made._context = zmq.Context()
    for host in ("127.0.0.1", "::1"):
        with socket.create_connection((host, made.number), timeout=20):
            made._accept(time.monotonic())
    assert [one.address.rpartition(":")[0] for one in made.connections.values()] == ["127.0.0.1", "::1"]
    for one in made.connections.values():
        assert one.tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
        one.close()
    made._listener.close()
    made._audit.close()
    made._context.destroy(linger=0)
