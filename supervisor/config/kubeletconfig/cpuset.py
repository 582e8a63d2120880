"""Lists of CPUs: `0-3,8`, as the kernel and k8s.io/utils/cpuset write them."""

from __future__ import annotations

import re

_PART = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", re.ASCII)
_MAX_CPUS = 65536
"""More than any kernel has; keeps a range from filling the memory."""


class CpusetError(ValueError):
    """The text is not a list of CPUs; the message says what one looks like."""


def parse_cpuset(text: str) -> frozenset[int]:
    """The CPUs of a list. Raises CpusetError."""
    cpus: set[int] = set()
    for part in text.split(",") if text else ():
        match = _PART.fullmatch(part)
        if match is None:
            raise CpusetError(f"must be a list of CPUs such as 0-3,8, not {text[:60]!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise CpusetError(f"the range {part} ends before it begins")
        if last >= _MAX_CPUS:
            raise CpusetError(f"there is no CPU {last}")
        cpus.update(range(first, last + 1))
    return frozenset(cpus)
