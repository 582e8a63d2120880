"""The end of an rpc: an error with a gRPC status code and a message for the pod's events, or a client that is gone."""

from __future__ import annotations

from collections.abc import Callable

AtEnd = Callable[[Callable[[], None]], object]
"""Registers a callback for the end of a call, also by its client; returns False when the call is over already."""


class RpcError(Exception):
    """`code` is gRPC's name: NOT_FOUND, INVALID_ARGUMENT, ..."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def not_found(what: str, id_: str) -> RpcError:
    """No such sandbox, container or image."""
    return RpcError("NOT_FOUND", f"no {what} {id_!r}")


def invalid(message: str) -> RpcError:
    """The request can never succeed."""
    return RpcError("INVALID_ARGUMENT", message)


def unmet(message: str) -> RpcError:
    """The current state does not allow the request."""
    return RpcError("FAILED_PRECONDITION", message)
