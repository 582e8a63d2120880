"""The event stream's hook: it sees what is published, and its errors stay its own."""

from __future__ import annotations

from pathlib import Path

import zmq

from proto.message import Message
from proto.supervisor import Note, Started
from supervisor.publisher import Publisher


def test_a_hook_that_fails_sees_every_event_and_stops_nothing(tmp_path: Path) -> None:
    seen: list[Message] = []

    def hook(message: Message) -> None:
        seen.append(message)
        raise ValueError("a careless hook")

    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    publisher = Publisher(context, str(tmp_path / "world.sock"), hook)
    events: list[Message] = [Started(name="a", incarnation=1), Note(level="info", actor="a", text="x")]
    for event in events:
        publisher.publish(event)
    context.destroy(linger=0)
    assert seen == events
