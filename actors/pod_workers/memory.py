"""What pod_workers remembers over a kill and no one else knows: back-offs, and who was turned away or evicted."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from actors._host import checkpoint, paths
from actors.pod_workers import back_off
from actors.pod_workers.back_off import BackOff

log = logging.getLogger(__name__)

VERSION = 1

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
        "rejected": [[uid, *why] for uid, why in rejected.items()],
    }
    try:
        checkpoint.save(path(root_dir), VERSION, data)
    except OSError as error:
        log.error("cannot write %s: %s", path(root_dir), error)
