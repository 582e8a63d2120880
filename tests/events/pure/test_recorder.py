"""The messages of a recorder to the events actor."""

from __future__ import annotations

import pytest

from actors._base.messaging.ref import RemoteRef
from actors._events.recorder import MAX_ANNOTATIONS, Recorder, bounded
from proto.pods.events import RecordEvent
from proto.v1 import ObjectMeta, Pod
from proto.wire import codec


class Told(RemoteRef):
    """A reference that keeps the messages."""

    def __init__(self) -> None:
        self.messages: list[RecordEvent] = []

    def tell(self, message: RecordEvent) -> None:  # type: ignore[override]
        self.messages.append(message)


def test_annotations_are_sent_with_the_event() -> None:
    told = Told()
    subject = Pod(metadata=ObjectMeta(name="p", namespace="ns", uid="u"))
    Recorder(told).pod(subject, "Warning", "Evicted", "m", annotations={"starved_resource": "memory"})
    Recorder(told).pod(subject, "Normal", "Pulled", "m")
    assert [one.annotations for one in told.messages] == [{"starved_resource": "memory"}, {}]


@pytest.mark.parametrize(("over", "kept"), [(0, True), (1, False)])
def test_annotations_above_the_servers_limit_are_left_out(over: int, kept: bool) -> None:
    """The limit is in bytes of UTF-8: each of these letters has two."""
    given = {"key": "\u00e4" * ((MAX_ANNOTATIONS - 4) // 2) + "a" * (1 + over)}
    assert bounded(given) == (given if kept else {})


def test_message_of_the_release_before_is_read() -> None:
    before = {"involved": {"kind": "Pod"}, "type": "Normal", "reason": "Pulled", "message": "m", "time_ns": 1}
    assert codec.decode(codec.encode(before), RecordEvent).annotations == {}
