"""The embedded container runtime, for who decides to use it and for itself: where it serves CRI, and what it needs.

What it does it is asked for over CRI; its actor's messages are for what CRI has no words for.
"""

from __future__ import annotations

import os

from proto.wire.message import Message, Record, Request

EMBEDDED = "embedded"
"""In place of a socket: our own runtime, whatever others are there."""
OCI_PROGRAMS = ("crun", "runc")
"""One of these runs the containers; the first that is there and can: crun starts one in a fifth of runc's time."""
ISOLATION = "NODEVISOR_ISOLATION"
"""Environment variable: the isolation level to use, 1 to 3, instead of the first that the machine offers."""
TEMPORARY = "NODEVISOR_TEMPORARY"
"""Environment variable: 1 for an agent whose directories go with it. New images do not wait for the disk then."""
PROGRAMS_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def socket_path(run_dir: str) -> str:
    """Its socket in the run directory."""
    return os.path.join(run_dir, "cri.sock")


def endpoint(run_dir: str) -> str:
    """The same as CRI's clients want it."""
    return f"unix://{socket_path(run_dir)}"


class PullUnderWay(Record, frozen=True, kw_only=True):
    """How far one pull is."""

    name: str
    """The image's, in full."""
    began: float
    """Unix seconds."""
    done_bytes: int = 0
    total_bytes: int = 0
    """Of its layers, compressed, also those that were here before; 0 until the manifest is here."""
    layers_done: int = 0
    layers: int = 0


class PullsUnderWay(Message, frozen=True, kw_only=True):
    """The oldest first."""

    pulls: tuple[PullUnderWay, ...]


class ListPulls(Request[PullsUnderWay], frozen=True, kw_only=True):
    """For consoles: the image pulls under way, and how far they are. A repeat is harmless."""
