"""Streams: the chunked coding by tables and properties, lines from real sockets, many of them on one descriptor."""

from __future__ import annotations

import contextlib
import queue
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors._kube.connection import stream as stream_module
from actors._kube.connection.endpoint import Endpoint
from actors._kube.connection.http1 import Connection
from actors._kube.connection.stream import Stream, Streams, open_stream
from actors._kube.errors import ApiError


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part) + b"0\r\n\r\n"


PLAIN = b"HTTP/1.1 200 OK\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def pair(head: bytes = PLAIN, beginning: bytes = b"") -> tuple[socket.socket, Stream]:
    """A server's socket, and the stream of its answer to a request. `beginning` comes with the head."""
    ours, theirs = socket.socketpair()
    theirs.sendall(head + beginning)
    return theirs, open_stream(Connection(ours, "server"), "/x", [], time.monotonic() + 5)


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=6), st.lists(st.integers(1, 20), min_size=1))
def test_chunked_lines_do_not_depend_on_the_pieces(parts: list[bytes], sizes: list[int]) -> None:
    encoded, at, turn = chunked(*parts), 0, 0
    server, stream = pair(CHUNKED)
    lines: list[bytes] = []
    ended = False
    while at < len(encoded):
        size = sizes[turn % len(sizes)]
        server.sendall(encoded[at : at + size])
        at, turn = at + size, turn + 1
        assert not ended
        new, ended = stream.read()
        lines += new
    assert (lines, ended) == ([line for line in b"".join(parts).split(b"\n")[:-1] if line.strip()], True)
    stream.close()
    server.close()


def test_chunk_extension_is_ignored_and_an_invalid_size_ends_the_stream() -> None:
    server, stream = pair(CHUNKED)
    server.sendall(b"4;name=value\r\nabc\n\r\n")
    assert stream.read() == ([b"abc"], False)
    server.sendall(b"xyz!\r\n")
    assert stream.read() == ([], True)
    stream.close()
    server.close()


@pytest.mark.parametrize("endless", [b"1" * 200_000, b"1;" + b"x" * 200_000, b"0\r\nX: " + b"y" * 200_000])
def test_chunk_size_extension_and_trailer_are_bounded(endless: bytes) -> None:
    server, stream = pair(CHUNKED)

    def send() -> None:
        with contextlib.suppress(OSError):  # the stream may end before all is sent
            server.sendall(endless)

    thread = threading.Thread(target=send)
    thread.start()
    ended = False
    while not ended:
        select.select([stream], [], [], 5)
        ended = stream.read()[1]
    stream.close()
    thread.join(5)
    server.close()


def test_line_without_end_ends_the_stream_at_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "LONGEST_LINE_BYTES", 1000)
    server, stream = pair()
    server.sendall(b"whole\n" + bytes(2000))
    assert stream.read() == ([b"whole"], True)
    stream.close()
    server.close()


def test_incomplete_last_line_is_dropped() -> None:
    server, stream = pair(beginning=b'{"a"')
    assert stream.read() == ([], False)
    server.sendall(b":1}\n\n{}\nrest")
    assert stream.read() == ([b'{"a":1}', b"{}"], False)
    server.close()
    assert stream.read() == ([], True)
    stream.close()


def test_last_chunk_ends_the_answer_on_an_open_connection() -> None:
    server, stream = pair(CHUNKED)
    server.sendall(chunked(b"a\nb", b"\n"))
    assert stream.read() == ([b"a", b"b"], True)
    stream.close()
    server.close()


class Loop:
    """The bus as far as Streams needs it."""

    def watch_fd(self, fd: int, callback: Callable[[], None]) -> None:
        self.fd, self.callback = fd, callback

    def turn(self) -> bool:
        ready = bool(select.select([self.fd], [], [], 0)[0])
        if ready:
            self.callback()
        return ready


def test_many_streams_share_one_epoll_descriptor() -> None:
    loop: Any = Loop()
    streams, said = Streams(loop), queue.SimpleQueue[tuple[int, list[bytes], bool]]()
    servers, opened = [], []
    for number in range(50):
        server, stream = pair(beginning=b"first\n" if number == 7 else b"")
        servers.append(server)
        opened.append(stream)
        streams.add(stream, lambda lines, ended, number=number: said.put((number, lines, ended)))
    while loop.turn():
        pass
    assert said.get_nowait() == (7, [b"first"], False)
    servers[3].sendall(b"x\n")
    servers[4].close()
    while loop.turn():
        pass
    assert sorted(said.get_nowait() for _ in range(2)) == [(3, [b"x"], False), (4, [], True)]
    for stream in opened:
        streams.remove(stream)
    assert len(streams) == 0
    assert said.empty()
    for server in servers:
        server.close()


def answering(answer: bytes) -> tuple[str, threading.Thread]:
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listening.accept()
        with listening, connection:
            while b"\r\n\r\n" not in connection.recv(65536):
                pass
            connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}", thread


def open_(server: str) -> Stream:
    deadline = time.monotonic() + 5
    connection = Endpoint(server, None, "", None).connect(deadline)
    return open_stream(connection, "/x?watch=true", [("Accept", "application/json")], deadline)


def lines_of(stream: Stream) -> list[bytes]:
    lines: list[bytes] = []
    ended = False
    while not ended:
        select.select([stream], [], [], 5)
        new, ended = stream.read()
        lines += new
    stream.close()
    return lines


def test_bytes_after_the_head_are_left_to_the_stream() -> None:
    server, thread = answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n")
    stream = open_(server)
    thread.join()
    assert lines_of(stream) == [b"{}"]


def test_an_answer_that_is_an_error_is_raised() -> None:
    server, thread = answering(b"HTTP/1.1 429 Too Many\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\nlate")
    with pytest.raises(ApiError) as caught:
        open_(server)
    thread.join()
    assert (caught.value.status, caught.value.retry_after_s, str(caught.value)) == (429, 3.0, "HTTP 429: late")


def test_answer_with_connection_close_is_a_stream() -> None:
    """A server that is being stopped sends the header."""
    server, thread = answering(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}\n")
    stream = open_(server)
    thread.join()
    assert lines_of(stream) == [b"{}"]
