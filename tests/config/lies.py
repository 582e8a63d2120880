"""Wrong answers of a server of static pods: stalls, redirects, broken HTTP, floods, and pods with hostile names."""

from __future__ import annotations

import gzip
import json
import socket
import struct
import threading

from tests.config.lying_server import Answer, drip, drip_head, huge_chunks, pod, redirect, whole

_HEAD = b"HTTP/1.1 200 OK\r\n"
_MIB = b"#" * (1 << 20)


def stall(*parts: bytes) -> Answer:
    """Send these parts and then nothing more, with the connection open."""

    def answer(connection: socket.socket, stopped: threading.Event) -> None:
        for part in parts:
            connection.sendall(part)
        connection.settimeout(0.2)
        while not stopped.is_set():
            try:
                if not connection.recv(1):
                    return
            except TimeoutError:
                continue

    return answer


def endless(head: bytes, part: bytes) -> Answer:
    """Send `part` again and again until the client goes away."""

    def answer(connection: socket.socket, stopped: threading.Event) -> None:
        connection.sendall(head)
        while not stopped.is_set():
            connection.sendall(part)

    return answer


def reset(connection: socket.socket, _: threading.Event) -> None:
    """End the connection with RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    return _HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(chunks) + end


def _length(value: str, body: bytes) -> bytes:
    return _HEAD + f"Content-Length: {value}\r\n\r\n".encode() + body


def _named(name: object, **metadata: object) -> bytes:
    spec = {"containers": [{"name": "c", "image": "busybox"}]}
    good = {"metadata": {"name": "beside"}, "spec": spec}
    hostile = {"metadata": {"name": name, **metadata}, "spec": spec}
    return whole(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [good, hostile]}).encode())


_BOMB = gzip.compress(b"\0" * (64 << 20))
_LIST = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "z"}}] * 50}).encode()
_ALIASES = b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 12)
)

STALLS: dict[str, Answer] = {
    "says nothing": stall(),
    "stalls in the status line": stall(b"HTTP/1.1 20"),
    "stalls in the head": stall(_HEAD + b"Content-Le"),
    "stalls before the body": stall(_length("100", b"")),
    "stalls in the body": stall(_length("1000", pod("z"))),
    "stalls in a chunk": stall(chunked(b"1000\r\napiVersion", end=b"")),
    "trickles the head": drip_head,
    "trickles the body": drip,
    "says Continue for ever": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
}
"""They end with the client's deadline."""

WRONG: dict[str, Answer] = {
    "redirects to itself": redirect("/pods"),
    "redirects for ever to new paths": redirect("pods/more", "307 Temporary Redirect"),
    "redirects to file:": redirect("file:///etc/passwd"),
    "redirects to a socket": redirect("unix:///run/containerd/containerd.sock", "301 Moved Permanently"),
    "redirects to nowhere": redirect("http://127.0.0.1:1/pods"),
    "redirects to a bad host": redirect("http://[::1/"),
    "redirects to TLS": redirect("https://127.0.0.1:1/pods", "308 Permanent Redirect"),
    "redirects with a line break": redirect("/pods\x0bX-Key: y"),
    "announces a huge body": _length(str(1 << 40), b"apiVersion: v1\n"),
    "sends huge chunks": huge_chunks,
    "sends chunks for ever": endless(chunked(end=b""), b"100000\r\n" + _MIB + b"\r\n"),
    "sends a body for ever": endless(b"HTTP/1.0 200 OK\r\n\r\n", _MIB),
    "sends headers for ever": endless(_HEAD, b"X-More: " + b"a" * 60000 + b"\r\n"),
    "gzip bomb": whole(_BOMB, "200 OK", "Content-Encoding: gzip"),
    "gzip bomb without a name": whole(_BOMB),
    "Content-Length too large": _length("100000", pod("z")),
    "Content-Length too small": _length("90", pod("z")),
    "Content-Length negative": _length("-1", pod("z")),
    "Content-Length of two values": _length("10\r\nContent-Length: 80", pod("z")),
    "Content-Length is no number": _length("many", pod("z")),
    "chunk of no size": chunked(b"zz\r\n" + pod("z")),
    "chunk of negative size": chunked(b"-5\r\n" + pod("z")),
    "chunk of 16 EiB": chunked(b"ffffffffffffffff\r\n" + pod("z")),
    "chunks without an end": chunked(b"5\r\nabcde\r\n", end=b""),
    "no HTTP": b"220 smtp.example ESMTP\r\n",
    "TLS instead of HTTP": b"\x15\x03\x03\x00\x02\x02\x28" + b"\x16\x03\x03\x00\x7a" + b"\x02" * 122,
    "HTTP/2": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + b"\x00" * 18,
    "status of a million": b"HTTP/1.1 1000000 OK\r\nContent-Length: 0\r\n\r\n",
    "closes at once": b"",
    "resets": reset,
    "HTML": whole(
        b"<!DOCTYPE html><html><body>Sign in to the network</body></html>", "200 OK", "Content-Type: text/html"
    ),
    "empty": whole(b""),
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "not modified": b"HTTP/1.1 304 Not Modified\r\n\r\n",
    "a part": whole(pod("z"), "206 Partial Content", "Content-Range: bytes 0-9/10"),
    "too many requests": whole(b"", "429 Too Many Requests", "Retry-After: 999999999"),
    "failure with a pod": whole(pod("z"), "500 Internal Server Error"),
    "half a list": whole(_LIST[: len(_LIST) // 2]),
    "half a list of YAML": whole(b"apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: z}\n  spec: {contai"),
    "items are no list": whole(b"apiVersion: v1\nkind: PodList\nitems: {a: b}\n"),
    "aliases that multiply": whole(_ALIASES),
    "10 MiB of YAML": whole(b"- {a: [b, c]}\n" * 740_000),
    "deeply nested": whole(b"[" * 100_000),
    "bytes of no text": whole(bytes(range(256)) * 100),
    "a Secret": whole(b"apiVersion: v1\nkind: Secret\nmetadata: {name: z}\n"),
    "a pod of another directory": _named("../../../etc/cron.d/z"),
    "a pod with a line break": _named("z\nfake: line"),
    "a pod with a NUL": _named("z\0"),
    "a pod with a long name": _named("z" * 100_000),
    "a pod with escapes": _named("z\x1b[2J"),
    "a pod whose name is a list": _named(["z"]),
    "a pod in a bad namespace": _named("z", namespace="../kube-system"),
    "a pod with a bad UID": _named("z", uid="../../..", annotations={"kubernetes.io/config.source": "api"}),
    "one pod twice": _named("beside"),
}
"""They are over at once, or when the client has enough."""
