"""Names of block devices."""

from __future__ import annotations

import os

DIRECTORY = "/sys/dev/block"


def device_path(numbers: str) -> str:
    """Return the path in /dev of the block device `major:minor`, as cAdvisor writes it; empty for an unknown one."""
    try:
        return f"/dev/{os.path.basename(os.readlink(f'{DIRECTORY}/{numbers}'))}"
    except OSError:
        return ""
