"""The checkpoint of pod_workers: crash-loop back-offs, and the pods that were rejected or evicted.

Neither the runtime nor another actor knows these facts. A restarted actor reads them from pod_workers.json in the
checkpoint directory.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from actors._base import Actor
from actors._host.files import checkpoint, paths
from actors._host.node.shutdown import NOT_ADMITTED
from actors.pod_workers.model import back_off
from actors.pod_workers.model.back_off import RestartDelay

log = logging.getLogger(__name__)

VERSION = 1
SAVE_DELAY_S = 0.02
"""One write covers all changes of this time."""


def path(root_dir: str) -> str:
    """The file's path."""
    return os.path.join(paths.checkpoints_dir(root_dir), "pod_workers.json")


def load(root_dir: str) -> tuple[dict[tuple[str, str], RestartDelay], dict[str, tuple[str, str]]]:
    """(back-offs by pod UID and container name, (reason, message) of rejected and evicted pods by UID)."""
    data = checkpoint.load(path(root_dir), VERSION) or {}
    rejected = {uid: (reason, message) for uid, reason, message in data.get("rejected", [])}
    return back_off.from_plain(data.get("back_offs", [])), rejected


def save(
    root_dir: str, back_offs: Mapping[tuple[str, str], RestartDelay], rejected: Mapping[str, tuple[str, str]]
) -> None:
    """Write both. A write error is logged; a restart then forgets the changes."""
    data = {
        "back_offs": back_off.to_plain(dict(back_offs)),
        # A pod that was rejected because the machine shut down is decided on again after the boot.
        "rejected": [[uid, *why] for uid, why in rejected.items() if why[0] != NOT_ADMITTED],
    }
    try:
        checkpoint.save(path(root_dir), VERSION, data)
    except OSError as error:
        log.error("cannot write %s: %s; a restart forgets back-offs and rejected pods", path(root_dir), error)


class Checkpoint:
    """Owns the checkpointed values. Used in the actor's mailbox thread.

    Workers change `back_offs` and the admission queue changes `rejected`, both in place.
    """

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._saving = False
        self.back_offs, self.rejected = load(actor.settings.root_dir)

    def save_soon(self) -> None:
        """Write once for all changes of the next 20 ms."""
        if not self._saving:
            self._saving = True
            self._actor.after(SAVE_DELAY_S, self.save)

    def save(self) -> None:
        """Write now."""
        self._saving = False
        save(self._actor.settings.root_dir, self.back_offs, self.rejected)
