"""Makes the root directory a shared mount, so that mounts propagate between it, pods and CSI drivers.

`supervisor start` does it before any actor runs, as the kubelet does (MakeRShared). On most machines all mounts are
shared, and nothing is changed.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from proto.common import logs

log = logging.getLogger(__name__)

MOUNTINFO = "/proc/self/mountinfo"
_OCTAL = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """One line of mountinfo: its mount point, and whether it is shared."""

    point: str
    shared: bool


def make_shared(root_dir: str, mountinfo: str = MOUNTINFO) -> None:
    """Create the directory and make it a shared mount. A failure is a warning: only mountPropagation needs it.

    With mounts below it nothing is changed, because a new mount would hide them.
    """
    try:
        os.makedirs(root_dir, 0o750, exist_ok=True)
        path = os.path.realpath(root_dir)
        on, below = around(path, Path(mountinfo).read_text())
        if on.shared:
            return
        if below:
            log.warning(
                "cannot make %s a shared mount: volumes are mounted in it (%s, ...); mountPropagation does not work "
                "until the agent starts without them",
                root_dir,
                below[0].point,
            )
            return
        if on.point != path:
            _mount("--bind", path, path)
        _mount("--make-rshared", path)
    except (OSError, subprocess.CalledProcessError) as error:
        problem = getattr(error, "stderr", "") or error
        log.warning("cannot make %s a shared mount: %s; mountPropagation does not work", root_dir, problem)
    else:
        log.log(logs.NOTICE, "made %s a shared mount, for mountPropagation", root_dir)


def around(path: str, mountinfo: str) -> tuple[Mount, list[Mount]]:
    """The mount that a real path is on, and those below it."""
    on, below = Mount("", False), []
    for line in mountinfo.splitlines():
        fields, _, _ = line.partition(" - ")
        _, _, _, _, escaped, _, *optional = fields.split(" ")
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), escaped)
        found = Mount(point, any(one.startswith("shared:") for one in optional))
        if f"{path}/".startswith(f"{point.rstrip('/')}/") and len(point) >= len(on.point):
            on = found  # of several mounts at one place, the last is on top
        elif point.startswith(f"{path}/"):
            below.append(found)
    return on, below


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True, text=True)
