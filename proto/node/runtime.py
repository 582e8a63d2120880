"""The embedded container runtime: its CRI socket, the programs that it needs, and the messages beside CRI.

Containers, sandboxes and images are managed over CRI. The messages are for information that CRI lacks.
"""

from __future__ import annotations

import os

from proto.wire.message import Message, Record, Request

EMBEDDED = "embedded"
"""Value of containerRuntimeEndpoint for our own runtime, even when others are present."""
OCI_PROGRAMS = ("crun", "runc")
"""OCI runtimes in order of preference. crun starts a container in a fifth of runc's time."""
ISOLATION = "NODEVISOR_ISOLATION"
"""Environment variable: the isolation level, 1 to 3. By default the machine's first available level."""
OCI_PROGRAM = "NODEVISOR_OCI_RUNTIME"
"""Environment variable: the only one of OCI_PROGRAMS that new pods may have. By default all that are installed."""
CDI_DIRECTORIES = "NODEVISOR_CDI_DIRS"
"""Environment variable: the directories of CDI specifications, with colons between them."""
TEMPORARY = "NODEVISOR_TEMPORARY"
"""Environment variable: 1 for an agent with temporary directories, whose images need no fsync."""
PROGRAMS_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def socket_path(run_dir: str) -> str:
    """The runtime's CRI socket in the run directory."""
    return os.path.join(run_dir, "cri.sock")


def endpoint(run_dir: str) -> str:
    """The CRI endpoint, `unix://PATH`."""
    return f"unix://{socket_path(run_dir)}"


class PullUnderWay(Record, frozen=True, kw_only=True):
    """The progress of an image pull."""

    name: str
    """The image's full name."""
    began: float
    """Unix seconds."""
    done_bytes: int = 0
    total_bytes: int = 0
    """Compressed size of all layers, present ones too; 0 until the manifest is read."""
    layers_done: int = 0
    layers: int = 0


class PullsUnderWay(Message, frozen=True, kw_only=True):
    """Running pulls, oldest first."""

    pulls: tuple[PullUnderWay, ...]


class ListPulls(Request[PullsUnderWay], frozen=True, kw_only=True):
    """From the command line: the running image pulls and their progress. A repeat is harmless."""
