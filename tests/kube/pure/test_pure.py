"""Errors, throttle and back-off: tables."""

from __future__ import annotations

import msgspec
import pytest

from actors._kube import errors
from actors._kube.back_off import ApiBackoff
from actors._kube.errors import ApiError, Unreachable
from actors._kube.reflector import Position
from actors._kube.shapes import version_number
from proto.common.token_bucket import TokenBucket


def status(reason: str) -> bytes:
    return msgspec.json.encode({"kind": "Status", "reason": reason, "message": "said"})


@pytest.mark.parametrize(
    ("code", "body", "kind", "text"),
    [
        (401, status("Unauthorized"), errors.Unauthorized, "said"),
        (403, status("Forbidden"), errors.Forbidden, "said"),
        (404, status("NotFound"), errors.NotFound, "said"),
        (409, status("Conflict"), errors.Conflict, "said"),
        (409, status("AlreadyExists"), errors.AlreadyExists, "said"),
        (410, status("Expired"), errors.Gone, "said"),
        (410, status("Gone"), errors.Gone, "said"),
        (422, status("Invalid"), errors.Invalid, "said"),
        (429, status("TooManyRequests"), errors.TooManyRequests, "said"),
        (500, status("InternalError"), errors.ServerTrouble, "said"),
        (502, b"<html>bad gateway</html>", errors.ServerTrouble, "HTTP 502: <html>bad gateway</html>"),
        (503, b"", errors.ServerTrouble, "HTTP 503"),
        (400, b"[]", ApiError, "HTTP 400: []"),
        (
            404,
            b'{"kind": "Status", "reason": {}}',
            errors.NotFound,
            "not a valid Status: Expected `str | null`, got `object` - at `$.reason`",
        ),
    ],
)
def test_every_status_code_has_its_error_class(code: int, body: bytes, kind: type[ApiError], text: str) -> None:
    error = ApiError.of(code, body)
    assert type(error) is kind
    assert (str(error), error.status, error.retry_after_s) == (text, code, None)


def test_retry_after_is_in_seconds() -> None:
    assert ApiError.of(429, b"", "7").retry_after_s == 7.0
    assert ApiError.of(429, b"", "Fri, 20 Nov 2026 18:00:00 GMT").retry_after_s is None


@pytest.mark.parametrize("said", ["301", "3600", "1000000000", "9" * 400, "9" * 5000])
def test_longer_retry_after_counts_as_five_minutes(said: str) -> None:
    error = ApiError.of(503, b"", said)
    assert error.retry_after_s == 300
    assert Position("/api/v1/pods").pause_s(error, 0.0, 0) == 300


@pytest.mark.parametrize(
    ("version", "number"),
    [
        ("7", 7),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
        ("9" * 5000, None),
        ("", None),
        ("-1", None),
        ("\u00b2", None),
    ],
)
def test_version_is_a_number_of_18_digits_or_none(version: str, number: int | None) -> None:
    assert version_number(version) == number


def test_token_bucket_allows_a_burst_then_its_rate() -> None:
    bucket = TokenBucket(10, 3)
    assert [bucket.take(0) for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])
    assert bucket.take(10) == 0
    assert [TokenBucket(0, 0).take(0) for _ in range(3)] == [0, 0, 0]


def test_a_clock_that_goes_back_gives_no_tokens() -> None:
    bucket = TokenBucket(10, 1)
    assert [bucket.take(100), bucket.take(50)] == pytest.approx([0, 0.1])


def test_api_backoff_doubles_to_its_cap_and_resets_when_quiet() -> None:
    back_off = ApiBackoff()
    assert [back_off.delay(now, 0) for now in range(8)] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30]
    assert back_off.delay(8, 1) == 60
    assert back_off.delay(129, 0) == 0.8
    assert back_off.delay(130, 0, retry_after_s=9) == 9


def test_unreachable_server_is_tried_every_few_seconds() -> None:
    position = Position("/api/v1/pods")
    pauses = [position.pause_s(Unreachable("refused"), float(now), 1) for now in range(8)]
    assert pauses == [1.6, 3.2, 6.4, 8, 8, 8, 8, 8]
    assert position.pause_s(ApiError(500, "InternalError", "no"), 8.0, 0) == 30
