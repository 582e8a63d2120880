"""Targets: what a peer, a client, a container or a server sends over a connection."""

from __future__ import annotations

import datetime
import enum
import functools
import re
import time
import typing
import zlib
from typing import Any

import h11
import msgpack
import msgspec
from wsproto.connection import Connection as WebSocket
from wsproto.connection import ConnectionType
from wsproto.events import BytesMessage, Ping, TextMessage
from wsproto.frame_protocol import CloseReason

from actors._base import inspection
from actors._base.messaging import tracing
from actors._kube.connection.http1 import Connection, header
from actors._logs.entries import Formatter
from actors._net.streaming import spdy
from actors.oom import policy
from actors.oom.kills import KillFinder
from actors.oom.record import parse_record
from actors.remote_console import limits
from actors.server.base import ranges
from actors.server.base.http import BadRequest, parse_target
from actors.server.routes import logquery
from actors.server.routes.zpages import version_of
from proto.agent import recording, registry
from proto.wire import codec
from proto.wire.envelope import TRACEPARENT, Kind
from proto.wire.errors import ProtocolError, Refused
from proto.wire.message import Message, prepare_types, types_for
from supervisor.cli.recorder.record import described
from tests.fuzz.target import Target

MSGPACK = (
    b"\xc1",
    b"\xdf\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\x91" * 2000,
    b"\x81\xa1a",
)


@functools.cache
def _types() -> list[type[Message]]:
    """Every message type, in the order of its receiver and name."""
    receivers = sorted({*registry.NAMES, "actor", "supervisor"})
    found = [kind for receiver in receivers for kind in types_for(receiver).values()]
    prepare_types()
    return list(dict.fromkeys(found))


def example(kind: Any, depth: int = 0) -> Any:
    """A value of any type that messages have, as plain as msgpack carries it."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if isinstance(kind, type):
        return _class(kind, depth)
    return _generic(typing.get_origin(kind), typing.get_args(kind), depth)


def _class(kind: type, depth: int) -> Any:
    if issubclass(kind, enum.Enum):
        return next(iter(kind)).value
    return _struct(kind, depth) if issubclass(kind, msgspec.Struct) else None


def _generic(origin: Any, arguments: tuple[Any, ...], depth: int) -> Any:
    if depth > 4 or not arguments:
        return {} if origin is dict else []
    if origin in (tuple, list, frozenset, set):
        return [example(arguments[0], depth + 1)]
    if origin is dict:
        return {example(arguments[0]): example(arguments[1], depth + 1)}
    if origin is typing.Literal:
        return arguments[0]
    present = [one for one in arguments if one is not type(None)]  # a union, or an annotated type
    return example(present[0], depth)


_PLAIN: dict[Any, Any] = {
    str: "text", int: 1, float: 1.5, bool: True, bytes: b"\x00\xff", Any: None, type(None): None,
    datetime.datetime: "2026-01-01T00:00:00Z",
}  # fmt: skip


def _struct(kind: type[msgspec.Struct], depth: int) -> dict[str, Any]:
    if depth > 4:
        return {}
    hints = typing.get_type_hints(kind, include_extras=True)
    names = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    return {encoded: example(hints[name], depth + 1) for name, encoded in names}


def _body(data: bytes) -> None:
    """The first two bytes choose the message's type."""
    types = _types()
    kind = types[int.from_bytes(data[:2], "big") % len(types)]
    try:
        codec.decode(data[2:], kind)
    except ProtocolError as error:
        problem = str(error)
    else:
        return
    assert len(problem) < 10_000, f"an error of {len(problem)} characters"


def _header(data: bytes) -> None:
    try:
        header = codec.decode_header(data)
    except ProtocolError:
        return
    assert len(header.type) <= 1024


def _spdy(data: bytes) -> None:
    session = spdy.Session()
    try:
        for start in range(0, len(data), 1000):
            session.feed(data[start : start + 1000])
    except spdy.ProtocolError:
        return


def _spdy_seeds() -> tuple[bytes, ...]:
    client = spdy.Session()
    number, opening = client.open({"streamType": "stdout", "port": "80"})
    whole = opening + client.data(number, b"hello", end=True) + client.ping() + client.reset(number) + client.go_away()
    huge = zlib.compressobj(zdict=spdy.DICTIONARY) if hasattr(spdy, "DICTIONARY") else zlib.compressobj()
    block = huge.compress(b"\0" * 4_000_000) + huge.flush(zlib.Z_SYNC_FLUSH)
    frame = b"\x80\x03\x00\x01" + bytes([1]) + (10 + len(block)).to_bytes(3, "big") + b"\0" * 10 + block
    return whole, frame


def _websocket(data: bytes) -> None:
    from wsproto.utilities import LocalProtocolError, RemoteProtocolError  # noqa: PLC0415

    connection = WebSocket(ConnectionType.SERVER)
    try:
        for start in range(0, len(data), 1000):
            connection.receive_data(data[start : start + 1000])
            for _ in connection.events():
                pass
    except (RemoteProtocolError, LocalProtocolError):
        return


def _websocket_seed() -> bytes:
    client = WebSocket(ConnectionType.CLIENT)
    parts = [client.send(BytesMessage(data=b"\0hello")), client.send(TextMessage(data="0aGk=")), client.send(Ping())]
    closing = bytes([0x88, 0x82, 0, 0, 0, 0]) + int(CloseReason.NORMAL_CLOSURE).to_bytes(2, "big")
    return b"".join((*parts, closing))


class _Server:
    """A socket whose peer has sent `data` and then closed the connection."""

    def __init__(self, data: bytes) -> None:
        self._left = data

    def recv(self, _: int) -> bytes:
        part, self._left = self._left[:100], self._left[100:]
        return part

    def sendall(self, data: bytes) -> None:
        """Take a request."""

    def settimeout(self, seconds: float) -> None:
        """Never block."""


def _api_answer(data: bytes) -> None:
    server: Any = _Server(data)
    connection, deadline = Connection(server, "server"), time.monotonic() + 60
    received = 0
    try:
        connection.request("GET", "/", [], None, deadline)
        header(connection.head(deadline), "Retry-After")
        while part := connection.read_available():
            received += len(part)
    except (h11.ProtocolError, OSError):
        return
    assert received <= len(data), "more content than was sent"
    connection.next_cycle()


def _log(data: bytes) -> None:
    for options in ({}, {"timestamps": True, "stream": "stdout"}, {"since": 1.0, "limit": 100}):
        formatter = Formatter(**options)  # type: ignore[arg-type]
        out = b"".join(formatter.feed(data[start : start + 500]) for start in range(0, len(data), 500))
        assert len(out + formatter.finish()) <= len(data) + 1


def _target(data: bytes) -> None:
    try:
        found = parse_target(data)
    except BadRequest:
        return
    assert found.path.startswith("/")
    assert ".." not in found.path.split("/") or found.redirect, f"the path {found.path!r} leads upwards"


def _log_query(data: bytes) -> None:
    try:
        query = logquery.parse(parse_target(b"/logs/?" + data).query)
        if query is not None:
            logquery.check(query)
    except (BadRequest, logquery.Invalid):
        return
    if query is not None and query.services:
        arguments = query.journalctl(list(query.services))
        assert all(one.startswith("-") or one == str(query.boot) for one in arguments[1:]), "an argument of its own"
        assert not any("\0" in one for one in arguments)


def _kernel_log(data: bytes) -> None:
    finder = KillFinder()
    for line in data.splitlines(keepends=True):
        record = parse_record(line)
        kill = None if record is None else finder.feed(record)
        if kill is not None:
            where = policy.place(kill.cgroup, "cgroupfs", "/")
            message = policy.pod_message(kill, where or policy.Place("", ""), "c")
            assert "\n" not in message + policy.node_message(kill), "one line"
            assert where is None or kill.limited in ("", where.cgroup) or kill.limited[0] == "/"


def _headers(data: bytes) -> None:
    text = data.decode("latin-1")
    version_of(text, "Statusz")
    for name in ("range", "if-range", "if-modified-since"):
        part = ranges.part_of({"range": "bytes=1-2", name: text}, 100, 1_700_000_000.0)
        assert 0 <= part.start <= part.start + part.length <= 100, "beyond the file"
    tracing.recorder = tracing.Recorder("fuzz", lambda _: None, lambda *_: None, 0)
    try:
        with tracing.served("GET /", text, {}) as span:
            assert span is None or re.fullmatch(TRACEPARENT, span.context)
    finally:
        tracing.recorder = None


def _bodies() -> tuple[bytes, ...]:
    return tuple(
        number.to_bytes(2, "big") + msgpack.packb(example(kind), default=str) for number, kind in enumerate(_types())
    )


LOG = (
    b"2026-01-01T00:00:00.000000001Z stdout F a line\n"
    b"2026-01-01T00:00:00.000000002Z stderr P a part\n"
    b"2026-01-01T00:00:00.000000003Z stderr F  of it\n"
)

KILL = (
    b"6,1,9,-;memory: usage 16384kB, limit 16384kB, failcnt 108\n"
    b"6,2,9,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/kubepods/poda,"
    b"task_memcg=/kubepods/poda/c,task=x,pid=7,uid=0\n"
    b"3,3,9,-;Memory cgroup out of memory: Killed process 7 (x) total-vm:4kB, anon-rss:4kB, file-rss:4kB, "
    b"shmem-rss:0kB, UID:0 pgtables:112kB oom_score_adj:0\n"
    b"6,4,9,-;Tasks in /kubepods/poda are going to be killed due to memory.oom.group set\n"
    b"6,5,9,-;Task in /kubepods/poda/c killed as a result of limit of /kubepods/poda\n"
)
"""A record a line, as reads of /dev/kmsg return them one by one."""


def _recording(data: bytes) -> None:
    for one in recording.read(data):
        recording.export([one])
        for frame in one.frames:
            described(frame)


def _recording_seed() -> bytes:
    payloads = {recording.Kind.PEER: ["Started", b"\x80"], recording.Kind.CRASH: ["KeyError", "'x'", "a.py", "f"]}
    frames = [
        recording.frame(b"c00kie!!", number, number, kind, msgpack.packb(payload))
        for number, (kind, payload) in enumerate(payloads.items(), 1)
    ]
    sizes = (sum(map(len, frames)), 0)
    return b"".join((recording.head("probe", 1, 1, b"c00kie!!", sizes, (1, 1.0)), *frames))


def _console(data: bytes) -> None:
    """The bytes are a console's frames; the first says where they are cut."""
    cut = data[0] if data else 0
    frames = [data[1 : 1 + cut % 16], data[1 + cut % 16 : 60], data[60:]]
    try:
        target, header, body = limits.parse(frames)
        limits.check(target, header, body, "debug")
    except (limits.Invalid, Refused, ProtocolError):
        return


def _path(data: bytes) -> None:
    """A path of `supervisor state`, in a value with each kind of member."""
    try:
        inspection.inspect({"a": [{"b.c": (1, b"x")}], "d": Refused("x", "y")}, data.decode(errors="replace"), 8)
    except inspection.NoSuchPath as error:
        problem = str(error)
    else:
        return
    assert len(problem) < 10_000, f"an error of {len(problem)} characters"


TARGETS = (
    Target(
        "console-request",
        _console,
        (b"\x06status" + codec.encode_header(Kind.ASK, "Describe", "console", 0, 1) + b"\x80",),
        (b"tap:", b"world", b"Subscribe", *MSGPACK),
    ),
    Target("state-path", _path, (b"a[0][b.c].1", b"d.args[0]"), (b"[", b"]", b".", b"__class__")),
    Target("recording", _recording, (_recording_seed(),), (recording.MAGIC, b"c00kie!!", *MSGPACK)),
    Target("message-body", _body, _bodies(), MSGPACK),
    Target("message-header", _header, (codec.encode_header(Kind.ASK, "Describe", "test", 1, 7),), MSGPACK),
    Target("spdy", _spdy, _spdy_seeds(), (b"\x80\x03\x00\x01", b"\x80\x03\x00\x04", b"\x00\xff\xff\xff")),
    Target("websocket", _websocket, (_websocket_seed(),), (b"\x82\xff", b"\x88\x80\0\0\0\0", b"\x80\xfe\xff\xff")),
    Target(
        "api-answer",
        _api_answer,
        tuple(
            b"HTTP/1.1 200 OK\r\n" + rest
            for rest in (
                b"Content-Length: 5\r\n\r\nhello",
                b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
                b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n-5\r\nx\r\n",
                b"Retry-After: 1\r\nConnection: close\r\n\r\nhello",
            )
        ),
        (b"\r\n", b"-5", b"0x5", b"+5", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.0 204 \r\n"),
    ),
    Target(
        "kernel-log", _kernel_log, (KILL,), (b",task_memcg=/", b",oom_memcg=/", b",task=", b",pid=1,uid=0", b"\\x0a")
    ),
    Target("container-log", _log, (LOG,), (b" stdout F ", b" stderr P ", b"\n")),
    Target(
        "log-query",
        _log_query,
        (b"query=kubelet&sinceTime=2026-01-01T00:00:00Z&tailLines=5&boot=-1&pattern=a%28b%29", b"query=/a/b.log"),
        (b"&query=", b"%00", b"&boot=", b"&untilTime=", b"&pattern=%28", b"--"),
    ),
    Target(
        "trace-and-accept-headers",
        _headers,
        (
            b"00-" + b"ab" * 16 + b"-" + b"01" * 8 + b"-01",
            b"application/json;v=v1beta1;g=config.k8s.io;as=Statusz",
            b"bytes=10-20",
            b"Tue, 14 Nov 2023 22:13:20 GMT",
        ),
        (b"-01", b"ff-", b"0" * 32, b";as=", b",", b"*/*"),
    ),
    Target(
        "request-target",
        _target,
        (b"/exec/ns/pod/c?command=sh&stdin=1", b"/logs/%2e%2e/x"),
        (b"%2e%2e%2f", b"%00", b"/../"),
    ),
)
