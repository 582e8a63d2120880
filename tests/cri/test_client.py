"""The CRI client against a server that hangs, refuses, streams and goes away."""

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from actors._base.messaging import tracing
from actors._cri import channel
from actors._cri import client as client_module
from actors._cri.call import Call
from actors._cri.client import MOST_SECONDS, Cri
from actors._cri.errors import CriDeadline, CriError, NotFound, RuntimeDown, Unimplemented
from actors._faults import hooks
from proto.agent.faults import Fault
from proto.agent.tracing import RecordSpans
from proto.cri import api_pb2 as pb
from supervisor.process.forkclient import ENVIRONMENT
from tests.cri.fake import FakeRuntime
from tests.harness import Stalls, wait_for


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeRuntime]:
    server = FakeRuntime(tmp_path / "fake.sock")
    yield server
    server.close()


@pytest.fixture
def client(fake: FakeRuntime) -> Iterator[Cri]:
    cri = Cri(fake.endpoint)
    yield cri
    cri.close()


def test_a_call_gives_the_runtimes_answer(client: Cri) -> None:
    assert client.version().result().runtime_name == "fake"


def begin_start(client: Cri) -> Call[Any]:
    return client.start_container("c")


def begin_command(client: Cri) -> Call[Any]:
    return client.exec_sync("c", ["true"], 60)


@pytest.mark.parametrize("begin", [begin_start, begin_command])
def test_end_of_the_process_waits_for_a_start(
    client: Cri, fake: FakeRuntime, begin: Callable[[Cri], Call[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "STARTED_S", 30.0)
    call = begin(client)
    assert fake.hanging.wait(20)
    release = threading.Timer(0.2, fake.release.set)
    release.start()
    client.wait_for_starts()
    call.result(0)


def test_end_of_the_process_waits_for_no_start_that_hangs(
    client: Cri, fake: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "STARTED_S", 0.1)
    call = begin_start(client)
    assert fake.hanging.wait(20)
    client.wait_for_starts()
    with pytest.raises(TimeoutError):
        call.result(0)


def test_end_of_the_process_waits_for_no_command_that_runs(
    client: Cri, fake: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "STARTED_S", 2.0)
    call = begin_command(client)
    with pytest.raises(TimeoutError):
        call.result(2.0)
    with Stalls() as machine:
        began = time.monotonic()
        client.wait_for_starts()
        assert time.monotonic() - began < 1 + machine.longest_s


def test_calls_that_have_ended_are_not_waited_for(client: Cri, fake: FakeRuntime) -> None:
    fake.release.set()
    for begin in (begin_start, begin_command):
        begin(client).result(20)
    wait_for(lambda: not client._starts)


CLOSE_UNUSED = """
import os, queue, sys, threading, time
from types import SimpleNamespace
from actors._cri import channel
from actors._cri.channel import UNUSED_S
from actors._cri.client import Cri

def threads():
    return len(os.listdir("/proc/self/task"))

now = [100.0]
channel.time = SimpleNamespace(monotonic=lambda: now[0])  # a machine that stands still would close it too soon
timers = queue.Queue()
cri, before = Cri(sys.argv[1], after=lambda wait_s, function: timers.put((wait_s, function))), threads()
for _ in range(2):
    cri.version().result()
    wait_s, look = timers.get(timeout=10)
    assert wait_s == UNUSED_S, wait_s
    now[0] += UNUSED_S / 2
    look()
    assert threads() > before, "closed too soon"
    wait_s, look = timers.get(timeout=10)
    assert 0 < wait_s <= UNUSED_S, wait_s
    now[0] += wait_s
    look()
    until = time.monotonic() + 30
    while threads() > before and time.monotonic() < until:
        time.sleep(0.05)
    assert threads() <= before, "its threads are left"
    assert timers.empty()
"""


def test_unused_channel_ends_with_its_threads_and_the_next_call_opens_it(fake: FakeRuntime) -> None:
    subprocess.run(
        [sys.executable, "-c", CLOSE_UNUSED, fake.endpoint], env=os.environ | ENVIRONMENT, timeout=60, check=True
    )


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> queue.SimpleQueue[Callable[[], None]]:
    monkeypatch.setattr(channel, "UNUSED_S", 0.0)
    return queue.SimpleQueue()


@pytest.fixture
def closing(fake: FakeRuntime, timers: queue.SimpleQueue[Callable[[], None]]) -> Iterator[Cri]:
    """A client whose channel is closed by the functions in `timers` unless it is in use."""
    cri = Cri(fake.endpoint, after=lambda _, function: timers.put(function))
    cri.version().result()
    wait_for(lambda: not cri._runtime._under_way)  # else a later call may keep this one from setting the timer
    yield cri
    cri.close()


def test_channel_is_closed_after_its_last_use_unless_a_call_is_under_way(closing: Cri, fake: FakeRuntime) -> None:
    with closing.last_use():
        call = closing.status()
    assert closing._runtime._channel is not None
    with closing.last_use():
        fake.release.set()
        call.result(20)
        wait_for(lambda: not closing._runtime._under_way)
    assert closing._runtime._channel is None
    assert closing.version().result(20).runtime_name


def test_last_use_sets_no_timer(closing: Cri, timers: queue.SimpleQueue[Callable[[], None]]) -> None:
    timers.get(timeout=10)()
    with closing.last_use():
        closing.version().result(20)
        wait_for(lambda: not closing._runtime._under_way)
    assert timers.empty()
    closing.version().result(20)
    assert timers.get(timeout=10), "but a later use does"


def test_call_that_goes_on_after_the_last_use_sets_a_timer(
    closing: Cri, fake: FakeRuntime, timers: queue.SimpleQueue[Callable[[], None]]
) -> None:
    timers.get(timeout=10)()
    with closing.last_use():
        call = closing.status()
    fake.release.set()
    call.result(20)
    timers.get(timeout=10)()
    assert closing._runtime._channel is None


def test_channel_with_a_call_under_way_is_not_closed(
    closing: Cri, fake: FakeRuntime, timers: queue.SimpleQueue[Callable[[], None]]
) -> None:
    call = closing.status()
    timers.get(timeout=10)()
    fake.release.set()
    assert call.result() is not None


def test_channel_with_a_stream_is_not_closed(
    closing: Cri, fake: FakeRuntime, timers: queue.SimpleQueue[Callable[[], None]]
) -> None:
    events: queue.Queue[pb.ContainerEventResponse] = queue.Queue()
    closing.container_events(events.put, lambda _: None)
    for id_ in ("c1", "c2"):
        fake.events.put(pb.ContainerEventResponse(container_id=id_))
        assert events.get(timeout=10).container_id == id_
        if id_ == "c1":
            timers.get(timeout=10)()


def test_traced_call_has_a_span_and_its_traceparent(
    client: Cri, fake: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.version().result()
    assert fake.traceparent == ""
    told: list[RecordSpans] = []
    recorder = tracing.Recorder("a", told.append, lambda *_: None, 0)
    monkeypatch.setattr(tracing, "recorder", recorder)
    parent = "00-" + "ab" * 16 + "-" + "01" * 8 + "-01"
    spans = []
    for failure in (None, (grpc.StatusCode.INTERNAL, "broken")):
        fake.fail_with = failure
        with tracing.span("step", parent=parent) as step, contextlib.suppress(CriError):
            client.version().result()
        count = 2 * len(spans) + 2
        wait_for(lambda count=count: recorder.flush() or sum(len(one.spans) for one in told) == count)
        spans = [span for message in told for span in message.spans if span.kind == "client"]
        assert step is not None
        assert (spans[-1].context, spans[-1].parent) == (fake.traceparent, step.context)
    assert [(span.name, span.attributes["rpc.grpc.status_code"], span.error) for span in spans] == [
        ("runtime.v1.RuntimeService/Version", "0", ""),
        ("runtime.v1.RuntimeService/Version", "13", "broken"),
    ]


def test_a_runtime_that_hangs_ends_in_a_deadline_error(client: Cri) -> None:
    with pytest.raises(CriDeadline) as caught:
        client.status(timeout=0.2).result(20)
    assert caught.value.rpc == "Status"
    assert caught.value.code == "DeadlineExceeded"
    assert isinstance(caught.value.__cause__, grpc.RpcError)


def test_result_with_a_timeout_leaves_the_call_under_way(fake: FakeRuntime, client: Cri) -> None:
    call = client.status()
    with pytest.raises(TimeoutError, match="Status is still under way"):
        call.result(0.05)
    assert not call.done()
    fake.release.set()
    assert call.result(20) == pb.StatusResponse()
    assert call.done()


def test_a_hung_call_does_not_hold_up_another(client: Cri) -> None:
    hung = client.status()
    assert client.version().result(20).runtime_name == "fake"
    assert not hung.done()
    hung.cancel()


def test_a_cancelled_call_is_over_with_code_canceled(client: Cri) -> None:
    call = client.status()
    call.cancel()
    with pytest.raises(CriError) as caught:
        call.result(20)
    assert caught.value.code == "Canceled"


def test_callbacks_are_told_once_before_and_after_the_end(fake: FakeRuntime, client: Cri) -> None:
    told: queue.Queue[Call[pb.StatusResponse]] = queue.Queue()
    call = client.status()
    call.add_done_callback(told.put)
    assert told.empty()
    fake.release.set()
    assert told.get(timeout=20) is call
    call.add_done_callback(told.put)  # over already: at once, in this thread
    assert told.get_nowait() is call
    assert told.empty()


def test_a_call_can_be_awaited_by_a_coroutine(client: Cri) -> None:
    async def runtime_name() -> str:
        return (await client.version()).runtime_name

    coroutine = runtime_name()
    call = coroutine.send(None)
    assert isinstance(call, Call)
    over = threading.Event()
    call.add_done_callback(lambda _: over.set())
    assert over.wait(20)
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    assert stopped.value.value == "fake"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (grpc.StatusCode.NOT_FOUND, NotFound),
        (grpc.StatusCode.UNAVAILABLE, RuntimeDown),
        (grpc.StatusCode.DEADLINE_EXCEEDED, CriDeadline),
        (grpc.StatusCode.UNIMPLEMENTED, Unimplemented),
        (grpc.StatusCode.UNKNOWN, CriError),
        (grpc.StatusCode.INTERNAL, CriError),
    ],
)
def test_each_status_becomes_its_error_with_the_runtimes_text(
    fake: FakeRuntime, client: Cri, status: grpc.StatusCode, kind: type[CriError]
) -> None:
    fake.fail_with = (status, "because of this")
    with pytest.raises(CriError) as caught:
        client.version().result()
    assert type(caught.value) is kind
    assert str(caught.value) == "because of this"


def test_grpc_text_reads_as_go_prints_it(fake: FakeRuntime, client: Cri) -> None:
    fake.fail_with = (grpc.StatusCode.FAILED_PRECONDITION, "not now")
    with pytest.raises(CriError) as caught:
        client.version().result()
    assert caught.value.grpc_text() == "rpc error: code = FailedPrecondition desc = not now"


def test_a_runtime_that_is_starting_counts_as_down(fake: FakeRuntime, client: Cri) -> None:
    fake.fail_with = (grpc.StatusCode.UNKNOWN, "server is not initialized yet")
    with pytest.raises(RuntimeDown):
        client.version().result()


def test_an_rpc_the_runtime_lacks_is_unimplemented(client: Cri) -> None:
    with pytest.raises(Unimplemented):
        client.cgroup_driver().result()


@pytest.mark.parametrize(
    ("answer", "driver"),
    [
        (pb.RuntimeConfigResponse(), ""),
        (pb.RuntimeConfigResponse(linux=pb.LinuxRuntimeConfiguration()), "systemd"),
        (pb.RuntimeConfigResponse(linux=pb.LinuxRuntimeConfiguration(cgroup_driver=pb.CGROUPFS)), "cgroupfs"),
    ],
)
def test_cgroup_driver_is_the_runtimes(
    fake: FakeRuntime, client: Cri, answer: pb.RuntimeConfigResponse, driver: str
) -> None:
    fake.runtime_config = answer
    assert client.cgroup_driver().result() == driver


def test_a_missing_socket_is_a_runtime_that_is_down(tmp_path: Path) -> None:
    cri = Cri(f"unix://{tmp_path}/nobody.sock")
    with pytest.raises(RuntimeDown) as caught:
        cri.version().result(20)
    cri.close()
    assert "nobody.sock" in str(caught.value)


def test_restarted_runtime_is_used_again_within_two_seconds(tmp_path: Path) -> None:
    socket = tmp_path / "back.sock"
    cri = Cri(f"unix://{socket}")
    first = FakeRuntime(socket)
    assert cri.version().result(20).runtime_name == "fake"
    first.close()
    with pytest.raises(RuntimeDown):
        cri.version().result(20)
    second = FakeRuntime(socket)
    for _ in range(100):  # two seconds in moments: where the machine pauses, the clock goes on and the client does not
        time.sleep(0.02)
        with contextlib.suppress(RuntimeDown):
            assert cri.version().result(20).runtime_name == "fake"
            break
    else:
        raise AssertionError("not within two seconds")
    cri.close()
    second.close()


def test_calls_of_a_closed_client_fail_with_runtime_down(fake: FakeRuntime) -> None:
    cri = Cri(fake.endpoint)
    hung = cri.status()
    cri.close()
    with pytest.raises(CriError):
        hung.result(20)
    call = cri.version()
    assert call.done()
    call.cancel()
    with pytest.raises(RuntimeDown):
        call.result()
    told: list[Call[pb.VersionResponse]] = []
    call.add_done_callback(told.append)
    assert told == [call]


def test_a_client_closed_before_its_first_call_opens_nothing(fake: FakeRuntime) -> None:
    cri = Cri(fake.endpoint)
    cri.close()
    with pytest.raises(RuntimeDown):
        cri.version().result()


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0])
def test_an_injected_jump_of_the_clock_moves_no_deadline(client: Cri, jump_s: float) -> None:
    bus: Any = None
    end = hooks.clock(bus, Fault(kind="clock", actor="a", value=jump_s))
    try:
        assert client.version(timeout=60).result(30).runtime_name == "fake"
        with pytest.raises(CriDeadline):
            client.status(timeout=0.2).result(30)
    finally:
        end()


def test_deadlines_are_the_kubelets(fake: FakeRuntime) -> None:
    cri = Cri(fake.endpoint, request_seconds=100)
    cri.run_pod_sandbox(pb.PodSandboxConfig()).result()
    assert fake.seconds_left == pytest.approx(200, abs=5)
    cri.stop_container("c", grace_seconds=30).result()
    assert fake.seconds_left == pytest.approx(130, abs=5)
    cri.stop_container("c", grace_seconds=(1 << 63) - 1).result()
    assert fake.seconds_left == pytest.approx(MOST_SECONDS, rel=0.01)
    cri.close()


@pytest.mark.parametrize("request_seconds", [1_040_000 * 3600.0, 1e300])
def test_longest_request_timeout_is_a_year(fake: FakeRuntime, request_seconds: float) -> None:
    cri = Cri(fake.endpoint, request_seconds=request_seconds)
    cri.run_pod_sandbox(pb.PodSandboxConfig()).result()
    assert fake.seconds_left == pytest.approx(MOST_SECONDS, rel=0.01)
    cri.close()


def test_an_answer_larger_than_grpcs_usual_limit_comes_through(client: Cri) -> None:
    assert len(client.list_images().result()[0].username) == 5 * 1024 * 1024


def test_events_come_one_by_one_until_the_runtime_ends_them(fake: FakeRuntime, client: Cri) -> None:
    events: queue.Queue[pb.ContainerEventResponse] = queue.Queue()
    ends: queue.Queue[CriError] = queue.Queue()
    client.container_events(events.put, ends.put)
    fake.events.put(pb.ContainerEventResponse(container_id="c1"))
    assert events.get(timeout=20).container_id == "c1"
    fake.events.put(None)
    assert isinstance(ends.get(timeout=20), RuntimeDown)


def test_a_closed_watch_ends_with_code_canceled(fake: FakeRuntime, client: Cri) -> None:
    events: queue.Queue[pb.ContainerEventResponse] = queue.Queue()
    ends: queue.Queue[CriError] = queue.Queue()
    watch = client.container_events(events.put, ends.put)
    fake.events.put(pb.ContainerEventResponse(container_id="c1"))
    events.get(timeout=20)
    watch.close()
    assert ends.get(timeout=20).code == "Canceled"


FORK = """
import os, sys, threading
from actors._cri.client import Cri
assert threading.active_count() == 1 and len(os.listdir("/proc/self/task")) == 1, "gRPC was started by an import"
child = os.fork()
if child == 0:
    print(Cri(sys.argv[1]).version(timeout=5).result().runtime_name, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_client_works_in_a_fork_of_a_process_that_imported_it(fake: FakeRuntime) -> None:
    command = [sys.executable, "-c", FORK, fake.endpoint]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "fake\n"


def test_image_calls_go_to_the_image_service_of_its_own(fake: FakeRuntime, tmp_path: Path) -> None:
    cri = Cri(f"unix://{tmp_path}/nobody.sock", fake.endpoint)
    try:
        assert [image.id for image in cri.list_images().result()] == ["big"]
        with pytest.raises(CriError):
            cri.version().result()
    finally:
        cri.close()


_MANY_CALLS = """
import sys
from actors._cri.client import Cri

def writes():
    return next(int(line.split()[1]) for line in open("/proc/self/io") if line.startswith("syscw:"))

cri = Cri(sys.argv[1])
cri.version().result()
before = writes()
for _ in range(300):
    cri.version().result()
print(writes() - before)
"""


def test_actors_environment_saves_wake_ups_of_each_call(fake: FakeRuntime) -> None:
    """A thread of gRPC that waits in a poll is woken by a write to its eventfd; there are no other writes here.

    Waits of threads are not counted: a busy machine saves some of them. A gRPC that does not know the experiment any
    more writes so to stderr, in each actor.
    """

    def wake_ups(environment: dict[str, str]) -> int:
        command = [sys.executable, "-c", _MANY_CALLS, fake.endpoint]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        assert not done.stderr
        return int(done.stdout)

    assert wake_ups({**os.environ, **ENVIRONMENT}) < 0.1 * wake_ups(dict(os.environ))
