"""The API server's pods that this node has accepted, on disk: what runs again after a reboot without that server.

One small file for each, in ROOT_DIR/nodevisor/api-pods, from the pod's admission until nothing of it runs any more or
the server has it no longer. No status, and no Secret: a pod only names those. Written within milliseconds, and made
safe from a power cut a little later, for all of them together, because the runtime wants the same disk.
"""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from actors._host.files import checkpoint, paths
from proto.v1 import Pod
from proto.v1.status import NO_STATUS
from proto.wire.errors import AskTimeout

if TYPE_CHECKING:
    from actors.pod_workers.actor import PodWorkers

log = logging.getLogger(__name__)

VERSION = 1
WRITE_DEADLINE_S = 10.0
SYNC_AFTER_S = 2.0


class ApiPodCheckpoint:
    """Used in the actor's mailbox thread."""

    def __init__(self, actor: PodWorkers) -> None:
        self._actor = actor
        self._directory = Path(paths.checkpoints_dir(actor.settings.root_dir), "api-pods")
        self._pods: dict[str, Pod] = {}
        self._unwritten: dict[str, Pod | None] = {}
        """None: the file is to go."""
        self._unsynced: set[str] = set()
        self._writing = False

    def load(self) -> list[Pod]:
        """Those of earlier lives. What cannot be read is told, and left out."""
        for path in sorted(self._directory.glob("*.json")):
            data = checkpoint.load(path, VERSION)
            try:
                pod = msgspec.convert(data, Pod) if data is not None else None
            except msgspec.ValidationError as error:
                log.warning("cannot use the checkpoint %s: %s; going on without it", path, error)
                pod = None
            if pod is not None and pod.metadata.uid == path.stem:
                self._pods[path.stem] = pod
            else:
                self._unwritten[path.stem] = None
        return list(self._pods.values())

    def keep(self, pod: Pod) -> None:
        """The pod is accepted, or its object has changed since."""
        uid, kept = pod.metadata.uid, as_kept(pod)
        if self._pods.get(uid) != kept:
            self._pods[uid] = kept
            self._put(uid, kept)

    def changed(self, pod: Pod) -> None:
        """The object of a pod has changed, which need not be an accepted one."""
        if pod.metadata.uid in self._pods:
            self.keep(pod)

    def forget(self, uid: str) -> None:
        """It is over, or the server does not have it any more."""
        if self._pods.pop(uid, None) is not None:
            self._put(uid, None)

    def _put(self, uid: str, pod: Pod | None) -> None:
        self._unwritten[uid] = pod
        if not self._writing:
            self._writing = True
            self._actor.spawn(self._write_all(), "write_accepted")

    async def _write_all(self) -> None:
        try:
            while self._unwritten:
                batch, self._unwritten = self._unwritten, {}
                try:
                    await self._actor.blocking(WRITE_DEADLINE_S, write, self._directory, batch)
                except (OSError, AskTimeout) as error:
                    log.error("cannot write %s: %s; pods would not run after a reboot", self._directory, error)
                    continue
                if not self._unsynced:
                    self._actor.after(SYNC_AFTER_S, lambda: self._actor.spawn(self._sync(), "sync_accepted"))
                self._unsynced.update(batch)
        finally:
            self._writing = False

    async def _sync(self) -> None:
        uids, self._unsynced = self._unsynced, set()
        try:
            await self._actor.blocking(WRITE_DEADLINE_S, sync, self._directory, uids)
        except (OSError, AskTimeout) as error:
            log.warning("cannot sync %s: %s; a power cut now could lose pods", self._directory, error)


def as_kept(pod: Pod) -> Pod:
    """What a node needs to run the pod."""
    return replace(pod, metadata=replace(pod.metadata, resource_version=None, managed_fields=()), status=NO_STATUS)


def write(directory: Path, batch: dict[str, Pod | None]) -> None:
    """Write and remove files. In a pool thread. Raises OSError."""
    save = functools.partial(checkpoint.save, sync=False)
    for uid, pod in batch.items():
        path = directory / f"{uid}.json"
        if pod is None:
            path.unlink(missing_ok=True)
        else:
            save(path, VERSION, pod)


def sync(directory: Path, uids: set[str]) -> None:
    """Have the kernel write those files, and their names. In a pool thread. Raises OSError."""
    for name in (*(f"{uid}.json" for uid in uids), "."):
        try:
            descriptor = os.open(directory / name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
