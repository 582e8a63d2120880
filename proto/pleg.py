"""Messages the pleg actor receives, all from pod_workers."""

from __future__ import annotations

from proto.message import Message, Record


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
