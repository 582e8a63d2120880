"""A fake agent with real ROUTER and XPUB sockets, whose answers a test chooses."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import msgpack
import zmq

from proto.agent.supervisor import ActorRow, ActorRows, PeerStates
from proto.wire import codec
from proto.wire.envelope import Kind
from proto.wire.errors import Refused, to_failure
from proto.wire.message import Message, type_named

Answer = Callable[[Message], Message | Exception | None]
"""None: no answer at all."""


def row(name: str, pid: int = 1, incarnation: int = 1, state: str = "ready") -> ActorRow:
    return ActorRow(name=name, pid=pid, state=state, incarnation=incarnation, uptime_s=3.0, restarts=incarnation - 1)


class FakeAgent:
    """Listens for `supervisor` and for each actor in `answers`; by default it answers ListActors only."""

    def __init__(self, run_dir: Path, answers: dict[str, Answer]) -> None:
        self.run_dir = run_dir
        self.answers = {"supervisor": self.supervisor, **answers}
        self.asked: list[tuple[str, Message]] = []
        self.headers: list[object] = []
        self.rows = (row("supervisor", os.getpid()), row("forkserver"), *(row(name) for name in answers))
        self._stop = threading.Event()
        self._publish: list[tuple[str, list[bytes]]] = []
        self._bound = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> FakeAgent:
        self._thread.start()
        assert self._bound.wait(30)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def supervisor(self, request: Message) -> Message | Exception | None:
        if type(request).__name__ == "ListActors":
            return ActorRows(rows=self.rows)
        return Refused("NotHere", f"no {type(request).__name__} here")

    def publish(self, event: Message) -> None:
        name = type(event).__name__
        frames = [name.encode(), codec.encode_header(Kind.TELL, name, "supervisor", 0), codec.encode(event)]
        self._publish.append(("world.sock", frames))

    def publish_tap(self, actor: str, record: dict[str, object]) -> None:
        self._publish.append((f"{actor}.tap", [str(record["type"]).encode(), msgpack.packb(record)]))

    # The thread that owns the sockets

    def _serve(self) -> None:
        context = zmq.Context()
        poller = zmq.Poller()
        routers = {}
        for name in self.answers:
            router = context.socket(zmq.ROUTER)
            router.bind(f"ipc://{self.run_dir}/{'control' if name == 'supervisor' else name}.sock")
            routers[router] = name
            poller.register(router, zmq.POLLIN)
        streams = {}
        for address in ("world.sock", *(f"{name}.tap" for name in self.answers if name != "supervisor")):
            streams[address] = context.socket(zmq.XPUB)
            # Each subscriber gets its PeerStates, also when it comes before the former subscriber's end is noticed.
            streams[address].set(zmq.XPUB_VERBOSE, 1)
            streams[address].bind(f"ipc://{self.run_dir}/{address}")
            poller.register(streams[address], zmq.POLLIN)
        self._bound.set()
        subscribed: set[str] = set()
        while not self._stop.is_set():
            for source, _ in poller.poll(10):
                if source in routers:
                    self._take(source, routers[source])
                else:
                    address = next(a for a, s in streams.items() if s is source)
                    if source.recv()[:1] == b"\x01":
                        subscribed.add(address)
                        if address == "world.sock":
                            self.publish(PeerStates(peers=()))
            ready = [item for item in self._publish if item[0] in subscribed]
            for item in ready:
                self._publish.remove(item)
                streams[item[0]].send_multipart(item[1])
        context.destroy(linger=0)

    def _take(self, router: zmq.Socket[bytes], name: str) -> None:
        identity, head, body = router.recv_multipart()
        header = codec.decode_header(head)
        request = codec.decode(body, type_named(name, header.type))
        self.headers.append(header)
        self.asked.append((name, request))
        answer = self.answers[name](request)
        if answer is None:
            return
        if isinstance(answer, Exception):
            kind, type_name, record = Kind.ERROR, "Failure", to_failure(answer)
        else:
            kind, type_name, record = Kind.REPLY, type(answer).__name__, answer
        frame = codec.encode_header(kind, type_name, name, 1, header.correlation)
        router.send_multipart([identity, frame, codec.encode(record)])
