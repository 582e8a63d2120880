"""Messages the pleg actor receives.

From pod_workers what to watch; from actors that seldom need the runtime (stats, the GCs) their calls.
"""

from __future__ import annotations

from proto.wire.message import Message, Record, Request


class Watch(Record, frozen=True, kw_only=True):
    """One init process whose end matters."""

    pod_uid: str
    id: str
    """CRI ID of the container or sandbox."""
    pid: int
    """In the host's pid namespace, from the verbose info of ContainerStatus or PodSandboxStatus; 0 when the runtime
    does not tell, and then only the relist sees the end."""
    sandbox: bool = False


class WatchProcesses(Message, frozen=True, kw_only=True):
    """Watch these too (full=False), or exactly these (full=True, when either side started). Idempotent by id."""

    watches: tuple[Watch, ...]
    full: bool = False


class ForgetPod(Message, frozen=True, kw_only=True):
    """The pod is gone for good; drop its watches. A repeat is harmless."""

    pod_uid: str


class RuntimeAnswer(Message, frozen=True, kw_only=True):
    """What the runtime answered."""

    response: bytes
    """The serialized CRI response message."""


class CallRuntime(Request[RuntimeAnswer], frozen=True, kw_only=True):
    """Make a CRI call for an actor that makes few: a gRPC channel of its own is 2.5 MB of memory.

    Refused: the gRPC code by Go's name (`NotFound`) as reason, the runtime's text as message. A repeat is a second
    call.
    """

    rpc: str
    """`ListImages`; any unary one."""
    request: bytes
    """The serialized CRI request message."""
    timeout_s: float
