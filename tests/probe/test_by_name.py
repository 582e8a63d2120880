"""Probes of a host whose name has several addresses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proto.pods.probe import SetPods
from proto.v1 import Probe
from tests.harness import ActorProcess, actor_process, wait_for
from tests.probe import pods, servers

RESOLVER = """
import socket
def listed(host, *rest, **more):
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 0)) for one in ("127.0.0.2", "127.0.0.1")]
socket.getaddrinfo = listed
"""
"""Every name has two addresses. Only the second one has a server."""


@pytest.fixture
def actor() -> Iterator[ActorProcess]:
    with actor_process("probe", peers=("pod_workers",), prelude=RESOLVER) as process:
        yield process


def test_next_address_is_probed_when_one_refuses(actor: ActorProcess) -> None:
    with servers.http_server() as server:
        port = server.port
        probes: list[Probe] = [pods.tcp(port, "both.example"), pods.http(port, host="both.example")]
        for probe in probes:
            container = pods.container(readiness=probe)
            actor.tell(SetPods(pods=(pods.pod(container),)))
            wait_for(lambda: pods.told(actor, container.container_id, "readiness"), 20)  # noqa: B023 - called at once
            assert [one.result for one in pods.told(actor, container.container_id, "readiness")] == ["success"]
