"""Mounts the Python interpreter read-only for our helper, so that no container can write to it.

The helper becomes the container's program by executing it. That program may be /proc/self/exe, which is the interpreter
until then: a file of the machine that root in a container could overwrite (CVE-2019-5736). Through this mount it is
read-only for all processes, and a container cannot change the mount. This costs nothing at a start. A sealed copy in
memory would cost the interpreter's size each time.

The interpreter's shared libraries need no such mount. A container reaches them only through /proc/PID/map_files, which
needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE on the machine. The helper holds no descriptor of a library.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

from actors._host.files import mounts
from actors.runtime.model.namespaces import unmount_all
from proto.common.interpreter import UTF8

_DIRECTORY = "interpreter"
_TRIAL_S = 30.0
log = logging.getLogger(__name__)


def seal(run: Path) -> str:
    """Mount the interpreter below `run`; return the path to execute. Blocks. Raises OSError, and leaves no mount then.

    Mounts the directory above the interpreter's: it finds its library and modules relative to its own path.
    """
    real = Path(os.path.realpath(sys.executable))
    target = run / _DIRECTORY
    release(run)
    target.mkdir(mode=0o700, exist_ok=True)
    mounts.bind(str(real.parents[1]), str(target))
    path = target / real.relative_to(real.parents[1])
    try:
        mounts.mount("", str(target), "", "", mounts.MS_BIND | mounts.MS_REMOUNT | mounts.MS_RDONLY)
        subprocess.run(
            [path, *UTF8, "-I", "-S", "-c", "import ctypes"], timeout=_TRIAL_S, check=True, capture_output=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        release(run)
        raise OSError(0, f"the interpreter does not run there: {error}", str(path)) from error
    return str(path)


def release(run: Path) -> None:
    """Unmount it. Idempotent. Processes that use it continue. Raises OSError."""
    unmount_all(str(run / _DIRECTORY))
