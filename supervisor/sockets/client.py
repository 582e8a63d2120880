"""A synchronous client of a running agent, for the command line and the console.

One ask at a time over ZeroMQ, the event stream and the actors' taps. It talks to an actor directly, not through the
supervisor. It is not used between actors: they have `actors._base`.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import socket
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import msgpack
import zmq

from proto.agent import console_roles
from proto.agent.supervisor import EVENTS, ActorRow, ListActors
from proto.common.machine import procfs
from proto.wire import codec
from proto.wire.envelope import Header, Kind
from proto.wire.errors import ActorDead, ActorError, AskTimeout, Failure, ProtocolError, Refused, from_failure
from proto.wire.message import Message, Request, reply_type

R = TypeVar("R", bound=Message)

SOURCE = "console"
RETRY_S = 0.02
"""Between two checks for an actor that restarts; a restart takes some 10 ms."""
AWAY_S = 30.0
"""The longest time for which a supervisor that starts, or executes its next self, keeps its followers waiting."""
LOOK_MS = 500
"""Between two looks for the supervisor while a followed publisher is away."""
TELL_S = 1.0
"""The longest wait for a tell to be sent."""
LONGEST_WAIT_S = 3600.0
"""The longest single wait of a longer one: the kernel takes milliseconds in 32 bits."""
_LONGEST_PATH = 107  # bytes; sun_path of sockaddr_un less its final NUL


class CannotReach(ActorError):
    """The target does not listen. The message says what to do."""


class NoSuchActor(CannotReach):
    """The agent has no actor of that name."""


class Tapped(NamedTuple):
    """One message an actor has handled."""

    type: str
    record: dict[str, Any]
    """As the actor's tap publishes it: type, source, incarnation, queued_ms, handled_ms, failed."""
    actor: str = ""
    """The actor that handled it."""


class Client:
    """One agent, by its run directory. For one thread; close it, or use it in a `with`."""

    is_local = True

    def __init__(self, run_dir: str | Path, role: str = "") -> None:
        """With `role`, it sends only what that role may; without, all but what always needs the role debug."""
        self.run_dir = Path(run_dir)
        self.role = role
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._correlations = itertools.count(1)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self, linger_s: float = 0.0) -> None:
        """Drop every connection, after at most `linger_s` for what is not sent. Usable again afterwards."""
        if self._context is not None:
            self._context.destroy(linger=int(linger_s * 1000))
            self._context = None

    def ask(self, target: str, request: Request[R], timeout_s: float = 5.0) -> R:
        """Ask `target` (`supervisor`, or an actor's name) and wait for its answer, `timeout_s` seconds at most.

        Raises CannotReach at once when no agent runs. After the deadline it does so for an actor that is not ready, and
        for a supervisor without sockets. Raises NoSuchActor for an unknown name, and ActorDead when the target ended
        before its answer. Also raises AskTimeout, Refused, and ProtocolError when one side cannot decode the other's
        message. A question that only reads is asked again of a supervisor that executes its next self.
        """
        name = type(request).__name__
        self.check_role(name)
        deadline = time.monotonic() + timeout_s
        while True:
            self._wait_for(target, deadline)
            try:
                with self._connect(zmq.DEALER, self.path_of(target)) as (peer, gone):
                    answer = self._exchange(peer, gone, target, request, deadline)
            except ActorDead:
                if target == "supervisor" and name in console_roles.READ and self.supervisor_pid():
                    continue
                raise
            if answer is None:
                raise AskTimeout(f"cannot get an answer: {target} gave none within {timeout_s:g} s")
            return answer

    def round_trips(self, target: str, request: Request[Any], count: int, timeout_s: float) -> list[float]:
        """Seconds of `count` asks in turn over one connection, all within `timeout_s`. Raises as `ask`."""
        self.check_role(type(request).__name__)
        deadline = time.monotonic() + timeout_s
        self._wait_for(target, deadline)
        took: list[float] = []
        with self._connect(zmq.DEALER, self.path_of(target)) as (peer, gone):
            for _ in range(count):
                began = time.perf_counter()
                if self._exchange(peer, gone, target, request, deadline) is None:
                    raise AskTimeout(f"cannot get {count} answers: {target} gave {len(took)} within {timeout_s:g} s")
                took.append(time.perf_counter() - began)
        return took

    def _exchange(
        self, peer: zmq.Socket[bytes], gone: zmq.Socket[bytes], target: str, request: Request[R], deadline: float
    ) -> R | None:
        """Send a request and return its answer; None when there is none before the deadline."""
        header = codec.encode_header(Kind.ASK, type(request).__name__, SOURCE, 0, next(self._correlations))
        peer.send_multipart([header, codec.encode(request)])
        while (left_s := deadline - time.monotonic()) > 0:
            ready = _wait(peer, gone, int(min(left_s, LONGEST_WAIT_S) * 1000) + 1)
            if peer in ready:  # first: an answer before the end counts
                return self._decode_answer(peer.recv_multipart(), request)
            if gone in ready:
                name = type(request).__name__
                raise ActorDead(f"{target} ended before it answered {name}; it may have acted on it")
        return None

    def tell(self, target: str, message: Message) -> None:
        """Send a message without an answer. Raises as `ask` when the target does not listen."""
        self.check_role(type(message).__name__)
        self._wait_for(target, 0.0)
        with self._connect(zmq.DEALER, self.path_of(target)) as (peer, _):
            peer.set(zmq.LINGER, int(TELL_S * 1000))
            peer.send_multipart(
                [codec.encode_header(Kind.TELL, type(message).__name__, SOURCE, 0), codec.encode(message)]
            )
        self.close(TELL_S)

    def check_role(self, name: str) -> None:
        """Raise Refused if the role may not send the request of this name."""
        needs_debug = name in console_roles.ALWAYS_DEBUG
        if (self.role or needs_debug) and not console_roles.allows(self.role, name):
            raise Refused("Forbidden", console_roles.refusal(self.role, name), retry=False)

    def events(self) -> Generator[Message, None, None]:
        """Yield the supervisor's events from now on, PeerStates first, also across an upgrade.

        Raises CannotReach when the supervisor ends.
        """
        self._wait_for("supervisor", time.monotonic() + AWAY_S)
        for _, frames in self._subscribe({"supervisor": self.run_dir / "world.sock"}):
            header = codec.decode_header(frames[1])
            kind = EVENTS.get(header.type)
            if kind is None:
                raise ProtocolError(f"cannot decode the supervisor's event {header.type!r}: unknown type")
            yield codec.decode(frames[2], kind)

    def tap(self, actors: str | Sequence[str], types: str | Sequence[str] = ()) -> Generator[Tapped, None, None]:
        """Yield the messages that the actors handle from now on, also after restarts; with `types` those alone.

        Actors report nothing else then. Raises CannotReach at the agent's end.
        """
        names = (actors,) if isinstance(actors, str) else tuple(actors)
        for name in names:
            self._wait_for(name, 0.0)
        types = (types,) if isinstance(types, str) else types
        topics = [one.encode() for one in types] or [b""]
        for name, frames in self._subscribe({name: self.run_dir / f"{name}.tap" for name in names}, topics):
            if not types or frames[0].decode(errors="replace") in types:  # a topic is a prefix
                yield Tapped(frames[0].decode(errors="replace"), msgpack.unpackb(frames[1]), name)

    def actors(self) -> tuple[ActorRow, ...]:
        """The rows of `supervisor ps`."""
        return self.ask("supervisor", ListActors()).rows

    def alive(self) -> bool:
        """True when a supervisor listens."""
        return not self._connect_error("supervisor")

    def supervisor_pid(self) -> int:
        """The pid of the supervisor that holds the run directory's lock; 0 when none does, or this user may not see it.

        It holds the lock from its start to its end, also while it has no sockets: as it starts, and in an upgrade.
        """
        lock = self.run_dir / "lock"
        try:
            with lock.open("rb") as file:
                pid = int(file.read(32))
        except (OSError, ValueError):
            return 0
        return pid if procfs.has_open(pid, lock) else 0

    def gone(self) -> str:
        """Why no agent runs; empty when one runs, starts, or cannot be seen."""
        code = self._connect_error("supervisor")
        if code not in (errno.ENOENT, errno.ECONNREFUSED) or self.supervisor_pid():
            return ""
        return "it was stopped" if code == errno.ENOENT else "its supervisor ended without a stop"

    def path_of(self, target: str) -> Path:
        """The path of a target's socket."""
        return self.run_dir / ("control.sock" if target == "supervisor" else f"{target}.sock")

    # Availability

    def _wait_for(self, target: str, deadline: float) -> None:
        """Return once `target` listens. Waits for actors that the supervisor lists, and for a supervisor that is there.

        That one has no sockets while it starts, and while it executes its next self.
        """
        while True:
            problem = self._connect_error(target)
            if not problem:
                return
            supervisor_problem = problem if target == "supervisor" else self._connect_error("supervisor")
            if supervisor_problem:
                self._wait_for_supervisor(supervisor_problem, deadline)
                continue
            names = [row.name for row in self.actors()]
            if target not in names:
                raise NoSuchActor(f"cannot reach {target}: no such actor; there are {', '.join(names[2:]) or 'none'}")
            if time.monotonic() >= deadline:
                raise CannotReach(
                    f"cannot reach {target}: it is not in service; `supervisor ps --run-dir {self.run_dir}` says why"
                )
            time.sleep(RETRY_S)

    def _wait_for_supervisor(self, problem: int, deadline: float) -> None:
        """Return once a supervisor without sockets listens. Raises CannotReach when there is none, and past `deadline`.

        `problem`: the errno of the last try.
        """
        while problem:
            pid = self.supervisor_pid() if problem in (errno.ENOENT, errno.ECONNREFUSED) else 0
            if not pid:
                raise CannotReach(self._not_running(problem))
            if time.monotonic() >= deadline:
                raise CannotReach(
                    f"cannot reach the agent: its supervisor, pid {pid}, is starting or being upgraded; try again"
                )
            time.sleep(RETRY_S)
            problem = self._connect_error("supervisor")

    def _connect_error(self, target: str) -> int:
        """Return 0 when the target listens, else the errno. ZeroMQ itself would retry for ever."""
        path = os.fsencode(self.path_of(target))
        if len(path) > _LONGEST_PATH:
            return errno.ENAMETOOLONG
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            code = probe.connect_ex(path)
        return 0 if code == errno.EAGAIN else code  # EAGAIN: it listens, and its backlog is full

    def _not_running(self, code: int) -> str:
        where = self.path_of("supervisor")
        if code == errno.ENAMETOOLONG:
            length = len(os.fsencode(where))
            return f"cannot reach the agent: {where} has {length} bytes, a socket's path at most {_LONGEST_PATH}"
        if code in (errno.ENOENT, errno.ECONNREFUSED):
            return (
                f"cannot reach the agent: nothing listens on {where}; "
                f"is `supervisor start --run-dir {self.run_dir}` running?"
            )
        return f"cannot reach the agent: {where}: {os.strerror(code)}; commands run as the user who started it"

    # Frames

    @contextmanager
    def _connect(
        self, kind: int, path: Path, topics: Iterable[bytes] = ()
    ) -> Iterator[tuple[zmq.Socket[bytes], zmq.Socket[bytes]]]:
        """Connect to a path. Yields the socket and a monitor socket, which is readable when the peer disconnects."""
        if self._context is None:
            self._context = zmq.Context()
        with self._context.socket(kind) as peer:
            peer.set(zmq.LINGER, 0)
            peer.set(zmq.RECONNECT_IVL, 5)
            peer.set(zmq.RECONNECT_IVL_MAX, 100)
            for topic in topics:
                peer.subscribe(topic)
            gone = peer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            try:
                peer.connect(f"ipc://{path}")
                yield peer, gone
            finally:
                peer.disable_monitor()

    @staticmethod
    def _decode_answer(frames: list[bytes], request: Request[R]) -> R:
        if len(frames) != 2:
            raise ProtocolError(f"an answer of {len(frames)} frames, expected header and body")
        header: Header = codec.decode_header(frames[0])
        if header.kind == Kind.ERROR:
            raise from_failure(codec.decode(frames[1], Failure))
        answer: R = codec.decode(frames[1], reply_type(type(request)))  # type: ignore[assignment]
        return answer

    def _subscribe(
        self, paths: Mapping[str, Path], topics: Iterable[bytes] = (b"",)
    ) -> Iterator[tuple[str, list[bytes]]]:
        """Frames of several publishers by their names; topics are the beginnings of the first frames.

        A publisher that ends is waited for, and ZeroMQ connects again by itself: an actor restarts, and a supervisor
        executes its next self. Raises CannotReach when the supervisor has ended.
        """
        with contextlib.ExitStack() as stack:
            poller = zmq.Poller()
            owners: dict[Any, tuple[str, bool]] = {}
            for name, path in paths.items():
                stream, gone = stack.enter_context(self._connect(zmq.SUB, path, topics))
                for socket_, is_stream in ((stream, True), (gone, False)):
                    poller.register(socket_, zmq.POLLIN)
                    owners[socket_] = (name, is_stream)
            away: set[str] = set()
            while True:
                found = poller.poll(LOOK_MS if away else None)
                for ready, _ in found:
                    name, is_stream = owners[ready]
                    frames = ready.recv_multipart()
                    if is_stream:
                        away.discard(name)
                        yield name, frames
                    else:
                        away.add(name)
                if away:
                    self._wait_for_supervisor(self._connect_error("supervisor"), time.monotonic() + AWAY_S)


def _wait(peer: zmq.Socket[bytes], gone: zmq.Socket[bytes], timeout_ms: int | None = None) -> dict[Any, int]:
    poller = zmq.Poller()
    poller.register(peer, zmq.POLLIN)
    poller.register(gone, zmq.POLLIN)
    return dict(poller.poll(timeout_ms))
