"""Parses lists of CPUs such as `0-3,8`, in the format of the kernel and k8s.io/utils/cpuset."""

from __future__ import annotations

import re

_PART = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", re.ASCII)
_MAX_CPUS = 65536
"""Upper limit, above that of any kernel, so that a range cannot fill the memory."""


class CpusetError(ValueError):
    """The text is not a list of CPUs. The message describes the syntax."""


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
