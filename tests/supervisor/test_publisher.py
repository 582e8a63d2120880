"""The event stream's hook: it gets every event, and its errors stop nothing."""

from __future__ import annotations

from pathlib import Path

import zmq

from proto.agent.supervisor import Note, Started
from proto.wire.message import Message
from supervisor.sockets.publisher import Publisher
from tests.harness import wait_for


def test_other_frames_of_subscribers_are_ignored(tmp_path: Path) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        publisher = Publisher(context, str(tmp_path / "world.sock"), None)
        subscriber = context.socket(zmq.XSUB)
        subscriber.connect(f"ipc://{tmp_path}/world.sock")
        for frames in ([b"x", b"\x01"], [b""], [b"\x00a"], [b"x"] * 300):
            subscriber.send_multipart(frames)
            if frames[0][:1] != b"\x00":  # of what was never subscribed to, nothing arrives
                wait_for(lambda: publisher.socket.poll(0))
            assert not publisher.new_subscribers()
        subscriber.send(b"\x01")
        wait_for(publisher.new_subscribers)
    finally:
        context.destroy(linger=0)


def test_failing_event_hook_gets_every_event(tmp_path: Path) -> None:
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
