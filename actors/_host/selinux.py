"""Whether SELinux is enforced on this machine, and what that means for volumes."""

from __future__ import annotations

ENFORCE = "/sys/fs/selinux/enforce"
"""`1` while policies are enforced. Not there on a machine without SELinux."""
_MOST_BYTES = 16


def enforce(path: str = ENFORCE) -> str:
    """The file's content; empty when there is none to read."""
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""


def warning(enforced: str) -> str:
    """What the agent says at its start, from the content of `enforce`; empty where volumes are readable. Pure."""
    if enforced != "1":
        return ""
    return (
        "SELinux is enforcing on this node and the agent does not relabel volumes: containers cannot read "
        "volumes whose files have another label; label them with chcon -Rt container_file_t, or make SELinux permissive"
    )
