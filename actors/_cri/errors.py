"""The errors of CRI calls, a class for each reaction of callers, without gRPC.

`str(error)` is the runtime's text, which the kubelet shows in most messages. `grpc_text()` is the longer form that it
shows in the others.
"""

from typing import ClassVar


class CriError(Exception):
    """A CRI call failed; only the runtime's text says why. Retry with back-off and show the text."""

    code: str
    """gRPC status by the name Go prints: `NotFound`, `DeadlineExceeded`, `Unknown`, ..."""
    details: str
    """The runtime's own words."""
    rpc: str
    """Name of the rpc that failed: `RunPodSandbox`."""

    def __init__(self, code: str, details: str, rpc: str = "") -> None:
        super().__init__(code, details, rpc)
        self.code, self.details, self.rpc = code, details, rpc

    def __str__(self) -> str:
        return self.details

    def grpc_text(self) -> str:
        """The error as a Go gRPC client prints it, for the kubelet's messages that contain it."""
        return f"rpc error: code = {self.code} desc = {self.details}"

    @property
    def task_runs(self) -> bool:
        """True when containerd deletes nothing because a task runs that it does not signal; see `actors._host.shim`."""
        return "cannot delete running task" in self.details

    _classes: ClassVar[dict[str, type["CriError"]]] = {}

    @staticmethod
    def of(code: str, details: str, rpc: str = "") -> "CriError":
        """The error for a gRPC status, of the class for its code."""
        # containerd listens before its CRI service has restored its state, and answers with status Unknown then.
        if code == "Unknown" and "server is not initialized yet" in details:
            return RuntimeDown(code, details, rpc)
        return CriError._classes.get(code, CriError)(code, details, rpc)


class RuntimeDown(CriError):
    """No runtime answers at the endpoint, or not yet. The call may have had its effect; try again soon."""


class CriDeadline(CriError):
    """A deadline passed: the call's, or the runtime's own (ExecSync's timeout). The call may still take effect."""


class NotFound(CriError):
    """The sandbox, container or image does not exist. For a removal this is success."""


class Unimplemented(CriError):
    """The runtime does not have this rpc. Do not call it again."""


CriError._classes.update(
    Unavailable=RuntimeDown, DeadlineExceeded=CriDeadline, NotFound=NotFound, Unimplemented=Unimplemented
)
