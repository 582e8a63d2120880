"""The client of a remote console: the same calls as `Client`, over TCP with CURVE, through the actor remote_console."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import Any, TypeVar

import msgpack
import zmq
from zmq.utils.monitor import parse_monitor_message

from proto.agent.remote_console import SUBSCRIBE, TAP, WORLD, ConsoleKey
from proto.agent.supervisor import EVENTS
from proto.wire import codec
from proto.wire.envelope import Kind
from proto.wire.errors import AskTimeout, Failure, ProtocolError, from_failure
from proto.wire.message import Message, Request
from supervisor.sockets.client import SOURCE, CannotReach, Client, Tapped

R = TypeVar("R", bound=Message)

CONNECT_S = 10.0
EMPTY = b"\x80"
_EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
)


class RemoteClient(Client):
    """An agent on another machine. Close it, or use it in a `with`."""

    is_local = False

    def __init__(self, place: str, key: ConsoleKey) -> None:
        """`place`: tcp://HOST:PORT. The server proves that it has the key that the client's file names."""
        super().__init__(place, key.role)
        self._place, self._key = place, key
        self._open: _Connection | None = None

    def close(self, linger_s: float = 0.0) -> None:
        """Drop every connection."""
        if self._open is not None:
            self._open.close()
            self._open = None
        super().close(linger_s)

    def ask(self, target: str, request: Request[R], timeout_s: float = 5.0) -> R:
        """Ask as `Client.ask`; the role decides there, too."""
        name = type(request).__name__
        self.check_role(name)
        deadline = time.monotonic() + timeout_s
        connection = self._connection()
        correlation = next(self._correlations)
        header = codec.encode_header(Kind.ASK, name, SOURCE, 0, correlation)
        connection.send([target.encode(), header, codec.encode(request)])
        while (left_s := deadline - time.monotonic()) > 0:
            frames = connection.receive(left_s)
            if frames is not None and len(frames) == 3 and codec.decode_header(frames[1]).correlation == correlation:
                return self._decode_answer(frames[1:], request)
        raise AskTimeout(f"cannot get an answer: {target} gave none within {timeout_s:g} s")

    def tell(self, target: str, message: Message) -> None:
        """Send a message without an answer."""
        name = type(message).__name__
        self.check_role(name)
        header = codec.encode_header(Kind.TELL, name, SOURCE, 0)
        self._connection().send([target.encode(), header, codec.encode(message)])

    def events(self) -> Generator[Message, None, None]:
        """The supervisor's events from now on, PeerStates first."""
        for frames in self._follow([WORLD]):
            if len(frames) != 4 or (kind := EVENTS.get(codec.decode_header(frames[2]).type)) is None:
                raise ProtocolError("cannot decode an event of the supervisor")
            yield codec.decode(frames[3], kind)

    def tap(self, actors: str | Sequence[str], types: str | Sequence[str] = ()) -> Generator[Tapped, None, None]:
        """The messages that the actors handle from now on; with `types` those alone."""
        names = (actors,) if isinstance(actors, str) else tuple(actors)
        types = (types,) if isinstance(types, str) else types
        for frames in self._follow([f"{TAP}{name}" for name in names]):
            if len(frames) == 3 and (not types or frames[1].decode(errors="replace") in types):
                yield Tapped(
                    frames[1].decode(errors="replace"),
                    msgpack.unpackb(frames[2]),
                    frames[0].decode(errors="replace").removeprefix(TAP),
                )

    def alive(self) -> bool:
        """True when the remote console accepts the key."""
        try:
            self._connection()
        except CannotReach:
            return False
        return True

    def _connection(self) -> _Connection:
        if self._open is None:
            self._open = self._connect_anew()
        return self._open

    def _connect_anew(self) -> _Connection:
        if self._context is None:
            self._context = zmq.Context()
        return _Connection(self._context, self._place, self._key)

    def _follow(self, streams: Sequence[str]) -> Generator[list[bytes], None, None]:
        connection = self._connect_anew()
        try:
            for name in streams:
                header = codec.encode_header(Kind.ASK, SUBSCRIBE, SOURCE, 0, next(self._correlations))
                connection.send([name.encode(), header, EMPTY])
            waiting = len(streams)
            while True:
                frames = connection.receive(None)
                if frames is None:
                    continue
                if waiting and len(frames) == 3 and (failure := _failure_in(frames)) is not None:
                    waiting -= 1
                    if failure.code:
                        raise from_failure(failure)
                    continue
                yield frames
        finally:
            connection.close()


def _failure_in(frames: list[bytes]) -> Failure | None:
    """The answer to a subscription: a failure, one without code when it is granted; None for another message."""
    try:
        header = codec.decode_header(frames[1])
        if header.kind == Kind.ERROR:
            return codec.decode(frames[2], Failure)
        return Failure(code="") if header.kind == Kind.REPLY else None
    except ProtocolError:
        return None


class _Connection:
    """One authenticated connection."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], place: str, key: ConsoleKey) -> None:
        self._place = place
        self._socket = context.socket(zmq.DEALER)
        self._socket.set(zmq.LINGER, 1000)
        self._socket.set(zmq.IPV6, 1)
        self._socket.set(zmq.RECONNECT_IVL, -1)  # a refused key is not tried again and again
        self._socket.set(zmq.CURVE_SERVERKEY, key.server.encode())
        self._socket.set(zmq.CURVE_PUBLICKEY, key.public.encode())
        self._socket.set(zmq.CURVE_SECRETKEY, key.secret.encode())
        self._monitor = self._socket.get_monitor_socket(_EVENTS)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)
        try:
            self._socket.connect(place)
            self._wait_for_handshake()
        except BaseException as error:
            self.close()
            if isinstance(error, zmq.ZMQError):
                raise CannotReach(f"cannot reach {place}: {error}") from error
            raise

    def _wait_for_handshake(self) -> None:
        deadline = time.monotonic() + CONNECT_S
        while (left_s := deadline - time.monotonic()) > 0:
            if self._monitor.poll(int(left_s * 1000) + 1) and self._event() == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                return
        raise CannotReach(f"cannot reach {self._place}: no answer within {CONNECT_S:g} s")

    def _event(self) -> int:
        """The next event of the monitor. Raises CannotReach for the end of the connection."""
        found: Any = parse_monitor_message(self._monitor.recv_multipart())
        match found["event"]:
            case zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                raise CannotReach(f"cannot reach {self._place}: it does not know this key; see `console keys list`")
            case zmq.EVENT_CLOSED:
                raise CannotReach(f"cannot reach {self._place}: nothing listens there, or it refuses this key")
            case zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                raise CannotReach(f"cannot reach {self._place}: it has ended the connection; is the key revoked?")
        return int(found["event"])

    def send(self, frames: list[bytes]) -> None:
        """Send a message."""
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again as error:
            raise CannotReach(f"cannot reach {self._place}: the connection takes no more messages") from error

    def receive(self, timeout_s: float | None) -> list[bytes] | None:
        """The next message; None after the timeout. Raises CannotReach at the end of the connection."""
        ready = dict(self._poller.poll(None if timeout_s is None else int(timeout_s * 1000) + 1))
        if self._socket in ready:
            return self._socket.recv_multipart()
        if self._monitor in ready:
            self._event()
        return None

    def close(self) -> None:
        """End the connection."""
        self._socket.disable_monitor()
        self._socket.close()
