"""The errors of API calls, a class for each reaction of callers.

`str(error)` is the server's message. `reason` and `status` are those of its metav1.Status.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from proto.common import untrusted

LONGEST_RETRY_AFTER_S = 300
"""A server or load balancer may say more, and be well again at once. client-go waits for any time."""


class ApiError(Exception):
    """The server refused, and only its text says why. A retry alone does not help."""

    def __init__(self, status: int, reason: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(status, reason, message)
        self.status, self.reason, self.message = status, reason, message
        self.retry_after_s = retry_after_s
        """Seconds of Retry-After, at most LONGEST_RETRY_AFTER_S; None without the header."""

    def __str__(self) -> str:
        return self.message

    _classes: ClassVar[dict[int, type[ApiError]]] = {}

    @staticmethod
    def of(status: int, body: bytes, retry_after: str | None = None) -> ApiError:
        """The error of an answer: a metav1.Status, or the text of a proxy in between."""
        try:
            status_object = untrusted.decode_json(body)
        except msgspec.DecodeError:
            status_object = None
        if not isinstance(status_object, dict) or status_object.get("kind") != "Status":
            text = body[:200].decode(errors="replace").strip()
            status_object = {"message": f"HTTP {status}: {text}" if text else f"HTTP {status}"}
        return ApiError.of_status(status_object | {"code": status}, _seconds(retry_after))

    @staticmethod
    def of_status(status_object: dict[str, Any], retry_after_s: float | None = None) -> ApiError:
        """The error of a metav1.Status. One with fields of other types is an error of the server with that code."""
        try:
            status = msgspec.convert(status_object, _Status)
        except msgspec.ValidationError as error:
            code = status_object.get("code")
            status = _Status(code if isinstance(code, int) else None, None, f"not a valid Status: {error}")
        code, reason = status.code or 500, status.reason or ""
        kind = ApiError._classes.get(code) or (ServerTrouble if code >= 500 else ApiError)
        if reason == "Expired":
            kind = Gone
        elif reason == "AlreadyExists":
            kind = AlreadyExists
        return kind(code, reason, status.message or reason or f"HTTP {code}", retry_after_s)


class _Status(msgspec.Struct):
    """The fields of a metav1.Status that are used."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None


class Conflict(ApiError):
    """The object has changed since it was read. Read it again."""


class AlreadyExists(ApiError):
    """An object of this name exists."""


class NotFound(ApiError):
    """The object does not exist, or the server lacks the resource. For a removal this is success."""


class Gone(ApiError):
    """The resource version is too old for a watch. List again."""


class Unauthorized(ApiError):
    """The server does not accept the credentials, or no longer."""


class Forbidden(ApiError):
    """The user may not do this."""


class Invalid(ApiError):
    """The server rejects the object. The message names the fields."""


class TooManyRequests(ApiError):
    """The server is busy. Try again after `retry_after_s`."""


class Throttled(ApiError):
    """Our own throttle would hold the call for too long. It was not sent."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Throttled", message)


class ServerTrouble(ApiError):
    """The server failed (5xx). The call may have had its effect."""


class Unreachable(ApiError):
    """No connection, or no answer in time. The call may have had its effect."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Unreachable", message)


ApiError._classes.update(
    {
        401: Unauthorized,
        403: Forbidden,
        404: NotFound,
        409: Conflict,
        410: Gone,
        422: Invalid,
        429: TooManyRequests,
    }
)


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After in seconds, bounded. The API server never sends a date, which counts as none."""
    if not retry_after or not retry_after.isdecimal():
        return None
    seconds = int(retry_after) if len(retry_after) <= 9 else LONGEST_RETRY_AFTER_S
    return float(min(seconds, LONGEST_RETRY_AFTER_S))
