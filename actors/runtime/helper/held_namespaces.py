"""Makes namespaces that a user namespace owns, and keeps them until standard input ends.

No thread of the agent can: unshare(2) refuses a user namespace to a process with several threads.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from actors.runtime.helper.kernel import syscalls


def hold(kinds: Sequence[str]) -> None:
    """Write a byte when the user namespace is there. Wait for a byte, which says that its IDs are mapped.

    Then make the others, write a byte, and wait for the end. Raises OSError.
    """
    syscalls.unshare(syscalls.NEW["user"])
    os.write(1, b".")
    if not os.read(0, 1):
        return
    os.setresgid(0, 0, 0)  # the pod's root owns the files of what is made
    os.setresuid(0, 0, 0)
    flags = 0
    for kind in kinds:
        flags |= syscalls.NEW[kind]
    syscalls.unshare(flags)
    os.write(1, b".")
    os.read(0, 1)
