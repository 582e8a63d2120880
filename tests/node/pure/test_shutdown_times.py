"""The file of the last shutdown's times: the kubelet's JSON, and content that is not to be trusted."""

from __future__ import annotations

import msgspec
import pytest

from actors.node.shutdown.times import Times, decode, encode

BEGAN, ENDED = 1_750_000_000.25, 1_750_000_030.0


@pytest.mark.parametrize(
    ("times", "content"),
    [
        (Times(), b'{"startTime":"0001-01-01T00:00:00Z","endTime":"0001-01-01T00:00:00Z"}'),
        (Times(BEGAN), b'{"startTime":"2025-06-15T15:06:40.250000Z","endTime":"0001-01-01T00:00:00Z"}'),
        (Times(BEGAN, ENDED), b'{"startTime":"2025-06-15T15:06:40.250000Z","endTime":"2025-06-15T15:07:10.000000Z"}'),
    ],
)
def test_times_are_written_and_read_as_in_the_kubelet(times: Times, content: bytes) -> None:
    assert encode(times) == content
    assert decode(content) == times


def test_kubelets_own_file_is_read() -> None:
    """Go writes nanoseconds, and the offset of the machine's time zone."""
    content = b'{"startTime":"2025-06-15T17:06:40.250000001+02:00","endTime":"0001-01-01T00:00:00Z"}'
    assert decode(content) == Times(BEGAN)


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "1969-12-31T23:59:59Z", "0001-01-01T00:00:00-14:00"])
def test_time_before_1970_is_none(time: str) -> None:
    assert decode(f'{{"startTime":"{time}","endTime":"{time}"}}'.encode()) == Times()


def test_last_year_that_a_time_can_have_is_read() -> None:
    assert decode(b'{"startTime":"9999-12-31T23:59:59-14:00","endTime":"9999-12-31T23:59:59+14:00"}').began > ENDED


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"startTime":"2025-06-15T15:06:40Z"}',
        b'{"startTime":"2025-06-15T15:06:40","endTime":"0001-01-01T00:00:00Z"}',
        b'{"startTime":1,"endTime":2}',
        b'{"startTime":"10000-01-01T00:00:00Z","endTime":"0001-01-01T00:00:00Z"}',
        b"[" * 4000,
        b"\xff" * 100,
    ],
)
def test_other_content_is_an_expected_error(content: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(content)
