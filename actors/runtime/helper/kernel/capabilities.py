"""Names and masks of Linux capabilities."""

from __future__ import annotations

from collections.abc import Iterable

_NAMES = (
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE "
    "NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN "
    "SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE "
    "MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"
)
CAPABILITIES = tuple(_NAMES.split())
"""In the order of their numbers, capabilities(7), without the prefix CAP_."""


def mask(names: Iterable[str]) -> int:
    """The mask of names with the prefix CAP_; ignores unknown names."""
    numbers = {f"CAP_{name}": number for number, name in enumerate(CAPABILITIES)}
    total = 0
    for name in names:
        if name in numbers:
            total |= 1 << numbers[name]
    return total
