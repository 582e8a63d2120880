"""The context of spans through tasks, and the frames with and without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from actors._base.messaging import tracing
from actors._base.messaging.futures import Future
from actors._base.messaging.tasks import Task
from actors._base.messaging.tracing import CURRENT, MOST_WAITING, Recorder
from proto.agent.tracing import RecordSpans
from proto.wire import codec
from proto.wire.envelope import Kind
from proto.wire.errors import ProtocolError

PARENT = "00-" + "ab" * 16 + "-" + "01" * 8 + "-01"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[RecordSpans]]:
    """Messages of a recorder of all traces, after `flush`."""
    messages: list[RecordSpans] = []
    monkeypatch.setattr(tracing, "recorder", Recorder("a", messages.append, lambda *_: None, 1_000_000))
    yield messages
    assert CURRENT.get() == ""


def flushed(told: list[RecordSpans]) -> dict[str, Any]:
    assert tracing.recorder is not None
    tracing.recorder.flush()
    return {span.name: span for message in told for span in message.spans}


def task(coroutine: Any) -> Task[Any]:
    made: Task[Any] = Task(coroutine, "t", lambda one: one.step(), lambda *_: None, lambda _: None)
    made.step()
    return made


def test_context_stays_with_its_task_across_awaits(told: list[RecordSpans]) -> None:
    gates: list[Future[None]] = [Future(), Future()]

    async def work(name: str, gate: Future[None]) -> None:
        with tracing.span(name, parent=PARENT) as span:
            assert span is not None
            await gate
            assert CURRENT.get() == span.context
            with tracing.span(f"{name} child"):
                pass

    tasks = [task(work(name, gate)) for name, gate in zip("xy", gates, strict=True)]
    assert CURRENT.get() == ""
    for gate in reversed(gates):
        gate.set(None)
    assert all(one.done() for one in tasks)
    spans = flushed(told)
    assert (spans["x child"].parent, spans["y child"].parent) == (spans["x"].context, spans["y"].context)
    assert spans["x"].parent == PARENT


def test_spawned_task_inherits_the_context(told: list[RecordSpans]) -> None:
    async def inner() -> str:
        return CURRENT.get()

    with tracing.span("outer", parent=PARENT) as span:
        assert span is not None
        assert task(inner()).result(0) == span.context
    assert flushed(told)["outer"].error == ""


def test_error_of_a_block_is_the_spans(told: list[RecordSpans]) -> None:
    with pytest.raises(ValueError, match="no"), tracing.span("s", parent=PARENT):
        raise ValueError("no")
    assert flushed(told)["s"].error == "no"


@pytest.mark.parametrize(
    ("header", "rate", "parent"),
    [
        (PARENT, 0, PARENT),
        (PARENT.replace("00-", "cc-", 1) + "-more", 0, PARENT),
        (PARENT[:-2] + "00", 1_000_000, None),
        ("", 1_000_000, ""),
        ("garbage", 1_000_000, ""),
        ("00-" + "0" * 32 + "-" + "01" * 8 + "-01", 1_000_000, ""),
        ("", 0, None),
    ],
)
def test_request_is_traced_as_its_sender_samples(
    told: list[RecordSpans], monkeypatch: pytest.MonkeyPatch, header: str, rate: int, parent: str | None
) -> None:
    monkeypatch.setattr(tracing, "recorder", Recorder("a", told.append, lambda *_: None, rate))
    with tracing.served("GET /pods", header, {}):
        pass
    found = flushed(told).get("GET /pods")
    assert (None if found is None else found.parent) == parent


def test_sampling_takes_its_share_by_trace_id() -> None:
    recorder = Recorder("a", lambda _: None, lambda *_: None, 250_000)
    assert recorder.samples("0" * 16 + "3fffffffffffffff")
    assert not recorder.samples("0" * 16 + "4000000000000000")


def test_spans_beyond_the_limit_are_dropped_and_counted(told: list[RecordSpans]) -> None:
    for _ in range(MOST_WAITING + 5):
        with tracing.span("s", parent=PARENT):
            pass
    flushed(told)
    assert sum(len(message.spans) for message in told) == MOST_WAITING
    assert sum(message.dropped for message in told) == 5


def test_untraced_message_has_no_byte_more() -> None:
    plain = codec.encode_header(Kind.TELL, "T", "a", 1)
    assert len(msgpack.unpackb(plain)) == 7
    assert codec.decode_header(plain).trace == ""
    traced = codec.encode_header(Kind.TELL, "T", "a", 1, trace=PARENT)
    assert codec.decode_header(traced).trace == PARENT
    with pytest.raises(ProtocolError):
        codec.decode_header(codec.encode_header(Kind.TELL, "T", "a", 1, trace="x" * 55))


def test_nothing_is_recorded_without_an_endpoint() -> None:
    assert tracing.recorder is None
    assert tracing.new_trace() == ""
    with tracing.span("s", parent=PARENT) as span:
        assert span is None
        assert CURRENT.get() == ""
