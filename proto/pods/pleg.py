"""Messages that the pleg actor receives: processes to watch, CRI calls for other actors, and pulls to cancel."""

from __future__ import annotations

from proto.wire.message import Message, Record, Request


class Watch(Record, frozen=True, kw_only=True):
    """The init process of a container or sandbox."""

    pod_uid: str
    id: str
    """CRI ID of the container or sandbox."""
    pid: int
    """In the host's pid namespace, from the verbose info of ContainerStatus or PodSandboxStatus.

    0: the runtime does not report it. Then only the relist detects the end.
    """
    sandbox: bool = False


class WatchProcesses(Message, frozen=True, kw_only=True):
    """From pod_workers: processes to watch. `full`, after a start: watch only these. Idempotent by id."""

    watches: tuple[Watch, ...]
    full: bool = False


class ForgetPod(Message, frozen=True, kw_only=True):
    """From pod_workers: the pod has been removed; drop its watches. A repeat is harmless."""

    pod_uid: str


class RelistAge(Message, frozen=True, kw_only=True):
    """The age of the last complete list of the runtime's pods."""

    age_s: float
    """Since that list; before the first one, since the start of pleg."""


class GetRelistAge(Request[RelistAge], frozen=True, kw_only=True):
    """From node: pleg's health. A repeat is harmless."""


class RuntimeAnswer(Message, frozen=True, kw_only=True):
    """The runtime's answer."""

    response: bytes
    """The serialized CRI response message."""


class CallRuntime(Request[RuntimeAnswer], frozen=True, kw_only=True):
    """Make a CRI call for an actor with few calls, because a gRPC channel takes 2.5 MB of memory.

    Refused: the reason is Go's name of the gRPC code (`NotFound`), the message is the runtime's. A repeat is a second
    call.
    """

    rpc: str
    """Name of a unary rpc, `ListImages`."""
    request: bytes
    """The serialized CRI request message."""
    timeout_s: float


class CancelPull(Message, frozen=True, kw_only=True):
    """From image_pull: cancel PullImage calls of this image. Their asks are refused: Canceled.

    A repeat is harmless. After a loss the pull goes on, as far as the runtime gets.
    """

    image: str
    """Name in the call's ImageSpec."""
    pod_uid: str | None
    """UID in the call's PodSandboxConfig; empty for a call without one. None: the calls for each sandbox.

    With None image_pull ends a pull of its earlier process, whose sandbox it does not know.
    """
