"""The text of entries of the CRI log format, for blocks of any size."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors._logs import entries
from actors._logs.entries import Formatter, seconds_of

T = "2026-11-20T13:34:33.123456789Z"


def shown(data: bytes, *, block: int = 1 << 20, **options: object) -> bytes:
    formatter = Formatter(**options)  # type: ignore[arg-type]
    parts = [formatter.feed(data[at : at + block]) for at in range(0, len(data), block)]
    return b"".join(parts) + formatter.finish()


def entry(content: bytes, stream: str = "stdout", tag: str = "F", stamp: str = T) -> bytes:
    return f"{stamp} {stream} {tag} ".encode() + content + b"\n"


@pytest.mark.parametrize(
    ("line", "content"),
    [
        (b"%b stdout F hello world\n", b"hello world\n"),
        (b"%b stderr P part\n", b"part"),
        (b"%b stdout F:x=1 tags\n", b"tags\n"),
        (b"%b stdout F \n", b"\n"),
        (b"%b stdout F\n", b"\n"),
        (b"%b stdout F  two  spaces \n", b" two  spaces \n"),
        (b"%b stdout F \xff\x00\n", b"\xff\x00\n"),
        (b"%b stdout F stdout F stdout F x\n", b"stdout F stdout F x\n"),
        (b"2026-11-20T13:34:33Z stdout F short\n", b"short\n"),
        (b"2026-11-20T13:34:33.12+05:30 stdout F zone\n", b"zone\n"),
        (b"%b stdout F no end", b"no end\n"),
        (b"not ours\n", b"not ours\n"),
        (b"1\n%b stdout F x\n", b"1\nx\n"),
        (b"%b stdin F x\n", T.encode() + b" stdin F x\n"),
        (b"\n", b"\n"),
        (b"", b""),
    ],
)
def test_content_is_shown_and_a_foreign_line_is_unchanged(line: bytes, content: bytes) -> None:
    assert shown(line.replace(b"%b", T.encode())) == content


def test_partial_entries_are_joined_and_get_one_timestamp() -> None:
    data = entry(b"ab", tag="P") + entry(b"cd", tag="P") + entry(b"ef") + entry(b"g")
    assert shown(data) == b"abcdef\ng\n"
    assert shown(data, timestamps=True) == f"{T} abcdef\n{T} g\n".encode()


@pytest.mark.parametrize(
    ("stamp", "time"),
    [
        ("2026-11-20T13:34:33.12345Z", "2026-11-20T13:34:33.123450000Z"),
        ("2026-11-20T13:34:33Z", "2026-11-20T13:34:33.000000000Z"),
        ("2026-11-20T13:34:33.1+05:30", "2026-11-20T13:34:33.100000000+05:30"),
        ("2026-11-20T13:34:33+05:30", "2026-11-20T13:34:33.000000000+05:30"),
        ("2026-11-20T13:34:33.123456789+05:30", "2026-11-20T13:34:33.123456789+05:30"),
        ("yesterday", "yesterday"),
    ],
)
@pytest.mark.parametrize("tag", ["F", "P"])
def test_shown_times_have_nine_digits(stamp: str, time: str, tag: str) -> None:
    assert shown(entry(b"x", stamp=stamp, tag=tag), timestamps=True).split(b" ")[0] == time.encode()


def test_old_entries_are_left_out() -> None:
    since = datetime(2026, 11, 20, 13, tzinfo=UTC).timestamp()
    data = entry(b"old", stamp="2026-11-20T12:59:59.999Z") + entry(b"new", stamp="2026-11-20T13:00:00.001Z")
    assert shown(data + entry(b"more"), since=since) == b"new\nmore\n"
    assert shown(entry(b"old", stamp="2026-11-20T12:59:59Z"), since=since) == b""


def test_block_of_old_entries_is_skipped_by_its_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bytes] = []
    monkeypatch.setattr(entries, "seconds_of", lambda stamp: (looked.append(stamp), seconds_of(stamp))[1])
    old, new = entry(b"old", stamp="2026-11-20T12:59:59Z"), entry(b"new")
    since = datetime(2026, 11, 20, 13, tzinfo=UTC).timestamp()
    assert shown(old * 10_000 + new, block=4096, since=since) == b"new\n"
    assert len(looked) < 10_000 / 20


def test_stream_option_selects_one_stream() -> None:
    data = entry(b"out") + entry(b"err", stream="stderr") + entry(b"out again")
    assert shown(data, stream="stdout") == b"out\nout again\n"
    assert shown(data, stream="stderr") == b"err\n"
    assert shown(entry(b"out") * 3, stream="stdout") == b"out\n" * 3


@pytest.mark.parametrize(
    ("limit", "content"), [(1, b"a"), (3, b"abc"), (4, b"abc\n"), (5, b"abc\nd"), (99, b"abc\nde\n")]
)
def test_limit_bounds_the_shown_bytes(limit: int, content: bytes) -> None:
    data = entry(b"abc") + entry(b"de")
    for block in (1, 7, 1000):
        assert shown(data, block=block, limit=limit) == content


LINES = st.lists(
    st.tuples(
        st.sampled_from(["stdout", "stderr"]),
        st.sampled_from(["F", "P", "F:a", "P:a:b"]),
        st.binary(max_size=40).map(lambda found: found.replace(b"\n", b"\r")),
        st.sampled_from([T, "2026-11-20T13:34:33Z", "2026-11-20T13:34:33.1+01:00"]),
    )
    | st.binary(max_size=20).map(lambda found: found.replace(b"\n", b" ")),
    max_size=12,
)


PADDED = {
    b"2026-11-20T13:34:33Z": b"2026-11-20T13:34:33.000000000Z",
    b"2026-11-20T13:34:33.1+01:00": b"2026-11-20T13:34:33.100000000+01:00",
}
"""The short times below, as they are shown."""


def reference(lines: list[object], timestamps: bool, stream: str) -> bytes:
    out, mid_line = b"", False
    for line in lines:
        if isinstance(line, bytes):
            out += line + b"\n"
            continue
        name, tag, content, stamp = line  # type: ignore[misc]
        if stream and name != stream:
            continue
        if timestamps and not mid_line:
            out += PADDED.get(stamp.encode(), stamp.encode()) + b" "
        mid_line = tag.startswith("P")
        out += content + (b"" if mid_line else b"\n")
    return out


@given(
    lines=LINES, block=st.integers(1, 400), timestamps=st.booleans(), stream=st.sampled_from(["", "stdout", "stderr"])
)
def test_the_fast_way_and_the_plain_one_show_the_same(
    lines: list[object], block: int, timestamps: bool, stream: str
) -> None:
    data = b"".join(
        line + b"\n" if isinstance(line, bytes) else entry(line[2], line[0], line[1], line[3])  # type: ignore[index]
        for line in lines
    )
    foreign = [line for line in lines if isinstance(line, bytes) and entries._ENTRY.match(line)]
    if not foreign:
        assert shown(data, block=block, timestamps=timestamps, stream=stream) == reference(lines, timestamps, stream)


TIMES = st.sampled_from([T, T, "2026-11-20T13:34:33Z", "2026-11-20T13:34:33.1+01:00", "1", "2026-11-20\nT13:34:33.123"])
CONTENTS = st.binary(max_size=300)
WHOLE = st.builds(entry, CONTENTS, st.sampled_from(["stdout", "stdout", "stderr", "stdfoo"]), st.just("F"), TIMES)
ANY = st.builds(entry, CONTENTS, st.sampled_from(["stdout", "stderr"]), st.sampled_from(["F", "P", "F:a"]), TIMES)
ODD = b" |  |\n|\n\n| F | stdout F | stderr F | stdout P | stdout F| stdout F:x |F|T|\nT stdout F |T\n stdout F |\n2"
ODDITIES = st.sampled_from(ODD.replace(b"T", T.encode()).split(b"|"))
PIECES = st.lists(WHOLE, max_size=20) | st.lists(WHOLE | ANY | ODDITIES | st.binary(max_size=30), max_size=20)


def plainly(data: bytes, timestamps: bool, stream: str) -> bytes:
    """A reference implementation: line by line, by the format's definition."""
    out, mid_line = b"", False
    for line in data.split(b"\n")[: -1 if data.endswith(b"\n") or not data else None]:
        found = re.fullmatch(rb"([^ ]+) (stdout|stderr) ([FP])(?::[^ ]*)?(?: (.*))?", line, re.DOTALL)
        if found is None:
            out += line + b"\n"
        elif not stream or found[2] == stream.encode():
            out += PADDED.get(found[1], found[1]) + b" " if timestamps and not mid_line else b""
            mid_line = found[3] == b"P"
            out += (found[4] or b"") + (b"" if mid_line else b"\n")
    return out


@pytest.mark.parametrize(
    "short_line", [0, entries.SHORT_LINE, 1 << 30], ids=["as long ones", "as they are", "as short ones"]
)
@given(
    pieces=PIECES,
    block=st.integers(1, 4000),
    timestamps=st.booleans(),
    stream=st.sampled_from(["", "stdout", "stderr"]),
)
def test_both_ways_agree_with_the_format_for_any_log(
    short_line: int, pieces: list[bytes], block: int, timestamps: bool, stream: str
) -> None:
    data = b"".join(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries, "SHORT_LINE", short_line)
        text = shown(data, block=block, timestamps=timestamps, stream=stream)
    assert text == plainly(data, timestamps, stream)


@pytest.mark.parametrize("tag", ["F", "P"])
@pytest.mark.parametrize("stream", ["", "stdout", "stderr"])
def test_line_of_10_mb_is_shown_in_parts_before_the_next_line(tag: str, stream: str) -> None:
    long = b"x" * 10_000_000
    formatter = Formatter(timestamps=True, stream=stream)
    data = entry(long, tag=tag) + entry(b"next")
    parts = [formatter.feed(data[at : at + 65536]) for at in range(0, len(data), 65536)]
    assert len(formatter._rest) <= entries.MAX_HELD + 65536
    assert max(map(len, parts)) <= entries.MAX_HELD + 65536
    text = b"".join(parts) + formatter.finish()
    if stream == "stderr":
        assert text == b""
    else:
        joint = b"" if tag == "P" else f"\n{T} ".encode()
        assert text == f"{T} ".encode() + long + joint + b"next\n"


def test_endless_foreign_line_is_shown_in_parts() -> None:
    data = b"y" * 3_000_000 + b"\n" + entry(b"next")
    assert shown(data, block=65536) == b"y" * 3_000_000 + b"\nnext\n"


def test_most_of_a_log_goes_the_fast_way() -> None:
    data = entry(b"z" * 80) * 100_000
    began = time.process_time()
    assert len(shown(data, block=1 << 18)) == 81 * 100_000
    assert time.process_time() - began < 2, "12 MB: a tenth of a second, or the fast way is not taken"
