"""Node logs: listed, read in parts, and nothing else."""

from __future__ import annotations

import fcntl
import os
import select
import struct
from pathlib import Path

import msgspec
import pytest

from actors.server.base import ranges
from tests.server.routes.here import Here
from tests.server.site import client, read_all, say, until


def test_stream_of_a_log_is_chosen_with_the_feature_gate(here: Here, tmp_path: Path) -> None:
    directory = tmp_path / "ns_one_u" / "c"
    directory.mkdir(parents=True)
    time = "2026-01-02T03:04:05.678901234Z"
    (directory / "0.log").write_text(f"{time} stdout F out\n{time} stderr F err\n")
    split = {"pod_logs_dir": str(tmp_path), "split_log_streams": True}
    here.context.settings = msgspec.structs.replace(here.settings, **split)
    for stream, expected in (("", b"out\nerr\n"), ("All", b"out\nerr\n"), ("Stdout", b"out\n"), ("Stderr", b"err\n")):
        assert here.say("GET", f"/containerLogs/ns/one/c?stream={stream}") == (200, expected)


def test_node_logs_are_listed_and_read_and_nothing_else(here: Here, tmp_path: Path) -> None:
    (tmp_path / "sys.log").write_bytes(b"line\n" * 100_000)
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "<x>&.log").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    assert here.say("GET", "/logs/sys.log") == (200, b"line\n" * 100_000)
    assert b"&lt;x&gt;&amp;.log" in here.say("GET", "/logs/dir/")[1]
    assert here.say("GET", "/logs/dir")[0] == 301
    assert here.say("GET", "/logs/nope")[0] == 404
    assert here.say("GET", "/logs/sys.log/x")[0] == 404
    assert here.say("GET", "/logs/pipe")[0] == 403
    assert here.say("HEAD", "/logs/sys.log") == (200, b"")


def test_node_log_is_sent_with_length_date_and_range(here: Here, tmp_path: Path) -> None:
    (tmp_path / "sys.log").write_bytes(b"0123456789" * 100_000)
    os.utime(tmp_path / "sys.log", (0, 1_700_000_000))
    date = "Tue, 14 Nov 2023 22:13:20 GMT"

    def get(headers: str, method: str = "GET") -> tuple[set[bytes], bytes]:
        request = f"{method} /logs/sys.log HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n"
        head, _, body = say(here.site.plain, request.encode()).partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        return {
            lines[0].split(b" ", 2)[1],
            *(line for line in lines if line.startswith((b"Con", b"Las", b"Acc"))),
        }, body

    whole = {b"200", b"Content-Length: 1000000", b"Last-Modified: %b" % date.encode(), b"Accept-Ranges: bytes"}
    head, body = get("")
    assert (head > whole, body) == (True, b"0123456789" * 100_000)
    assert whole < get("", "HEAD")[0]
    head, body = get("Range: bytes=999995-\r\n")
    assert body == b"56789"
    assert head > {b"206", b"Content-Length: 5", b"Content-Range: bytes 999995-999999/1000000"}
    assert get("Range: bytes=1000000-\r\n")[0] > {b"416", b"Content-Range: bytes */1000000"}
    head, body = get(f"If-Modified-Since: {date}\r\n")
    assert (b"304" in head, body, [line for line in head if b"Length" in line]) == (True, b"", [])


def test_compressed_node_log_is_no_text(here: Here, tmp_path: Path) -> None:
    for name, content, kind in (("a.gz", b"\x1f\x8b\x08\0", "application/x-gzip"), ("a.html", b"<html>", ranges.PLAIN)):
        (tmp_path / name).write_bytes(content)
        said = say(here.site.plain, f"GET /logs/{name} HTTP/1.0\r\n\r\n".encode())
        assert f"Content-Type: {kind}\r\n".encode() in said


def test_node_log_that_shrinks_is_cut_off(here: Here, tmp_path: Path) -> None:
    (tmp_path / "sys.log").write_bytes(b"x" * 50_000_000)
    with client(here.site.plain) as reader:
        reader.sendall(b"GET /logs/sys.log HTTP/1.1\r\nHost: x\r\n\r\n")
        came = len(reader.recv(1))
        os.truncate(tmp_path / "sys.log", 0)
        came += len(read_all(reader))  # up to the connection's end, though it would be kept for another request
    assert came < 50_000_000


LATER, DATE, EARLIER = (f"Tue, 14 Nov 2023 22:13:{second} GMT" for second in (21, 20, 19))


@pytest.mark.parametrize(
    ("asked", "status", "part"),
    [
        ({}, 200, (0, 100)),
        ({"range": "bytes=0-0"}, 206, (0, 1)),
        ({"range": "bytes=10-19"}, 206, (10, 10)),
        ({"range": "bytes=10-"}, 206, (10, 90)),
        ({"range": "bytes= 10 - 1000 "}, 206, (10, 90)),
        ({"range": "bytes=-5"}, 206, (95, 5)),
        ({"range": "bytes=-500"}, 206, (0, 100)),
        ({"range": "bytes=0-1,3-4"}, 200, (0, 100)),
        ({"range": "bytes=100-"}, 416, (0, 0)),
        ({"range": "bytes=5-4"}, 416, (0, 0)),
        ({"range": "bytes=-0"}, 416, (0, 0)),
        ({"range": "bytes=-"}, 416, (0, 0)),
        ({"range": "bytes=" + "9" * 5000 + "-"}, 416, (0, 0)),
        ({"range": "lines=1-2"}, 416, (0, 0)),
        ({"range": "bytes=0-0", "if-range": DATE}, 206, (0, 1)),
        ({"range": "bytes=0-0", "if-range": EARLIER}, 200, (0, 100)),
        ({"range": "bytes=0-0", "if-range": '"tag"'}, 200, (0, 100)),
        ({"if-modified-since": DATE}, 304, (0, 0)),
        ({"if-modified-since": LATER, "range": "bytes=0-0"}, 304, (0, 0)),
        ({"if-modified-since": EARLIER}, 200, (0, 100)),
        ({"if-modified-since": LATER, "if-none-match": '"tag"'}, 200, (0, 100)),
        ({"if-none-match": "*"}, 304, (0, 0)),
        ({"if-modified-since": "yesterday"}, 200, (0, 100)),
        ({"if-modified-since": "1 Jan 99999999999 00:00:00 GMT"}, 200, (0, 100)),
        ({"if-unmodified-since": EARLIER}, 412, (0, 0)),
        ({"if-unmodified-since": DATE}, 200, (0, 100)),
        ({"if-match": '"tag"'}, 412, (0, 0)),
        ({"if-match": "*", "if-unmodified-since": EARLIER}, 200, (0, 100)),
    ],
)
def test_part_of_a_file_is_that_of_gos_file_server(asked: dict[str, str], status: int, part: tuple[int, int]) -> None:
    found = ranges.part_of(asked, 100, 1_700_000_000.9)
    assert (found.status, (found.start, found.length)) == (status, part)


@pytest.mark.parametrize("modified", [-1.0, 0.0, 1e15])
def test_time_outside_of_http_dates_is_not_sent(modified: float) -> None:
    found = ranges.part_of({"if-modified-since": DATE, "range": "bytes=0-"}, 0, modified)
    assert (found.status, found.headers) == (200, {"Accept-Ranges": "bytes"})


TIOCSPTLCK, TIOCGPTN = 0x40045431, 0x80045430  # asm-generic/ioctls.h


def test_link_to_a_device_is_not_opened(here: Here, tmp_path: Path) -> None:
    """Of a terminal, as the other end notices when it was opened and closed."""
    (tmp_path / "file.log").write_text("line\n")
    (tmp_path / "link.log").symlink_to("file.log")
    master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    try:
        fcntl.ioctl(master, TIOCSPTLCK, struct.pack("i", 0))
        number = struct.unpack("i", fcntl.ioctl(master, TIOCGPTN, struct.pack("i", 0)))[0]
        (tmp_path / "device").symlink_to(f"/dev/pts/{number}")
        assert here.say("GET", "/logs/device")[0] == 403
        poll = select.poll()
        poll.register(master, select.POLLHUP)
        assert not poll.poll(0)
    finally:
        os.close(master)
    assert here.say("GET", "/logs/link.log") == (200, b"line\n")


def test_node_logs_with_odd_names_are_listed(here: Here, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dir").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.log")).write_text("x")
    status, body = here.say("GET", "/logs/")
    assert status == 200
    for line in (b'<a href="%FF.log">\xff.log</a>', b'<a href="dir/">dir/</a>', b'<a href="loop">loop</a>'):
        assert line in body


def test_unread_node_log_is_closed(here: Here, tmp_path: Path) -> None:
    def held() -> int:
        links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
        return sum(os.path.realpath(link) == str(tmp_path / "sys.log") for link in links)

    (tmp_path / "sys.log").write_bytes(b"line\n" * 10_000_000)
    for _ in range(5):
        here.say("HEAD", "/logs/sys.log")
        with client(here.site.plain) as gone:
            gone.sendall(b"GET /logs/sys.log HTTP/1.0\r\n\r\n")
            gone.recv(1)
    until(lambda: held() == 0)
