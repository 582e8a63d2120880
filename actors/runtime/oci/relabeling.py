"""Labels files for a container in a process of the helper, which a file system that hangs cannot keep us in."""

from __future__ import annotations

import errno
import subprocess
import threading
from collections.abc import Sequence

from actors.runtime.oci.helper import helper_command

RELABEL_S = 100.0
"""Time limit: the kubelet's calls to a runtime end after 120 s. A file takes some 10 us, so it is for millions."""
_MOST_SAID = 2000


def relabel(paths: Sequence[str], label: str) -> None:
    """Give files and all below them a label. `paths` have no links. Raises OSError.

    A repeat goes on where the time limit or a kill ended it.
    """
    if not paths:
        return
    process = subprocess.Popen(
        [*helper_command(""), "relabel", label, *paths],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd="/",
    )
    what = f"cannot label {', '.join(paths)[:_MOST_SAID]} for SELinux"
    try:
        said = process.communicate(timeout=RELABEL_S)[1].decode(errors="replace").strip()[:_MOST_SAID]
    except subprocess.TimeoutExpired:
        process.kill()
        # A thread waits for its end: the kernel may hold it in a file system that hangs.
        threading.Thread(target=process.communicate, name="relabel", daemon=True).start()
        raise OSError(errno.ETIMEDOUT, f"{what} within {RELABEL_S:g} s; the next try goes on with the rest") from None
    if process.returncode != 0:
        raise OSError(0, f"{what}: {said or f'exit code {process.returncode}'}")
