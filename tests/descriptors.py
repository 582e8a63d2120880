"""The open descriptors of this process."""

from __future__ import annotations

import contextlib
import os
from collections import Counter


def opened() -> Counter[str]:
    """The number of open descriptors of each file, such as `pipe:[1234]`.

    Subtract what was open before: objects of earlier tests may close theirs meanwhile, and numbers are used again.
    """
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, as the listing's own
            found[os.readlink(f"/proc/self/fd/{name}")] += 1
    return found
