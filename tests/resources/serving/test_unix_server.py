"""gRPC behind the proxy: calls are served, and clients that hold a connection without calls are not."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from actors.resources.device_registration import REGISTRATION
from actors.resources.serving.unix_server import Limits, Service, serve
from proto.plugins import deviceplugin_pb2 as pb
from tests.harness import wait_for

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    services = [Service(REGISTRATION, {"Register": lambda _: pb.Empty()})]
    limits = Limits(connections=4, idle_s=0.5)
    proxy = serve(str(tmp_path / "front.sock"), str(tmp_path / "behind.sock"), services, limits)
    yield tmp_path / "front.sock"
    proxy.stop()


def register(path: Path) -> grpc.StatusCode:
    with grpc.insecure_channel(f"unix:{path}") as channel:
        try:
            channel.unary_unary("/v1beta1.Registration/Register")(b"", timeout=5)
        except grpc.RpcError as error:
            return error.code()
        return grpc.StatusCode.OK


def test_connections_without_a_call_free_their_places(path: Path) -> None:
    idle = []
    for _ in range(4):
        idle.append(socket.socket(socket.AF_UNIX))
        idle[-1].settimeout(10)
        idle[-1].connect(str(path))
        idle[-1].sendall(PREFACE + SETTINGS)
        assert idle[-1].recv(9)  # it is being served
    assert register(path) is grpc.StatusCode.UNAVAILABLE
    wait_for(lambda: register(path) is grpc.StatusCode.OK, 20, "a free place")
    for one in idle:
        while one.recv(1000):
            pass
        one.close()
