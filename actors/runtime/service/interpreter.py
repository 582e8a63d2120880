"""The interpreter that runs our own OCI runtime, behind a read-only mount, so that no container can write to it.

The helper becomes the container's program by executing it. That program may be /proc/self/exe, which is the helper's
interpreter until then: a file of the machine that root in a container could overwrite (CVE-2019-5736). Opened through
this mount it is read-only for all who have it, and a container cannot change the mount. It costs nothing at a start; a
sealed copy in memory would cost the interpreter's size each time.

Its shared libraries need no such mount. A container reaches them by /proc/PID/map_files alone, for which the kernel
wants CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE of the machine; the helper holds no descriptor of one.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

from actors._host.files import mounts
from actors.runtime.model.namespaces import unmount_all

_DIRECTORY = "interpreter"
_TRIAL_S = 30.0
log = logging.getLogger(__name__)


def seal(run: Path) -> str:
    """The path to execute it by, below `run`. Blocks. Raises OSError when it cannot be had.

    The mount is of the directory above the interpreter's: it finds its library, and its modules, from where it is.
    """
    real = Path(os.path.realpath(sys.executable))
    target = run / _DIRECTORY
    release(run)
    target.mkdir(mode=0o700, exist_ok=True)
    mounts.bind(str(real.parents[1]), str(target))
    mounts.mount("", str(target), "", "", mounts.MS_BIND | mounts.MS_REMOUNT | mounts.MS_RDONLY)
    path = target / real.relative_to(real.parents[1])
    try:
        subprocess.run([path, "-I", "-S", "-c", "import ctypes"], timeout=_TRIAL_S, check=True, capture_output=True)
    except subprocess.SubprocessError as error:
        release(run)
        raise OSError(0, f"it does not run from there: {error}", str(path)) from error
    return str(path)


def release(run: Path) -> None:
    """Take the mount away. Idempotent. Raises OSError. Processes that run by it go on."""
    unmount_all(str(run / _DIRECTORY))
