"""Hostile clients of every socket and of the remote console: no command gets through, no actor stops.

`rows` runs each attack against a real agent. NODEVISOR_FRAMES is the number of frames for each socket.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import zmq

from actors.remote_console import keys, limits
from proto.agent import console_roles, registry
from proto.agent.actor import Describe
from proto.agent.remote_console import ConsoleKey
from proto.agent.supervisor import ListActors, RestartActor
from proto.wire import codec
from proto.wire.envelope import Kind
from proto.wire.errors import ActorError, Refused
from proto.wire.message import Request, types_for
from supervisor.sockets.client import CannotReach, Client
from supervisor.sockets.remote import RemoteClient
from tests.agent.agent import Agent
from tests.agent.embedded import embedded_agent
from tests.fuzz.guard import MOST_GROWTH_BYTES
from tests.fuzz.mutation import mutations
from tests.fuzz.parsers.wire import TARGETS
from tests.fuzz.sockets import attacks
from tests.harness import Stalls, wait_for
from tests.ports import free_port

FRAMES = int(os.environ.get("NODEVISOR_FRAMES", "300"))
ANSWER_S = 60.0
MOST_LOGGED_BYTES = 1 << 20
"""For each attack."""
MOST_RESTART_S = 1.0
"""From the kill of an actor to its Ready. Without an attack it takes some 30 ms, on a loaded machine 200."""
GREETING = b"\xff" + b"\0" * 8 + b"\x7f\x03\x01CURVE" + b"\0" * 47


class Site:
    """The agent under attack, and its remote console."""

    def __init__(self, agent: Agent, port: int) -> None:
        self.agent, self.port = agent, port
        self.folder = keys.directory(str(agent.root_dir))
        self.place = f"tcp://127.0.0.1:{port}"
        self._keys: dict[str, ConsoleKey] = {}
        self.killed: set[str] = set()
        """Actors that an attack has killed itself."""

    def key(self, role: str) -> ConsoleKey:
        if role not in self._keys:
            self._keys[role] = keys.add(self.folder, f"attack-{role}", role)  # type: ignore[arg-type]
        return self._keys[role]

    def counts(self) -> dict[str, int]:
        with Client(self.agent.run_dir) as client:
            found: dict[str, int] = client.ask("remote_console", Describe(), ANSWER_S).state
        return found

    def pids(self) -> dict[str, int]:
        return {name: row["pid"] for name, row in self.agent.rows().items()}


Attack = Callable[[Site, int], str]
"""Returns what it measured. Raises AssertionError when it got in."""


def rows(frames: int = FRAMES) -> list[dict[str, Any]]:
    """A row for each attack: its name, what was measured, and whether the agent withstood."""
    port = free_port()
    with embedded_agent(f"--console-address=127.0.0.1:{port}") as agent:
        site = Site(agent, port)
        return [row_of(site, name, attack, frames) for name, attack in ATTACKS.items()]


def row_of(site: Site, name: str, attack: Attack, frames: int) -> dict[str, Any]:
    """Run one attack, then look whether the agent is unharmed."""
    before, logged, began = site.pids(), site.agent.log.stat().st_size, time.monotonic()
    sizes = {actor: _resident(pid) for actor, pid in before.items()}
    try:
        measured = attack(site, frames)
        _check_unharmed(site, before, sizes, logged)
    except (AssertionError, ActorError) as error:
        return {"row": f"attack: {name}", "measured": str(error)[:500], "passed": False}
    return {"row": f"attack: {name}", "measured": f"{measured}; {time.monotonic() - began:.0f} s", "passed": True}


def _check_unharmed(site: Site, before: dict[str, int], sizes: dict[str, int], logged: int) -> None:
    with Client(site.agent.run_dir) as client:
        for name in before.keys() - {"supervisor", "forkserver"}:
            client.ask(name, Describe(), ANSWER_S)
    after = site.pids()
    kept = before.keys() - site.killed
    assert {name: after.get(name) for name in kept} == {name: before[name] for name in kept}, (
        f"an actor was restarted; log: {site.agent.log}"
    )
    grown = {name: _resident(before[name]) - sizes[name] for name in kept}
    assert max(grown.values()) <= MOST_GROWTH_BYTES, f"processes have grown by these bytes: {grown}"
    written = site.agent.log.stat().st_size - logged
    assert written <= MOST_LOGGED_BYTES, f"{written} bytes were logged"


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# On the agent's own sockets


def _frames_on(site: Site, count: int, wanted: Callable[[Path], bool]) -> str:
    paths = [path for path in attacks.sockets(site.agent.run_dir) if wanted(path)]
    assert paths, "there is no such socket"
    for number, path in enumerate(paths):
        attacks.send_frames(path, count, number)
    return f"{count:,} frames on each of {len(paths)} sockets"


def control_frames(site: Site, count: int) -> str:
    return _frames_on(site, count, lambda path: path.name == "control.sock")


def event_frames(site: Site, count: int) -> str:
    return _frames_on(site, count, lambda path: path.name == "world.sock")


def inbox_frames(site: Site, count: int) -> str:
    names = {f"{name}.sock" for name in registry.NAMES}
    return _frames_on(site, count, lambda path: path.name in names)


def tap_frames(site: Site, count: int) -> str:
    return _frames_on(site, count, lambda path: path.suffix == ".tap")


# On the remote console


def remote_bytes(site: Site, count: int) -> str:
    """Frames without a key: other protocols, greetings with garbage, and handshakes that break off."""
    source = random.Random(count)
    before = site.counts()["commands"]
    sent = 0
    while sent < count:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", site.port), 5) as client:
            client.settimeout(0.2)
            client.sendall(source.choice((GREETING, b"", b"GET / HTTP/1.1\r\n\r\n", source.randbytes(64))))
            for _ in range(min(count - sent, 2000)):
                size = source.randrange(200)
                client.sendall(bytes([source.choice((0, 1, 4, 2, 255)), size]) + source.randbytes(size))
                sent += 1
        sent += 1
    assert site.counts()["commands"] == before, "bytes without a key became a command"
    return f"{sent:,} frames without a key, 0 commands"


def remote_frames(site: Site, count: int) -> str:
    """Mutated requests with the key of the greatest role."""
    source = random.Random(count)
    bodies = mutations(next(target for target in TARGETS if target.name == "message-body"), 1)
    names = sorted(name for name in types_for("status") if name not in attacks.ENDS)
    sent = 0
    while sent < count:
        try:
            with RemoteClient(site.place, site.key("debug")) as client:
                connection = client._connection()
                connection._socket.set(zmq.SNDTIMEO, 30_000)
                for _ in range(min(count - sent, 5000)):
                    connection._socket.send_multipart(_message(source, names, next(bodies)))
                    sent += 1
                    while connection._socket.poll(0):
                        connection._socket.recv_multipart()
        except (CannotReach, zmq.Again):
            sent += 1  # the console has ended the connection: the next one goes on
    with RemoteClient(site.place, site.key("debug")) as client:
        wait_for(lambda: _answers(client), 60, "the console answers again")
    return f"{sent:,} frames with a key"


def _message(source: random.Random, names: list[str], body: bytes) -> list[bytes]:
    target = source.choice((b"status", b"probe", b"supervisor", b"tap:status", b"world", b"\xff", source.randbytes(9)))
    header = codec.encode_header(source.choice(list(Kind)), source.choice(names), "console", 0, source.randrange(9))
    header = source.choice((header, header, header[:-2], source.randbytes(20), header * 30))
    frames = source.choice(([target, header, body], [target, header, body[2:]], [target], [header, body], [b""] * 9))
    return [frame[: limits.MOST_FRAME_BYTES] for frame in frames]


def _answers(client: RemoteClient) -> bool:
    try:
        return bool(client.ask("supervisor", ListActors(with_memory=False)))
    except Refused:
        return False


def wrong_keys(site: Site, count: int) -> str:
    """Unknown keys, a known key with another secret, and a client that expects another server."""
    tries = max(6, min(count // 500, 200))
    real, refused = site.key("debug"), 0
    for number in range(tries):
        public, secret = (one.decode() for one in zmq.curve_keypair())
        changes = ({"public": public, "secret": secret}, {"secret": secret}, {"server": public})[number % 3]
        try:
            with RemoteClient(site.place, msgspec.structs.replace(real, **changes)) as client:
                client.actors()
        except CannotReach:
            refused += 1
    assert refused == tries, f"{tries - refused} of {tries} wrong keys got in"
    return f"{tries} wrong keys, 0 in"


def roles(site: Site, _: int) -> str:
    """Every message type beyond the roles read and operate, to every actor."""
    forbidden = 0
    for role in ("read", "operate"):
        with RemoteClient(site.place, site.key(role)) as client:
            connection = client._connection()
            for target, name in _beyond(role):
                header = codec.encode_header(Kind.ASK, name, "console", 0, 5)
                while True:
                    connection.send([target.encode(), header, b"\x80"])
                    answer = connection.receive(ANSWER_S)
                    assert answer is not None, f"no answer to {target} {name}"
                    if b"TooManyRequests" not in answer[2]:
                        break
                    time.sleep(0.05)
                assert b"Forbidden" in answer[2], f"{role} may send {name} to {target}: {answer[2]!r}"
                forbidden += 1
    return f"{forbidden} requests beyond a role, 0 carried out"


def _beyond(role: str) -> Iterator[tuple[str, str]]:
    for target in ("supervisor", *sorted(registry.NAMES - {"remote_console"})):
        for name, kind in types_for(target).items():
            if issubclass(kind, Request) and not console_roles.allows(role, name):
                yield target, name


def oversized(site: Site, _: int) -> str:
    """A frame, and a message of endless frames, beyond the bounds."""
    for frames in ([b"status", b"x" * (limits.MOST_FRAME_BYTES + 1), b""], [b"x" * 60_000] * 40):
        with RemoteClient(site.place, site.key("debug")) as client:
            connection = client._connection()
            connection._socket.send_multipart(frames)
            deadline = time.monotonic() + 30
            with contextlib.suppress(CannotReach):
                while time.monotonic() < deadline:
                    connection.receive(1)
                raise AssertionError(f"the connection lives on after {sum(map(len, frames))} bytes")
    return "2 kinds of oversized messages, both connections ended"


def slow_clients(site: Site, _: int) -> str:
    """Clients that do not read, and connections that send nothing, while another client is answered."""
    silent = [socket.create_connection(("127.0.0.1", site.port)) for _ in range(30)]
    try:
        with RemoteClient(site.place, site.key("debug")) as slow, RemoteClient(site.place, site.key("read")) as quick:
            connection = slow._connection()
            header = codec.encode_header(Kind.ASK, "Describe", "console", 0, 7)
            for _ in range(150):
                connection.send([b"status", header, codec.encode(Describe())])
            took = []
            for _ in range(20):
                began = time.monotonic()
                quick.ask("supervisor", ListActors(with_memory=False), ANSWER_S)
                took.append(time.monotonic() - began)
    finally:
        for one in silent:
            one.close()
    assert sorted(took)[10] < 1.0, f"another client waits: {took}"
    return f"another client is answered in {sorted(took)[10] * 1000:.0f} ms (median)"


def readers(site: Site, _: int) -> str:
    """A reader's connections that all ask for the actors' memory without end, while actors are killed."""
    over = threading.Event()
    clients = [RemoteClient(site.place, site.key("read")) for _ in range(limits.MOST_PER_KEY)]
    threads = [threading.Thread(target=_ask_for_memory, args=(client, over), daemon=True) for client in clients]
    for client, thread in zip(clients, threads, strict=True):
        client.actors()
        thread.start()
    try:
        answered = site.counts()["commands"]
        wait_for(lambda: site.counts()["commands"] > answered + 64, ANSWER_S, "the readers are answered")
        with Stalls() as machine:
            took = sorted(_restart_s(site, name) for name in ("events", "oom", "stats"))
        answered = site.counts()["commands"] - answered
    finally:
        over.set()
        for thread in threads:
            thread.join(ANSWER_S)
        for client in clients:
            client.close()
    within_s = MOST_RESTART_S + machine.longest_s
    assert took[1] < within_s, f"killed actors are ready after {took} s, beside {answered} requests"
    return f"a killed actor is ready after {took[1] * 1000:.0f} ms (median), beside {answered} requests"


def _ask_for_memory(client: RemoteClient, over: threading.Event) -> None:
    connection = client._connection()
    message = [b"supervisor", codec.encode_header(Kind.ASK, "ListActors", "console", 0, 7), codec.encode(ListActors())]
    for _ in range(limits.MOST_ASKS):
        connection.send(message)
    while not over.is_set():
        answer = connection.receive(ANSWER_S)
        if answer is not None and b"TooManyRequests" in answer[2]:
            over.wait(1 / limits.REQUESTS_PER_S)
        connection.send(message)


def _restart_s(site: Site, name: str) -> float:
    """Seconds from the kill of an actor until its next incarnation is ready."""
    row = site.agent.rows()[name]
    site.killed.add(name)
    os.kill(row["pid"], signal.SIGKILL)
    began = time.monotonic()

    def is_back() -> bool:
        now = site.agent.rows().get(name, row)
        return now["incarnation"] > row["incarnation"] and now["state"] == "ready"

    wait_for(is_back, ANSWER_S, f"{name} is ready again")
    return time.monotonic() - began


def replays(site: Site, _: int) -> str:
    """The bytes of a whole session that sent a command, again."""
    with _Recorder(site.port) as recorder:
        place = f"tcp://127.0.0.1:{recorder.port}"
        with RemoteClient(place, site.key("debug")) as client:
            client.ask("supervisor", ListActors(with_memory=False), ANSWER_S)
    commands = site.counts()["commands"]
    assert len(recorder.recorded) > 300, "nothing was recorded"
    for _ in range(5):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", site.port)) as again:
            again.settimeout(1.0)
            again.sendall(recorder.recorded)
            while again.recv(4096):
                pass
    assert site.counts()["commands"] == commands, "a replayed command was carried out"
    return f"5 replays of {len(recorder.recorded)} bytes, 0 commands"


class _Recorder:
    """A relay that keeps the client's bytes."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._to = port
        self.recorded = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> _Recorder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._thread.join(5)

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        with client, socket.create_connection(("127.0.0.1", self._to)) as server, contextlib.suppress(OSError):
            back = threading.Thread(target=_copy, args=(server, client), daemon=True)
            back.start()
            while data := client.recv(4096):
                self.recorded += data
                server.sendall(data)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(4096):
            target.sendall(data)


def revoked_while_connected(site: Site, _: int) -> str:
    """A key that is revoked while its client is connected."""
    key = keys.add(site.folder, "attack-revoked", "debug")
    with RemoteClient(site.place, key) as client:
        client.ask("supervisor", ListActors(with_memory=False), ANSWER_S)
        before = site.pids()
        keys.revoke(site.folder, key.name)
        with contextlib.suppress(ActorError):
            client.ask("supervisor", RestartActor(name="probe"), 5.0)
    assert site.pids() == before, "a revoked key restarted an actor"
    return "0 commands after the revocation"


ATTACKS: dict[str, Attack] = {
    "frames on the control socket": control_frames,
    "frames on the event stream": event_frames,
    "frames on the inboxes": inbox_frames,
    "frames on the taps": tap_frames,
    "bytes without a key on the remote console": remote_bytes,
    "frames with a key on the remote console": remote_frames,
    "wrong keys": wrong_keys,
    "roles": roles,
    "oversized messages": oversized,
    "slow and silent clients": slow_clients,
    "readers of memory": readers,
    "replays": replays,
    "key revoked while connected": revoked_while_connected,
}


def main() -> int:
    """Print the rows; 1 when one failed."""
    found = rows()
    for row in found:
        print("ok  " if row["passed"] else "FAIL", row["row"], "-", row["measured"], flush=True)
    return 0 if all(row["passed"] for row in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
