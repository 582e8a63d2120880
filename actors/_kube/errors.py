"""What can go wrong with a call of the API, one class for each thing a caller does about it.

`str(error)` is the server's message; `reason` and `status` are its metav1.Status.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from proto.common import untrusted


class ApiError(Exception):
    """The server refused for a reason that only its text tells; trying again does not help by itself."""

    def __init__(self, status: int, reason: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(status, reason, message)
        self.status, self.reason, self.message = status, reason, message
        self.retry_after_s = retry_after_s
        """What the server asked to wait, by Retry-After; None when it did not."""

    def __str__(self) -> str:
        return self.message

    _classes: ClassVar[dict[int, type[ApiError]]] = {}

    @staticmethod
    def of(status: int, body: bytes, retry_after: str | None = None) -> ApiError:
        """The error of an answer: a metav1.Status, or whatever a proxy in between has sent."""
        try:
            told = untrusted.decode_json(body)
        except msgspec.DecodeError:
            told = None
        if not isinstance(told, dict) or told.get("kind") != "Status":
            text = body[:200].decode(errors="replace").strip()
            told = {"message": f"HTTP {status}: {text}" if text else f"HTTP {status}"}
        return ApiError.of_status(told | {"code": status}, _seconds(retry_after))

    @staticmethod
    def of_status(told: dict[str, Any], retry_after_s: float | None = None) -> ApiError:
        """The error of a metav1.Status."""
        status = told.get("code") or 500
        reason = told.get("reason") or ""
        kind = ApiError._classes.get(status) or (ServerTrouble if status >= 500 else ApiError)
        if reason == "Expired":
            kind = Gone
        elif reason == "AlreadyExists":
            kind = AlreadyExists
        return kind(status, reason, told.get("message") or reason or f"HTTP {status}", retry_after_s)


class Conflict(ApiError):
    """The object has changed since it was read: read it again."""


class AlreadyExists(ApiError):
    """There is an object of that name."""


class NotFound(ApiError):
    """There is no such object, or no such resource on this server. For whoever wanted it gone this is success."""


class Gone(ApiError):
    """The resource version is too old to go on from: list again."""


class Unauthorized(ApiError):
    """The credentials are not accepted, or no longer."""


class Forbidden(ApiError):
    """They are, and may not do this."""


class Invalid(ApiError):
    """The server does not take the object as it is; the message names the fields."""


class TooManyRequests(ApiError):
    """Later, after `retry_after_s`."""


class ServerTrouble(ApiError):
    """The server has failed (5xx). It may have done what was asked."""


class Unreachable(ApiError):
    """No connection, or no answer in time. Nothing is known about what the call did."""

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
    """Retry-After as the API server writes it; a date, which it never writes, counts as none."""
    return float(retry_after) if retry_after and retry_after.isdecimal() else None
