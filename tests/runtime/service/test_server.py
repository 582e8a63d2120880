"""The gRPC server with services that wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from actors._cri.client import Cri
from actors._cri.errors import Unimplemented
from actors.runtime.model.errors import AtEnd
from actors.runtime.model.state import End
from actors.runtime.service.server import MOST_WAITING, Server
from proto.cri import api_pb2 as pb
from tests.harness import wait_for


class Waiting:
    """Containers that do not end within a grace period."""

    def __init__(self) -> None:
        self.end = End()
        self.begun = self.over = 0
        self._lock = threading.Lock()

    def StopContainer(self, request: pb.StopContainerRequest, at_end: AtEnd) -> pb.StopContainerResponse:  # noqa: N802
        with self._lock:
            self.begun += 1
        try:
            self.end.wait(request.timeout, at_end)
        finally:
            with self._lock:
                self.over += 1
        return pb.StopContainerResponse()

    def Version(self, _: pb.VersionRequest) -> pb.VersionResponse:  # noqa: N802
        return pb.VersionResponse(version="0.1.0", runtime_name="waits", runtime_version="1", runtime_api_version="v1")


@pytest.fixture
def service() -> Waiting:
    return Waiting()


@pytest.fixture
def cri(service: Waiting, tmp_path: Path) -> Iterator[Cri]:
    with ExitStack() as stack:
        server = Server(str(tmp_path / "cri.sock"), {"RuntimeService": service})
        stack.callback(server.stop)
        stack.callback(service.end.set)
        server.start()
        client = Cri(f"unix://{tmp_path}/cri.sock")
        stack.callback(client.close)
        yield client


def test_calls_that_wait_do_not_hold_up_the_others(cri: Cri, service: Waiting) -> None:
    stops = [cri.stop_container("1", 1000) for _ in range(MOST_WAITING + 20)]
    wait_for(lambda: service.begun == MOST_WAITING, 60, "each thread waits")
    assert cri.version().result(20).runtime_name == "waits"
    service.end.set()
    for stop in stops:
        stop.result(60)


def test_a_stop_whose_client_goes_waits_no_longer(cri: Cri, service: Waiting) -> None:
    stop = cri.stop_container("1", 1000)
    wait_for(lambda: service.begun == 1, 20, "it waits")
    stop.cancel()
    wait_for(lambda: service.over == 1, 20, "it has gone")
    assert not service.end.is_set()


def test_a_thread_that_cannot_start_ends_no_later_call(
    cri: Cri, service: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    stop = cri.stop_container("0", 1000)
    wait_for(lambda: service.begun == 1, 20, "it has the one thread that there is")
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", no_room)
        without_thread = [cri.stop_container(str(number), 1000) for number in range(1, 4)]
        assert [cri.version().result(20).runtime_name for _ in range(3)] == ["waits"] * 3
    assert service.begun == 1
    later = cri.stop_container("4", 1000)
    wait_for(lambda: service.begun == 5, 20, "each has a thread")
    service.end.set()
    for one in (stop, *without_thread, later):
        one.result(20)


def test_missing_methods_are_refused_in_the_words_of_go(cri: Cri, tmp_path: Path) -> None:
    """The conformance tests skip a checkpoint on these words."""
    with pytest.raises(Unimplemented) as raised:
        cri.checkpoint_container("1", "/tmp/c.tar", 20).result(20)
    assert str(raised.value) == "unknown method CheckpointContainer for service runtime.v1.RuntimeService"
    with grpc.insecure_channel(f"unix:{tmp_path}/cri.sock") as channel:
        stream = channel.unary_stream("/runtime.v1.RuntimeService/GetContainerEvents")
        with pytest.raises(grpc.RpcError, match="unknown method GetContainerEvents for service") as ended:
            next(stream(b"", timeout=20))
    assert ended.value.code() == grpc.StatusCode.UNIMPLEMENTED
