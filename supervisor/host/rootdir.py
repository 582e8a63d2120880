"""The root directory as a shared mount, so that mounts of pods and CSI drivers in it reach others and come from them.

Done by `supervisor start` before there is any actor, as the kubelet does (MakeRShared): on most machines everything is
shared already, and then nothing is changed.
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
    """One line of mountinfo, as far as it matters here."""

    point: str
    shared: bool


def make_shared(root_dir: str, mountinfo: str = MOUNTINFO) -> None:
    """Have the directory there, and shared. What cannot be done is a warning: only pods with mountPropagation need it.

    A mount of its own hides what is mounted below, so with something there it is left as it is.
    """
    try:
        os.makedirs(root_dir, 0o750, exist_ok=True)
        path = os.path.realpath(root_dir)
        on, below = around(path, Path(mountinfo).read_text())
        if on.shared:
            return
        if below:
            log.warning(
                "%s is not on a shared mount, and volumes are mounted in it (%s, ...): mountPropagation does not work "
                "until the agent is started with none there",
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
            on = found  # of several at one place, the last is on top
        elif point.startswith(f"{path}/"):
            below.append(found)
    return on, below


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True, text=True)
