"""The few errors an asker acts on. Everything else crashes the actor it happens in.

An error travels as an ERROR frame with a `Failure` body; `raise_failure` turns it back into one of these classes.
"""

from __future__ import annotations

import msgspec


class ProtocolError(Exception):
    """A frame that cannot be understood: wrong version, unknown type, wrong field, too large. Never retried."""


class ActorError(Exception):
    """An ask that did not get its answer. The subclasses say what the asker can do about it."""


class ActorDead(ActorError):
    """The target's incarnation ended before it answered. The request may or may not have been carried out."""


class AskTimeout(ActorError):
    """No answer within the ask's deadline. The request may still be carried out."""


class QueueFull(ActorError):
    """The sender's bounded queue for that peer is full; nothing was sent."""


class Refused(ActorError):
    """The target understood and said no: an expected failure, with a reason for machines and a message for people.

    `reason` is CamelCase as in Kubernetes statuses (`ErrImagePull`, `InvalidMount`); `retry` says whether the same
    request may succeed later without any change to it.
    """

    def __init__(self, reason: str, message: str, *, retry: bool = True) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retry = retry


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Body of an ERROR frame. `code`: refused, bad_message, crashed."""

    code: str
    reason: str = ""
    message: str = ""
    retry: bool = True


def to_failure(error: BaseException) -> Failure:
    """The ERROR body for an exception that ended a handler."""
    match error:
        case Refused():
            return Failure(code="refused", reason=error.reason, message=error.message, retry=error.retry)
        case ProtocolError():
            return Failure(code="bad_message", message=str(error), retry=False)
        case _:
            return Failure(code="crashed", reason=type(error).__name__, message=str(error))


def from_failure(failure: Failure) -> Exception:
    """The exception an asker sees for an ERROR body."""
    match failure.code:
        case "refused":
            return Refused(failure.reason, failure.message, retry=failure.retry)
        case "bad_message":
            return ProtocolError(failure.message)
        case _:
            return ActorDead(f"{failure.reason}: {failure.message}")
