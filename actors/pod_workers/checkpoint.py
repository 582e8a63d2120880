"""The checkpoint of pod_workers: crash-loop back-offs, rejected and evicted pods, and ends under way.

Neither the runtime nor another actor knows these facts. A restarted actor reads them from pod_workers.json in the
checkpoint directory.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from actors._base import Actor
from actors._host.files import checkpoint, paths
from actors._host.node.shutdown import NOT_ADMITTED
from actors._host.system import boot_id
from actors.pod_workers.model import back_off, end_record
from actors.pod_workers.model.back_off import Replaced, RestartDelay
from actors.pod_workers.model.end_record import ContainerEnd, EndRecord
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

VERSION = 1
SAVE_SOON_S = 0.02
"""Delay of the first write after a quiet time, to include changes that come together."""
SAVE_PERIOD_S = 0.25
"""At most one write in this time, but for `Checkpoint.save`."""
SAVE_DEADLINE_S = 10.0


def path(root_dir: str) -> str:
    """The file's path."""
    return os.path.join(paths.checkpoints_dir(root_dir), "pod_workers.json")


def recent_path(root_dir: str) -> str:
    """The path of a newer copy, which need not be on the disk yet: a power cut may lose or damage it."""
    return os.path.join(paths.checkpoints_dir(root_dir), "pod_workers-recent.json")


@dataclass(frozen=True, slots=True)
class Saved:
    """The content of the checkpoint."""

    back_offs: dict[tuple[str, str], RestartDelay] = field(default_factory=dict)
    """By pod UID and container name."""
    rejected: dict[str, tuple[str, str]] = field(default_factory=dict)
    """(reason, message) of rejected and evicted pods by UID."""
    ends: dict[str, EndRecord] = field(default_factory=dict)
    """By pod UID. Empty after a reboot."""
    container_ends: dict[tuple[str, str], ContainerEnd] = field(default_factory=dict)
    """By pod UID and CRI ID. Empty after a reboot."""
    replaced: dict[str, dict[str, Replaced]] = field(default_factory=dict)
    """By pod UID and container name: kills whose start has not followed yet. Inner dicts do not change."""
    number: int = 0
    """Of the write. It grows."""


def load(root_dir: str) -> Saved:
    """Read the newer of the two files; without them all parts are empty."""
    files = [checkpoint.load(one, VERSION) or {} for one in (path(root_dir), recent_path(root_dir))]
    data = max(files, key=lambda file: file.get("number", 0))
    rejected = {uid: (reason, message) for uid, reason, message in data.get("rejected", [])}
    of_this_boot = data if data.get("boot_id") == boot_id() else {}
    ends = end_record.from_plain(of_this_boot.get("ends", []))
    container_ends = end_record.containers_from_plain(of_this_boot.get("container_ends", []))
    replaced = back_off.replaced_from_plain(data.get("replaced", []))
    back_offs = back_off.from_plain(data.get("back_offs", []))
    return Saved(back_offs, rejected, ends, container_ends, replaced, data.get("number", 0))


class Checkpoint:
    """Owns the checkpointed values. Used in the actor's mailbox thread, but for `save` and `outlive_kill`.

    Workers change all but `rejected`, which the admission queue changes, in place.
    """

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._saving = self._changed = False
        self._saved_at = 0.0
        self._writing = threading.Lock()
        self._writing_recent = threading.Lock()
        self.saved = load(actor.settings.root_dir)
        self._numbers = itertools.count(self.saved.number + 1)
        self._asked = self._written = 0
        """Calls of `outlive_kill`, and the last one whose values are in the recent file."""
        self._order = threading.Lock()
        """Held for moments: while a call or a write gets its number, and the write its values."""

    def save_soon(self) -> None:
        """Write once for all changes of the next moments, in a pool thread: the disk may take long."""
        self._changed = True
        if not self._saving:
            self._saving = True
            wait_s = max(SAVE_SOON_S, self._saved_at + SAVE_PERIOD_S - time.monotonic())
            self._actor.after(wait_s, lambda: self._actor.spawn(self._save_in_thread(), "save_checkpoint"))

    async def _save_in_thread(self) -> None:
        self._changed = False
        self._saved_at = time.monotonic()
        try:
            await self._in_thread(self.save)
        finally:
            self._saving = False
        if self._changed:
            self.save_soon()

    async def outlive_kill(self) -> None:
        """Return when a kill of this process loses no value of now. It waits for no disk. From any thread.

        Calls that come together share a write.
        """
        with self._order:
            self._asked += 1
            call = self._asked
        await self._in_thread(functools.partial(self._save_recent, call))

    async def _in_thread(self, write: Callable[[], None]) -> None:
        try:
            await self._actor.blocking(SAVE_DEADLINE_S, write)
        except AskTimeout as error:
            self._log_failure(error)

    def _save_recent(self, call: int) -> None:
        with self._writing_recent:
            if call > self._written:
                self._written = self._asked  # their values are there already
                self._write(recent_path(self._actor.settings.root_dir), sync=False)

    def save(self) -> None:
        """Write now, and return when it is on the disk. From any thread; the later of two writes has the later values.

        An error is logged; a restart then forgets the changes.
        """
        with self._writing:
            self._write(path(self._actor.settings.root_dir), sync=True)

    def _write(self, file: str, *, sync: bool) -> None:
        boot, saved = boot_id(), self.saved
        with self._order:  # the file with the higher number has the later values
            data = {
                "number": next(self._numbers),
                "boot_id": boot,
                "back_offs": back_off.to_plain(dict(saved.back_offs)),
                "replaced": back_off.replaced_to_plain(dict(saved.replaced)),
                "ends": end_record.to_plain(dict(saved.ends)),
                "container_ends": end_record.containers_to_plain(dict(saved.container_ends)),
                # A pod that was rejected because the machine shut down is decided on again after the boot.
                "rejected": [[uid, *why] for uid, why in dict(saved.rejected).items() if why[0] != NOT_ADMITTED],
            }
        try:
            checkpoint.save(file, VERSION, data, sync=sync)
        except OSError as error:
            self._log_failure(error)

    def _log_failure(self, error: Exception) -> None:
        file = path(self._actor.settings.root_dir)
        log.error("cannot write %s: %s; a restart forgets back-offs, rejected pods and grace periods", file, error)
