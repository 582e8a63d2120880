"""Makes the root directory a shared mount, so that mounts propagate between it, pods and CSI drivers.

`supervisor start` does it before any actor runs, as the kubelet does (MakeRShared). On most machines all mounts are
shared, and nothing is changed.
"""

from __future__ import annotations

import logging
import os
import subprocess

from proto.common import logs
from proto.common.machine import mountinfo
from proto.common.machine.mountinfo import Mount

log = logging.getLogger(__name__)

ROOT = Mount(0, "", "", shared=False, fs_type="", options="")
"""Stands for the mount of a path in a table that has none."""


def make_shared(root_dir: str) -> None:
    """Create the directory and make it a shared mount. A failure is a warning: only mountPropagation needs it.

    With mounts below it nothing is changed, because a new mount would hide them.
    """
    try:
        os.makedirs(root_dir, 0o750, exist_ok=True)
        path = os.path.realpath(root_dir)
        on, below = around(path, mountinfo.read())
        if on.shared:
            return
        if below:
            log.warning(
                "cannot make %s a shared mount: volumes are mounted in it (%s, ...); mountPropagation does not work "
                "until the agent starts without them",
                root_dir,
                below[0].mount_point,
            )
            return
        if on.mount_point != path:
            _mount("--bind", path, path)
        _mount("--make-rshared", path)
    except (OSError, subprocess.CalledProcessError) as error:
        problem = getattr(error, "stderr", "") or error
        log.warning("cannot make %s a shared mount: %s; mountPropagation does not work", root_dir, problem)
    else:
        log.log(logs.NOTICE, "made %s a shared mount, for mountPropagation", root_dir)


def around(path: str, table: bytes) -> tuple[Mount, list[Mount]]:
    """The mount that a real path is on, and those below it."""
    on, below = ROOT, []
    for mount in mountinfo.mounts(table):
        point = mount.mount_point
        if f"{path}/".startswith(f"{point.rstrip('/')}/") and len(point) >= len(on.mount_point):
            on = mount  # of several mounts at one place, the last is on top
        elif point.startswith(f"{path}/"):
            below.append(mount)
    return on, below


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True, text=True)
