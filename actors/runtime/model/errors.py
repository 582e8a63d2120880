"""What an rpc fails with: a gRPC code by name, and a text for the person who reads the pod's events."""

from __future__ import annotations


class RpcError(Exception):
    """`code` is gRPC's name: NOT_FOUND, INVALID_ARGUMENT, ..."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def not_found(what: str, id_: str) -> RpcError:
    """No such sandbox, container or image."""
    return RpcError("NOT_FOUND", f"no {what} {id_!r}")


def invalid(message: str) -> RpcError:
    """The request can never be met."""
    return RpcError("INVALID_ARGUMENT", message)


def unmet(message: str) -> RpcError:
    """The state does not allow it now."""
    return RpcError("FAILED_PRECONDITION", message)
