"""Reads the SELinux mode, and warns that the agent does not relabel volumes."""

from __future__ import annotations

ENFORCE = "/sys/fs/selinux/enforce"
"""Contains `1` in enforcing mode. A machine without SELinux does not have the file."""
_MOST_BYTES = 16


def enforce(path: str = ENFORCE) -> str:
    """Return the file's content; empty when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""


def warning(enforced: str) -> str:
    """Return the warning for the agent's start, given the content of `enforce`; empty unless enforcing. Pure."""
    if enforced != "1":
        return ""
    return (
        "SELinux is enforcing on this node and the agent does not relabel volumes: containers cannot read "
        "volumes whose files have another label; label them with chcon -Rt container_file_t, or make SELinux permissive"
    )
