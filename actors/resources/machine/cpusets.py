"""Sets of CPUs as text such as `0-3,8`: the format of the kernel's lists and of k8s.io/utils/cpuset."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import pairwise

Cpus = frozenset[int]

_PART = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", re.ASCII)
_MOST_CPUS = 65536
"""Above the limit of any kernel. A range cannot fill the memory."""


class CpuListError(ValueError):
    """The text is no list of CPUs; the message says why."""


def parse(text: str) -> Cpus:
    """Return the CPUs of a list; none for an empty text. Raises CpuListError."""
    cpus: set[int] = set()
    for part in text.split(",") if text else ():
        match = _PART.fullmatch(part)
        if match is None:
            raise CpuListError(f"cannot read {text[:60]!r}: it is no list of CPUs such as 0-3,8")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last or last >= _MOST_CPUS:
            raise CpuListError(f"cannot read {text[:60]!r}: it has the range {part}")
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


def printed(cpus: Collection[int]) -> str:
    """Return the shortest list of these CPUs; empty for none."""
    ordered = sorted(cpus)
    if not ordered:
        return ""
    breaks = [at for at, (one, following) in enumerate(pairwise(ordered), 1) if following != one + 1]
    starts, ends = [0, *breaks], [*breaks, len(ordered)]
    runs = ((ordered[start], ordered[end - 1]) for start, end in zip(starts, ends, strict=True))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
