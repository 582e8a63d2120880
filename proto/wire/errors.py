"""The errors of asks that callers handle. Any other exception ends the actor that raises it.

An error is sent as an ERROR frame with a `Failure` body. `to_failure` makes that body, `from_failure` the exception.
"""

from __future__ import annotations

import msgspec


class ProtocolError(Exception):
    """An invalid frame: wrong version, unknown type, wrong field, or too large. Never retried."""


class ActorError(Exception):
    """An ask without an answer. The subclass tells the asker whether and when to ask again."""


class ActorDead(ActorError):
    """The target's incarnation ended before its answer. The request may have been carried out."""


class AskTimeout(ActorError):
    """No answer within the ask's deadline. The request may still be carried out later."""


class QueueFull(ActorError):
    """The sender's bounded queue for that peer is full. Nothing was sent."""


class Refused(ActorError):
    """An expected failure that the target reports, with a reason for programs and a message for people.

    `reason` is CamelCase as in Kubernetes statuses (`ErrImagePull`, `NotFound`). `retry`: the same request may
    succeed later.
    """

    def __init__(self, reason: str, message: str, *, retry: bool = True) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retry = retry


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Body of an ERROR frame. `code` is refused, bad_message or crashed."""

    code: str
    reason: str = ""
    message: str = ""
    retry: bool = True


def to_failure(error: BaseException) -> Failure:
    """The body of the ERROR frame for an exception of a handler."""
    match error:
        case Refused():
            return Failure(code="refused", reason=error.reason, message=error.message, retry=error.retry)
        case ProtocolError():
            return Failure(code="bad_message", message=str(error), retry=False)
        case _:
            return Failure(code="crashed", reason=type(error).__name__, message=str(error))


def from_failure(failure: Failure) -> Exception:
    """The exception for the asker, from the body of an ERROR frame."""
    match failure.code:
        case "refused":
            return Refused(failure.reason, failure.message, retry=failure.retry)
        case "bad_message":
            return ProtocolError(failure.message)
        case _:
            return ActorDead(f"{failure.reason}: {failure.message}")
