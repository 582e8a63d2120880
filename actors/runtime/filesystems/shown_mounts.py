"""Shows a container its root file system and its mounts where the users of its pod may reach them.

An OCI runtime mounts as root of the pod's user namespace, a user of the machine that may not enter the agent's
directories. So it runs in a mount namespace with a directory in /run that the pod's group may enter. Each source has a
mount there (helper/shown_mounts.py). Files of volumes appear there with the pod's IDs: runc before 1.2 makes
no ID-mapped mounts. containerd has such directories, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from actors.runtime.model.records import ShownMount
from actors.runtime.model.user_mapping import PodUsers
from actors.runtime.oci.helper import helper_command
from actors.runtime.oci.runtime import LOG

DIRECTORY = Path("/run/nodevisor-users")
"""Mount point in these namespaces."""
ROOT = DIRECTORY / "root"
"""The container's root file system, or that of a sandbox's pause process. The machine has an empty directory there.

runc exec begins in it.
"""
_PLAN = "shown.json"


def place(number: int) -> str:
    """Path of the mount with this number."""
    return str(DIRECTORY / str(number))


def command(
    run: Sequence[str], directory: Path, users: PodUsers, root: Path, mounts: Sequence[ShownMount]
) -> list[str]:
    """The command that makes the mounts and executes `run`, the OCI runtime's start of a container. Raises OSError.

    `directory` is the container's: it gets the plan, and the error in the OCI runtime's log. `root` is the root file
    system's directory.
    """
    for path in (DIRECTORY, ROOT):
        path.mkdir(mode=0o700, exist_ok=True)
    plan = {
        "directory": str(DIRECTORY),
        "group": users.ids.first,
        "namespace": users.namespace,
        # The layers are mapped already. The pod would own their devices.
        "root": ShownMount(source=str(root), mapped=False, recursive=False, follows=False, options=("nodev",)),
        "mounts": mounts,
        "command": run,
    }
    file = directory / _PLAN
    file.write_bytes(msgspec.json.encode(plan))
    return [*helper_command(""), "--log", str(directory / LOG), "show-mounts", str(file)]
