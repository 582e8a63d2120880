"""A server on loopback with hostile answers: the path of a request selects the bytes from a table."""

import contextlib
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
Say = Callable[[bytes], object]


class Attack(NamedTuple):
    name: str
    answer: bytes | Callable[[Say, threading.Event], None]
    probe: str
    """A pattern for the probe's message, or `unknown` where the kubelet's result is unknown too."""
    hook: str
    """`success`, or a pattern for the error."""
    timeout_s: int = 10


def _forever(piece: bytes, first: bytes = b"", pause_s: float = 0.0) -> Callable[[Say, threading.Event], None]:
    def answer(say: Say, over: threading.Event) -> None:
        say(first)
        while not over.wait(pause_s) if pause_s else not over.is_set():
            say(piece)

    return answer


def _then_silence(first: bytes) -> Callable[[Say, threading.Event], None]:
    def answer(say: Say, over: threading.Event) -> None:
        say(first)
        over.wait(60)

    return answer


LATE_HEAD = "context deadline exceeded .*awaiting headers.*"
BROKEN = ".*(transport connection broken|malformed HTTP response).*"
NO_URL = "failed to parse Location header"
TOO_LONG = ".*server response headers exceeded 65536 bytes; aborted"
ATTACKS = (
    Attack("content-length-of-5000-digits", OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", BROKEN, BROKEN),
    Attack("content-length-of-other-digits", OK + "Content-Length: ٣\r\n\r\nabc".encode(), BROKEN, BROKEN),
    Attack("content-length-below-zero", OK + b"Content-Length: -1\r\n\r\nabc", BROKEN, BROKEN),
    Attack("two-content-lengths", OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", BROKEN, BROKEN),
    Attack("content-length-beyond-memory", OK + b"Content-Length: 99999999999999999\r\n\r\nab", "unknown", "success"),
    Attack("chunk-size-below-zero", CHUNKED + b"-5\r\nabcde\r\n0\r\n\r\n", "unknown", "success"),
    Attack("chunk-size-of-5000-digits", CHUNKED + b"f" * 5000 + b"\r\nabc", "unknown", "success"),
    Attack("chunk-size-underscore", CHUNKED + b"1_0\r\nabc", "unknown", "success"),
    Attack("chunk-size-empty", CHUNKED + b"\r\nabc", "unknown", "success"),
    Attack("chunk-that-does-not-end", CHUNKED + b"3\r\nabcdef\r\n0\r\n\r\n", "unknown", "success"),
    Attack("chunk-extension-of-megabytes", _forever(b"x" * 65536, CHUNKED + b"3;"), "unknown", "success"),
    Attack("chunk-extension-each-byte", _forever(b"1;" + b"x" * 4000 + b"\r\na\r\n", CHUNKED), "unknown", "success"),
    Attack("trailers-for-ever", _forever(b"A: b\r\n" * 1000, CHUNKED + b"0\r\n"), "unknown", "success"),
    Attack("headers-for-ever", _forever(b"A: b\r\n" * 1000, OK), TOO_LONG, TOO_LONG),
    Attack("header-without-end", _forever(b"x" * 65536, OK + b"A: "), TOO_LONG, TOO_LONG),
    Attack("folded-header-for-ever", _forever(b" x\r\n" * 1000, OK + b"A: b\r\n"), TOO_LONG, TOO_LONG),
    Attack("status-line-without-end", _forever(b"x" * 65536, b"HTTP/1.1 200 "), TOO_LONG, TOO_LONG),
    Attack("1xx-for-ever", _forever(b"HTTP/1.1 100 Continue\r\n\r\n"), ".*too many 1xx.*", ".*too many 1xx.*"),
    Attack("large-1xx", (b"HTTP/1.1 103 Hints\r\nA: " + b"x" * 60000 + b"\r\n\r\n") * 3 + OK, TOO_LONG, TOO_LONG),
    Attack("switching-protocols", b"HTTP/1.1 101 Go\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n\0\0", BROKEN, BROKEN),
    Attack("http-0.9", b"<html>fine</html>", '.*malformed HTTP response "<html>fine</html>"|.*EOF', BROKEN + "|.*EOF"),
    Attack("http-2", b"\0\0\x12\4\0\0\0\0\0\0\3\0\0\0\x64", BROKEN + "|.*EOF", BROKEN + "|.*EOF"),
    Attack("http-9", b"HTTP/9.9 200 OK\r\n\r\n", "ready|" + BROKEN, "success|" + BROKEN),
    Attack("status-of-four-digits", b"HTTP/1.1 2000 OK\r\n\r\n", BROKEN, BROKEN),
    Attack("status-of-zero", b"HTTP/1.1 000 OK\r\n\r\n", BROKEN + "|.*EOF", BROKEN + "|.*EOF"),
    Attack("nul-in-header", OK + b"A: \0\r\n\r\n", BROKEN, BROKEN),
    Attack("nul-and-no-utf-8-in-body", OK + b"Content-Length: 4\r\n\r\n\0\xff\xfe\n", "ready|.*", "success"),
    Attack("unknown-transfer-encoding", OK + b"Transfer-Encoding: brainfuck\r\n\r\n+", BROKEN, BROKEN),
    Attack("location-that-is-no-url", b"HTTP/1.1 302 Go\r\nLocation: http://[::1\r\n\r\n", NO_URL, NO_URL),
    Attack("location-with-bad-port", b"HTTP/1.1 302 Go\r\nLocation: //h:x9/\r\n\r\n", NO_URL, NO_URL),
    Attack("location-of-60-kb", b"HTTP/1.1 302 Go\r\nLocation: /" + b"%" * 60000 + b"\r\n\r\n", ".*", ".*"),
    Attack("location-no-utf-8", b"HTTP/1.1 302 Go\r\nLocation: http://h\xff\xfe/\r\n\r\n", ".*warning.*", "success"),
    Attack("body-for-ever", _forever(b"x" * 65536, OK + b"\r\n"), "ready", "success"),
    Attack("chunks-of-a-byte", CHUNKED + b"1\r\na\r\n" * 20000, "ready", "success"),
    Attack("a-byte-per-second", _forever(b"H", b"HTTP/1.1 200 ", 0.3), LATE_HEAD, LATE_HEAD, 1),
    Attack("never-answers", _then_silence(b""), LATE_HEAD, LATE_HEAD, 1),
    Attack("never-closes", _then_silence(OK + b"\r\nbody"), "unknown", "success", 4),
)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.over = threading.Event()
        self.port: int = self.server_address[1]
        self.asked: Counter[str] = Counter()
        self.answers = {attack.name: attack.answer for attack in ATTACKS}

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: clients are expected to hang up."""


class _Handler(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        name = self.rfile.readline().split(b" ")[1].decode().strip("/")
        while self.rfile.readline() not in (b"\r\n", b""):
            pass
        self.server.asked[name] += 1
        answer = self.server.answers.get(name, OK + b"Content-Length: 2\r\n\r\nok")
        if callable(answer):
            answer(self.wfile.write, self.server.over)
        else:
            self.wfile.write(answer)
            self.wfile.flush()
            time.sleep(0.02)


@contextlib.contextmanager
def hostile_server() -> Iterator[Server]:
    server = Server()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def garbage_for_tls() -> Iterator[int]:
    """A port that answers a handshake of TLS with a record of nonsense."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(b"\x16\x03\x03\x40\x00" + bytes(range(256)) * 64)
            self.request.recv(65536)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()
