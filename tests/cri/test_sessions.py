"""Exec, Attach and PortForward awaited from an event loop in another thread than gRPC's."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest

from actors._base.messaging.futures import Future
from actors._base.messaging.tasks import gather
from actors._cri.client import Cri
from actors._cri.errors import CriDeadline, CriError, NotFound, RuntimeDown
from actors._net.loop import Loop
from proto.cri import api_pb2 as pb
from tests.containerd.pods import run_pod
from tests.cri.fake import FakeRuntime
from tests.server.site import until

T = TypeVar("T")
STREAMS = {"stdin": False, "stdout": True, "stderr": False, "tty": False}


class OnLoop:
    """A loop in a thread, and the client there."""

    def __init__(self, endpoint: str) -> None:
        self.loop = Loop()
        self.crashes: list[BaseException] = []
        self.loop.start(self.crashes.append)
        self.cri = Cri(endpoint)

    def run(self, make: Callable[[], Awaitable[T]], timeout_s: float = 30.0) -> T:
        """The result of what `make` makes in the loop's thread."""
        ended: Future[T] = Future()

        async def run() -> None:
            try:
                ended.set(await make())
            except Exception as error:
                ended.set_error(error)

        self.loop.call(lambda: self.loop.spawn(run()))
        return ended.result(timeout_s)

    def url(self, container: str = "c", command: str = "true") -> str:
        return self.run(lambda: self.cri.exec(container, [command], **STREAMS))

    def close(self) -> None:
        self.cri.close()
        self.loop.stop()
        until(lambda: not self.loop.tasks)
        assert not self.crashes


@pytest.fixture
def here(tmp_path: Path) -> Iterator[OnLoop]:
    made = OnLoop(f"unix://{tmp_path}/cri.sock")
    yield made
    made.close()


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeRuntime]:
    runtime = FakeRuntime(tmp_path / "cri.sock")
    yield runtime
    runtime.close()


def test_session_url_comes_with_the_usual_deadline(here: OnLoop, fake: FakeRuntime) -> None:
    assert [here.url("a"), here.url("b", "ls")] == ["http://here/a/4", "http://here/b/2"]
    assert fake.seconds_left is not None
    assert 5 < fake.seconds_left <= 10.1  # gRPC rounds a timeout up on the wire, by at most one per cent


def test_concurrent_calls_each_get_their_own_answer(here: OnLoop, fake: FakeRuntime) -> None:
    names = [f"c{number}" for number in range(50)]
    urls = here.run(lambda: gather(*(here.cri.exec(name, ["true"], **STREAMS) for name in names)))
    assert urls == [f"http://here/{name}/4" for name in names]


def test_many_large_commands_go_over_one_connection(here: OnLoop, fake: FakeRuntime) -> None:
    for _ in range(40):
        assert here.url("c", "x" * 10_000) == "http://here/c/10000"


def test_command_larger_than_a_flow_control_window_is_sent(here: OnLoop, fake: FakeRuntime) -> None:
    assert here.url("c", "x" * 100_000) == "http://here/c/100000"


def test_refusal_has_the_grpc_code_and_the_runtimes_text(here: OnLoop, fake: FakeRuntime) -> None:
    fake.fail_with = (grpc.StatusCode.NOT_FOUND, "no such container")
    with pytest.raises(NotFound, match="no such container") as caught:
        here.url()
    assert caught.value.rpc == "Exec"
    fake.fail_with = None
    assert here.url()


def test_missing_runtime_is_down_and_a_started_one_is_found(here: OnLoop, tmp_path: Path) -> None:
    with pytest.raises(RuntimeDown):
        here.url()
    for _ in range(3):
        runtime = FakeRuntime(tmp_path / "cri.sock")
        until(lambda: _works(here))
        runtime.close()


def _works(here: OnLoop) -> bool:
    try:
        return bool(here.url())
    except RuntimeDown:  # gRPC waits a moment before it connects again
        return False


def test_runtime_that_ends_during_a_call_fails_it(here: OnLoop, fake: FakeRuntime) -> None:
    assert here.url()
    asked: Future[str] = Future()

    async def ask() -> None:
        try:
            asked.set(await here.cri.exec("c", ["hang"], **STREAMS))
        except CriError as error:
            asked.set_error(error)

    here.loop.call(lambda: here.loop.spawn(ask()))
    assert fake.hanging.wait(20)
    fake._server.stop(0).wait()
    with pytest.raises(CriError):
        asked.result(30)


def test_deadline_ends_the_call_on_both_sides(here: OnLoop, fake: FakeRuntime) -> None:
    request = pb.ExecRequest(container_id="c", cmd=["hang"])

    def ended_on_both() -> bool:
        """On a machine that pauses, the deadline may pass before the call arrives."""
        with pytest.raises(CriDeadline):
            here.run(lambda: here.cri._call("Exec", request, 0.2))
        return fake.cancelled.wait(2)

    until(ended_on_both)


def test_cancelled_call_ends_at_once_and_reaches_the_runtime(here: OnLoop, fake: FakeRuntime) -> None:
    async def give_up() -> Any:
        call = here.cri.exec("c", ["hang"], **STREAMS)
        while not fake.hanging.is_set():
            await here.loop.sleep(0.01)
        call.cancel()
        return await call

    with pytest.raises(CriError) as caught:
        here.run(give_up)
    assert caught.value.code == "Canceled"
    assert fake.cancelled.wait(20)


def test_endpoint_that_speaks_no_http2_is_an_error(here: OnLoop, tmp_path: Path) -> None:
    def serve(listener: socket.socket) -> None:
        while True:
            try:
                connected, _ = listener.accept()
            except OSError:
                return
            with connected, contextlib.suppress(OSError):  # the client may have gone before the answer
                connected.recv(100)
                connected.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "cri.sock"))
        listener.listen()
        serving = threading.Thread(target=serve, args=(listener,), daemon=True)
        serving.start()
        with pytest.raises(CriError):
            here.url()
        listener.shutdown(socket.SHUT_RDWR)
        serving.join()


def test_runtimes_answer_alike_on_a_loop_and_on_a_thread(cri: Cri) -> None:
    sandbox, container = run_pod(cri, "loop")
    made = OnLoop(cri.endpoint)
    try:
        assert made.url(container).startswith("http://")
        assert made.run(lambda: made.cri.attach(container, **STREAMS)).startswith("http://")
        assert made.run(lambda: made.cri.port_forward(sandbox, [80])).startswith("http://")
        with pytest.raises(CriError) as by_grpc:
            cri.exec("nope", ["true"], **STREAMS).result()
        with pytest.raises(type(by_grpc.value)) as here:
            made.url("nope")
        assert (here.value.code, str(here.value)) == (by_grpc.value.code, str(by_grpc.value))
    finally:
        made.close()
