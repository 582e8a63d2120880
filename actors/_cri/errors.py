"""What can go wrong with a CRI call, one class for each thing a caller does about it. Knows nothing of gRPC.

`str(error)` is the runtime's own text, which is what the kubelet shows in most messages; `grpc_text()` is the longer
form that it shows in the others.
"""

from typing import ClassVar


class CriError(Exception):
    """A CRI call failed for a reason that only the runtime's text tells. Retry with back-off and show the text."""

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
        """The error as a Go gRPC client prints it, for the messages where the kubelet passes that on."""
        return f"rpc error: code = {self.code} desc = {self.details}"

    _classes: ClassVar[dict[str, type["CriError"]]] = {}

    @staticmethod
    def of(code: str, details: str, rpc: str = "") -> "CriError":
        """The error of the right class for a gRPC status."""
        # containerd listens before its CRI service has recovered its state, and says so with status Unknown.
        if code == "Unknown" and "server is not initialized yet" in details:
            return RuntimeDown(code, details, rpc)
        return CriError._classes.get(code, CriError)(code, details, rpc)


class RuntimeDown(CriError):
    """Nobody answers at the endpoint, or not yet. Nothing is known about what the call did; try again soon."""


class CriDeadline(CriError):
    """A deadline passed: the call's, or the runtime's own (an ExecSync over its timeout). It may still take effect."""


class NotFound(CriError):
    """The sandbox, container or image is not there. For whoever wanted it gone this is success."""


class Unimplemented(CriError):
    """The runtime does not have this rpc; do without from now on."""


CriError._classes.update(
    Unavailable=RuntimeDown, DeadlineExceeded=CriDeadline, NotFound=NotFound, Unimplemented=Unimplemented
)
