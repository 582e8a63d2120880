"""What pod_workers remembers over a kill and no one else knows: back-offs, and who was turned away or evicted."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from actors._host.files import checkpoint, paths
from actors._host.node.shutdown import NOT_ADMITTED
from actors.pod_workers.model import back_off
from actors.pod_workers.model.back_off import BackOff

if TYPE_CHECKING:
    from actors.pod_workers.actor import PodWorkers

log = logging.getLogger(__name__)

VERSION = 1
SAVE_DELAY_S = 0.02
"""One write for all changes of this time."""

BackOffs = Mapping[tuple[str, str], BackOff]
Rejected = Mapping[str, tuple[str, str]]


def path(root_dir: str) -> str:
    """The checkpoint."""
    return os.path.join(paths.checkpoints_dir(root_dir), "pod_workers.json")


def load(root_dir: str) -> tuple[dict[tuple[str, str], BackOff], dict[str, tuple[str, str]]]:
    """Back-offs by pod UID and container name; reason and message of those turned away, by UID."""
    data = checkpoint.load(path(root_dir), VERSION) or {}
    rejected = {uid: (reason, message) for uid, reason, message in data.get("rejected", [])}
    return back_off.from_plain(data.get("back_offs", [])), rejected


def save(root_dir: str, back_offs: BackOffs, rejected: Rejected) -> None:
    """Write both. A disk that takes nothing is logged: a restart then forgets them."""
    data = {
        "back_offs": back_off.to_plain(dict(back_offs)),
        # Who came too late, as the machine was going down, is asked again when it is back.
        "rejected": [[uid, *why] for uid, why in rejected.items() if why[0] != NOT_ADMITTED],
    }
    try:
        checkpoint.save(path(root_dir), VERSION, data)
    except OSError as error:
        log.error("cannot write %s: %s", path(root_dir), error)


class Checkpoint:
    """The actor's, and when it is written. Used in its mailbox thread."""

    def __init__(self, actor: PodWorkers) -> None:
        self._actor = actor
        self._saving = False

    def recall(self) -> None:
        """What was remembered, to where it is used."""
        back_offs, self._actor.admission_queue.rejected = load(self._actor.settings.root_dir)
        self._actor.node.back_offs.update(back_offs)

    def save_soon(self) -> None:
        """Write it once for all changes of the next 20 ms."""
        if not self._saving:
            self._saving = True
            self._actor.after(SAVE_DELAY_S, self.save)

    def save(self) -> None:
        """Write it now."""
        self._saving = False
        save(self._actor.settings.root_dir, self._actor.node.back_offs, self._actor.admission_queue.rejected)
