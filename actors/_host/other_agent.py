"""Notes that another node agent, such as a kubelet, has served this root directory since our last start.

A kubelet makes ROOT_DIR/pod-resources/kubelet.sock anew at each start, and leaves it at its end. Its mode tells whose
it is. A kubelet sets none, so the socket's owner has the x bit: a umask seldom takes it. Ours never has it, in every
release and after each restart of the actor (`serving/socket_proxy.py`). So no record of ours can be out of date.

The actor resources replaces the socket. So `supervisor start` looks before any actor runs, with the locks of the root
directory held. ROOT_DIR/nodevisor/other-agent.json keeps the identity of the last such socket. pod_workers compares it
with the identity in its checkpoint, so each socket counts once. When unsure, there was no other agent.
"""

from __future__ import annotations

import logging
import os
import stat

from actors._host.files import checkpoint, paths
from proto.common import logs

log = logging.getLogger(__name__)

VERSION = 1


def path(root_dir: str) -> str:
    """The file's path."""
    return os.path.join(paths.checkpoints_dir(root_dir), "other-agent.json")


def note(root_dir: str) -> None:
    """Keep the identity of another agent's socket, on the disk. At a start of the agent, before any actor. Blocks."""
    found = socket_of_other(paths.pod_resources_socket(root_dir))
    if not found or found == noted(root_dir):
        return
    log.log(logs.NOTICE, "another node agent has served root directory %s before this start", root_dir)
    try:
        checkpoint.save(path(root_dir), VERSION, found)
    except OSError as error:
        log.warning(
            "cannot write %s: %s; pods that another agent has ended may run again until the API server answers",
            path(root_dir), error,
        )  # fmt: skip


def noted(root_dir: str) -> str:
    """The identity of the last other agent's socket; empty when none was seen or the file cannot be used."""
    found = checkpoint.load(path(root_dir), VERSION)
    return found if isinstance(found, str) else ""


def socket_of_other(file: str) -> str:
    """The identity of this socket if another agent has made it, else empty. A chmod does not change it."""
    try:
        found = os.lstat(file)
    except OSError:
        return ""
    is_other = stat.S_ISSOCK(found.st_mode) and found.st_mode & stat.S_IXUSR
    return f"{found.st_ino} {found.st_mtime_ns}" if is_other else ""
