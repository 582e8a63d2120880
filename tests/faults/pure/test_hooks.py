"""The replaced functions of lasting faults, and that each is as before at the end."""

from __future__ import annotations

import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from actors._cri.client import Cri
from actors._cri.errors import CriError
from actors._faults import hooks
from actors._faults.silent_call import SilentCall
from actors._host.files import checkpoint
from proto.agent.faults import Fault
from proto.cri import api_pb2 as pb


class FakeBus:
    """Sends to a list; timers run when they are told to."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.later: list[tuple[float, Any]] = []
        self.dropped: Counter[str] = Counter()

    def _send(self, target: str, _: bytes, __: bytes) -> bool:
        self.sent.append(target)
        return True

    def call_later(self, delay_s: float, function: Any) -> None:
        self.later.append((delay_s, function))


def fault(kind: str, **fields: Any) -> Fault:
    return Fault(kind=kind, actor="a", peer="b", until=time.monotonic() + 60, **fields)


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_two_faults_of_one_function_end_in_any_order(first: int, second: int) -> None:
    owner: Any = SimpleNamespace(value=lambda: 1)
    ends = [hooks.replace(owner, "value", lambda read: lambda: read() + 10) for _ in range(2)]
    assert owner.value() == 21
    ends[first]()
    assert owner.value() == 11
    ends[second]()
    assert owner.value() == 1


@pytest.mark.parametrize(("kind", "sent", "dropped"), [("lose", ["c"], 0), ("full", ["c"], 1), ("slow", ["c"], 0)])
def test_only_messages_to_the_named_peer_have_the_fault(kind: str, sent: list[str], dropped: int) -> None:
    bus: Any = FakeBus()
    end = hooks.HOOKS[kind](bus, fault(kind, value=1.0))
    for target in ("b", "c"):
        bus._send(target, b"", b"")
    assert (bus.sent, bus.dropped["queue_full"]) == (sent, dropped)
    for _, function in bus.later:
        function()
    assert bus.sent == (["c", "b"] if kind == "slow" else ["c"])
    end()
    bus._send("b", b"", b"")
    assert bus.sent[-1] == "b"


def test_no_message_overtakes_slow_ones_at_the_end() -> None:
    """A removal that is told right after the end must not arrive before the update that was told before it."""
    bus: Any = FakeBus()
    bodies: list[bytes] = []
    bus._send = lambda _, __, body: bodies.append(body) or True
    end = hooks.slow(bus, fault("slow", value=1.0))
    for body in (b"1", b"2", b"3"):
        bus._send("b", b"", body)
    bus.later[0][1]()
    assert bodies == [b"1"]
    end()
    bus._send("b", b"", b"4")
    for _, function in bus.later:
        function()
    assert bodies == [b"1", b"2", b"3", b"4"]


def test_moved_clock_is_back_at_the_end() -> None:
    bus: Any = FakeBus()
    before = time.time()
    end = hooks.clock(bus, fault("clock", value=3600.0))
    assert time.time() - before > 3599
    assert time.time_ns() / 1e9 - before > 3599
    end()
    assert time.time() - before < 60


def test_grpc_reads_the_real_time_while_the_clock_is_moved() -> None:
    bus: Any = FakeBus()
    code = "import time; read = time.time"
    modules: dict[str, dict[str, Any]] = {"grpc._channel": {}, "grpcx": {}}
    ends = [hooks.clock(bus, fault("clock", value=3600.0)) for _ in range(2)]
    found = {}
    for name, names in modules.items():
        names["__name__"] = name
        exec(f"{code}\ndef now(): return read()", names)
        found[name] = names["now"]() - time.time()
    for end in ends:
        end()
    assert found["grpc._channel"] == pytest.approx(-7200, abs=60)
    assert found["grpcx"] == pytest.approx(0, abs=60)


def test_full_disk_fails_checkpoints_and_leaves_the_old_one(tmp_path: Any) -> None:
    bus: Any = FakeBus()
    checkpoint.save(tmp_path / "x.json", 1, "old", sync=False)
    end = hooks.disk(bus, fault("disk"))
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(tmp_path / "x.json", 1, "new", sync=False)
    end()
    assert checkpoint.load(tmp_path / "x.json", 1) == "old"


def test_silent_call_ends_at_its_deadline_or_when_cancelled() -> None:
    ended: list[Any] = []
    for call, code in ((SilentCall("Version", 0.01), "DeadlineExceeded"), (SilentCall("Version", 600.0), "Canceled")):
        call.add_done_callback(ended.append)
        if code == "Canceled":
            assert not call.done()
            call.cancel()
        with pytest.raises(CriError) as error:
            call.result(10)
        assert error.value.code == code
    assert len(ended) == 2


def test_silent_calls_of_a_pod_fail_when_the_fault_ends() -> None:
    bus: Any = FakeBus()
    end = hooks.cri(bus, fault("cri", words=("uid-1",)))
    owner = object.__new__(Cri)
    request = pb.StopPodSandboxRequest(pod_sandbox_id="uid-1").SerializeToString()
    silent = Cri._start(owner, "StopPodSandbox", request, 600.0)
    assert not silent.done()
    end()
    with pytest.raises(CriError, match="connection reset"):
        silent.result(0)
