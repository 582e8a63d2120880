"""One actor in a process of its own, with the test as its supervisor and as every peer.

`ActorProcess` runs the real child entry on a private run directory. The test side binds control.sock and world.sock
as the supervisor does. It can stand in for peers: it captures and answers the actor's messages.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import zmq

from actors._base.messaging.futures import Future
from actors._base.messaging.receipts import Received
from actors._cgroup import fs
from actors._cgroup.hierarchy import hierarchy
from actors._cri.call import Call
from actors._cri.client import Cri
from actors._cri.errors import CriError
from actors._host.files import mounts
from proto.agent.actor import CheckReceived, Receipt
from proto.agent.settings import Settings
from proto.agent.supervisor import PeerState, PeerStates, Ready
from proto.pods.pleg import CallRuntime, RuntimeAnswer
from proto.wire import codec
from proto.wire.envelope import Header, Kind
from proto.wire.errors import Failure, Refused, from_failure, to_failure
from proto.wire.message import Message, Request, reply_type, type_named

R = TypeVar("R", bound=Message)
M = TypeVar("M", bound=Message)

HEAR_S, HEAR_TURNS = 1.0, 20
"""Longest wait for stand-ins that are busy with a test's own answer, in steps.

A machine that stands still takes one step: after it the asker may be woken before the stand-ins.
"""


PATIENCE = float(os.environ.get("NODEVISOR_TEST_PATIENCE", "1"))
"""Factor of every `wait_for`, for a guest under emulation. Promised limits are not tested there."""


STEP_S = 0.01
"""Between two looks of `Stalls`."""


def wait_for(condition: Callable[[], Any], timeout_s: float = 10.0, what: str = "") -> Any:
    """The first true value of `condition`, polled; fails the test past the deadline."""
    deadline = time.monotonic() + timeout_s * PATIENCE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s * PATIENCE:g} s: {what or condition}")
        time.sleep(0.005 * PATIENCE)


def alive(pid: int) -> bool:
    """Return True when the process runs: neither gone nor a zombie.

    An orphan stays a zombie under a first process that does not reap, as in some containers.
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def stop_process(pid: int) -> None:
    """Stop a process with SIGSTOP and wait until each of its threads stands still.

    kill(2) returns before that. A thread on another CPU may still answer a message.
    """
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: _stopped(pid), what=f"process {pid} is stopped")


def _stopped(pid: int) -> bool:
    try:
        states = [task.read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread has ended meanwhile
        return False
    return bool(states) and all(state == "T" for state in states)


def unmount(path: Path) -> None:
    """Unmount a file system once no process holds it. A process that has just ended may keep it for a moment."""

    def unmounted() -> bool:
        try:
            mounts.unmount(str(path))
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        return True

    wait_for(unmounted, 20, f"no process holds {path}")


class Stalls(threading.Thread):
    """When the machine kept a thread from running that had nothing to wait for. A context manager.

    Limits of time hold beyond the longest of them: machines that tests run on may stand still for a second. A test's
    thread may go on before this one after it, so what lasts until the question counts, too.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._longest_s = 0.0
        self._spans: list[tuple[float, float]] = []
        self._since = math.inf
        """From when on this thread has not run; infinity outside of the block."""
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            time.sleep(STEP_S)
            now = time.monotonic()
            late_s = now - self._since - STEP_S
            self._longest_s = max(self._longest_s, late_s)
            if late_s > STEP_S:
                self._spans.append((self._since, now))
            self._since = now  # last: until then it counts as lasting

    @property
    def longest_s(self) -> float:
        """The longest so far, in seconds."""
        return max(self._longest_s, time.monotonic() - self._since - STEP_S)

    def between(self, began: float, ended: float) -> bool:
        """Return True when the machine stood still then."""
        lasting = (self._since, time.monotonic())
        spans = [*self._spans, *([lasting] if lasting[1] - lasting[0] > 2 * STEP_S else [])]
        return any(began < until and since < ended for since, until in spans)

    def __enter__(self) -> Stalls:
        self._since = time.monotonic()
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self.join()
        self._since = math.inf


class Peer:
    """A stand-in for one actor: keeps what it is told, answers what it is asked by `answers[type]`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.incarnation = 1
        self.received: list[Message] = []
        self.answers: dict[type[Message], Callable[[Any], Message | Future[Message]]] = {}
        self.receipts = Received()
        self._addressed = 0
        """The incarnation that the last tell was for. Tests publish others than `incarnation`."""

    def receive(self, header: Header) -> None:
        """Note a message as an actor's bus does."""
        if header.kind == Kind.TELL and header.correlation != self._addressed:
            self._addressed, self.receipts = header.correlation, Received()
        self.receipts.add(header, self._addressed)

    def of(self, kind: type[M]) -> list[M]:
        """Messages of one type so far, oldest first."""
        return [message for message in list(self.received) if isinstance(message, kind)]

    def handle(self, message: Message) -> Message | Future[Message] | Exception | None:
        self.received.append(message)
        answer = self.answers.get(type(message))
        if answer is None:
            return None
        try:
            return answer(message)
        except Exception as error:
            return error


class ActorProcess:
    """The actor under test. Use as a context manager; `ask` and `tell` reach it, `peers[name]` are its stand-ins."""

    def __init__(
        self,
        name: str,
        settings: Settings | None = None,
        peers: tuple[str, ...] = (),
        *,
        prelude: str = "",
        **overrides: Any,
    ) -> None:
        self.name = name
        self.prelude = prelude
        """Python run in the child first; tests of the base put an actor of their own into sys.modules with it."""
        self.dir = tempfile.mkdtemp(prefix="nv-", dir="/tmp")
        base = settings or Settings()
        fields = {field: getattr(base, field) for field in base.__struct_fields__}
        fields |= {"run_dir": self.dir, "root_dir": f"{self.dir}/root", "node_name": "node"}
        for field, own in {"pod_logs_dir": f"{self.dir}/logs", "container_logs_dir": f"{self.dir}/links"}.items():
            fields[field] = own if fields[field] == getattr(Settings(), field) else fields[field]
        self._own_cgroup_root = f"/{os.path.basename(self.dir)}"
        if fields["cgroup_root"] == Settings().cgroup_root:
            fields["cgroup_root"] = self._own_cgroup_root  # not where another agent on this machine has pods
        fields["make_iptables_util_chains"] = False  # the machine's packet filter is not the tests' to change
        fields |= overrides
        if "objects" in peers and not fields["kubeconfig"]:
            fields["objects_dir"] = fields["objects_dir"] or f"{self.dir}/objects"  # only then it is asked
        self.settings = Settings(**fields)
        self.incarnation = 0
        self.pid = 0
        self.ready = threading.Event()
        self._listens = threading.Event()
        """Its subscription to the supervisor's events is here: what is published reaches it."""
        self.peers = {peer: Peer(peer) for peer in peers}
        self.supervisor = Peer("supervisor")
        if "pleg" in self.peers:
            self.peers["pleg"].answers[CallRuntime] = self._relay
        self._runtime: Cri | None = None
        self._context = zmq.Context()
        self._stop = threading.Event()
        self._asks = 0
        self._hearing: deque[threading.Event] = deque()
        self._exits = 0
        self._lines: dict[int, tuple[int, zmq.Socket[bytes]]] = {}
        """By thread: a connection to the actor, and how often that had ended when it was made."""
        self._lock = threading.Lock()

    def _relay(self, call: CallRuntime) -> Future[Message]:
        """Relay calls to the runtime as pleg does, many at a time."""
        if self._runtime is None:
            self._runtime = Cri(self.settings.container_runtime_endpoint)
        answer: Future[Message] = Future()

        def answered(relayed: Call[bytes]) -> None:
            try:
                answer.set(RuntimeAnswer(response=relayed.result(0)))
            except CriError as error:
                answer.set_error(Refused(error.code, error.details))

        self._runtime.relay(call.rpc, call.request, call.timeout_s).add_done_callback(answered)
        return answer

    def __enter__(self) -> ActorProcess:
        self._supervisor_r, self._supervisor_w = os.pipe()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._control = self._bind("control", zmq.ROUTER)
        self._events = self._bind("world", zmq.XPUB)
        self._events.set(zmq.XPUB_VERBOSE, 1)
        self._inboxes = {peer: self._bind(peer, zmq.ROUTER) for peer in self.peers}
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _bind(self, name: str, kind: int) -> Any:
        socket = self._context.socket(kind)
        socket.set(zmq.LINGER, 0)
        socket.bind(f"ipc://{self.dir}/{name}.sock")
        return socket

    def start(self, *, wait_ready_s: float = 30.0) -> None:
        """Start the next incarnation and wait until it is ready."""
        self.incarnation += 1
        self.ready.clear()
        self._listens.clear()
        code = self.prelude + (
            "import sys, msgspec; from proto.agent.settings import Settings; from actors._base.process import child; "
            "settings = msgspec.json.decode(sys.argv[3], type=Settings); "
            "child.main(sys.argv[1], int(sys.argv[2]), settings, int(sys.argv[4]))"
        )
        self.pid = os.posix_spawn(
            sys.executable,
            [
                sys.executable,
                "-c",
                code,
                self.name,
                str(self.incarnation),
                msgspec.json.encode(self.settings).decode(),
                str(self._supervisor_r),
            ],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, self._supervisor_r, self._supervisor_r)],
        )
        wait_ready_s *= PATIENCE
        if wait_ready_s:
            assert self.ready.wait(wait_ready_s), f"{self.name} not ready within {wait_ready_s} s"
            assert self._listens.wait(wait_ready_s), f"{self.name} has not subscribed within {wait_ready_s} s"

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait_exit()

    def wait_exit(self, timeout_s: float = 10.0) -> int:
        """The exit status (negative: signal)."""

        def reaped() -> tuple[int, int] | None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            return (pid, status) if pid else None

        _, status = wait_for(reaped, timeout_s, f"{self.name} exits")
        self.pid = 0
        self._exits += 1
        return os.waitstatus_to_exitcode(status)

    def restart(self) -> None:
        """kill -9 and the next incarnation."""
        self.kill()
        self.start()

    def __exit__(self, *exc: object) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGTERM)
            try:
                self.wait_exit(5)
            except AssertionError:
                self.kill()
        self._stop.set()
        self._thread.join()
        os.close(self._supervisor_r)
        os.close(self._supervisor_w)
        os.close(self._wake)
        if self._runtime is not None:
            self._runtime.close()
        self._context.destroy(linger=0)
        if self.settings.cgroup_root == self._own_cgroup_root:
            with contextlib.suppress(OSError):  # not mounted, or read-only: then there is none
                fs.remove(self._own_cgroup_root, hierarchy())
        shutil.rmtree(self.dir, ignore_errors=True)

    # Messages

    def tell(self, message: Message, source: str = "test") -> None:
        """Tell the actor, as `source`."""
        self._line().send_multipart(
            [codec.encode_header(Kind.TELL, type(message).__name__, source, 0), codec.encode(message)]
        )

    def ask(self, request: Request[R], timeout_s: float = 10.0, source: str = "test") -> R:
        """Ask the actor; raises what the answer says."""
        line = self._line()
        with self._lock:
            self._asks += 1
            number = self._asks
        head = codec.encode_header(Kind.ASK, type(request).__name__, source, 0, number)
        line.send_multipart([head, codec.encode(request)])
        deadline = time.monotonic() + timeout_s
        while True:
            if not line.poll(max(0, int((deadline - time.monotonic()) * 1000))):
                self._hang_up()  # an ask that is given up is not to reach the next life
                raise AssertionError(f"{self.name} did not answer {type(request).__name__}")
            header_frame, body = line.recv_multipart()
            header = codec.decode_header(header_frame)
            if header.correlation == number:
                break
        self._hear()
        if header.kind == Kind.ERROR:
            raise from_failure(codec.decode(body, Failure))
        answer: R = codec.decode(body, reply_type(type(request)))  # type: ignore[assignment]
        return answer

    def _hear(self) -> None:
        """Until the stand-ins have what came before: what an actor tells before it answers, they have been told."""
        if threading.current_thread() is self._thread:
            return
        heard = threading.Event()
        self._hearing.append(heard)
        os.eventfd_write(self._wake, 1)
        for _ in range(HEAR_TURNS):
            if heard.wait(HEAR_S / HEAR_TURNS):
                return

    def _line(self) -> zmq.Socket[bytes]:
        """This thread's connection to the actor's present life, or to its next one while it has none.

        One for all that a thread says, as a peer's bus has it: ZeroMQ keeps the order of what goes through one
        connection. Of two messages through one each, some in a thousand change places.
        """
        exits, line = self._lines.get(threading.get_ident(), (-1, None))
        if line is not None and exits == self._exits:
            return line
        self._hang_up()
        line = self._context.socket(zmq.DEALER)
        line.set(zmq.LINGER, 1000)
        line.set(zmq.SNDHWM, 0)
        line.connect(f"ipc://{self.dir}/{self.name}.sock")
        self._lines[threading.get_ident()] = (self._exits, line)
        return line

    def _hang_up(self) -> None:
        """Close this thread's connection; what it could not bring to the actor is lost."""
        _, line = self._lines.pop(threading.get_ident(), (0, None))
        if line is not None:
            line.close(linger=0)

    def publish(self, event: Message) -> None:
        """Publish an event as the supervisor (Started, Exited, PeerStates)."""
        self._to_publish.append(event)

    _to_publish: list[Message] = []

    def _serve(self) -> None:
        self._late_answers: deque[tuple[Any, bytes, Header, Peer, Message | Exception]] = deque()
        self._to_publish = []
        poller = zmq.Poller()
        sockets = {
            self._control: None,
            self._events: None,
            **{socket: self.peers[n] for n, socket in self._inboxes.items()},
        }
        for socket in sockets:
            poller.register(socket, zmq.POLLIN)
        poller.register(self._wake, zmq.POLLIN)
        while not self._stop.is_set():
            ready, heard = dict(poller.poll(20)), []
            if self._wake in ready:
                os.eventfd_read(self._wake)
                heard = [self._hearing.popleft() for _ in range(len(self._hearing))]
                ready = dict(poller.poll(0))  # what has come by now
            for socket in ready.keys() & sockets.keys():
                for frames in _arrived(socket):
                    self._take(socket, sockets[socket], frames)
            while self._late_answers:
                self._answer(*self._late_answers.popleft())
            while self._to_publish:
                self._send_event(self._to_publish.pop(0))
            for event in heard:
                event.set()

    def _take(self, socket: Any, peer: Peer | None, frames: list[bytes]) -> None:
        if socket is self._control:
            self._from_child(frames)
        elif peer is not None:
            self._to_peer(socket, peer, frames)
        elif frames[0][:1] == b"\x01":
            self._send_event(self.peer_states())
            self._listens.set()

    def peer_states(self) -> PeerStates:
        """Every stand-in is in service, in incarnation 1."""
        return PeerStates(peers=tuple(PeerState(name=name, incarnation=1, ready=True) for name in self.peers))

    def _send_event(self, event: Message) -> None:
        name = type(event).__name__
        self._events.send_multipart(
            [name.encode(), codec.encode_header(Kind.TELL, name, "supervisor", 0), codec.encode(event)]
        )

    def _from_child(self, frames: list[bytes]) -> None:
        header = codec.decode_header(frames[1])
        message = codec.decode(frames[2], type_named("supervisor", header.type))
        if header.kind == Kind.ASK or not isinstance(message, Ready):
            self._to_peer(self._control, self.supervisor, frames)
        elif header.incarnation == self.incarnation:
            self.ready.set()

    def _to_peer(self, socket: Any, peer: Peer, frames: list[bytes]) -> None:
        identity, head, body = frames
        header = codec.decode_header(head)
        peer.receive(header)
        if header.type == CheckReceived.__name__:
            unknown = peer.receipts.unknown(header, codec.decode(body, CheckReceived).asks)
            receipt = Receipt(tells=peer.receipts.tells(header), unknown_asks=unknown)
            self._answer(socket, identity, header, peer, receipt)
            return
        result = peer.handle(codec.decode(body, type_named(peer.name, header.type)))
        if header.kind != Kind.ASK or result is None:
            return
        if isinstance(result, Future):
            result.add_done_callback(
                lambda future: self._late_answers.append((socket, identity, header, peer, _outcome(future)))
            )
        else:
            self._answer(socket, identity, header, peer, result)

    def _answer(self, socket: Any, identity: bytes, header: Header, peer: Peer, result: Message | Exception) -> None:
        if isinstance(result, Exception):
            kind, name, payload = Kind.ERROR, "Failure", codec.encode(to_failure(result))
        else:
            kind, name, payload = Kind.REPLY, type(result).__name__, codec.encode(result)
        socket.send_multipart(
            [identity, codec.encode_header(kind, name, peer.name, peer.incarnation, header.correlation), payload]
        )
        peer.receipts.answered(header)


def _arrived(socket: zmq.Socket[bytes]) -> Iterator[list[bytes]]:
    """Return the messages received so far, bounded so that a flood does not delay others."""
    for _ in range(1000):
        try:
            yield socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return


def _outcome(future: Future[Message]) -> Message | Exception:
    try:
        return future.result(0)
    except Exception as error:
        return error


@contextmanager
def actor_process(name: str, peers: tuple[str, ...] = (), **overrides: Any) -> Iterator[ActorProcess]:
    """The actor under test, ready: `with actor_process("probe", peers=("pod_workers",)) as probe:`."""
    with ActorProcess(name, None, peers, **overrides) as process:
        yield process
