"""Keeps the admitted API pods on disk, so that they run again after a reboot without the API server.

One file per pod in ROOT_DIR/nodevisor/api-pods, from admission until the pod has terminated or the server has deleted
it. A file holds no Secret, as a pod only names its Secrets. Of the status it holds the names of resource claims. A file
is written within milliseconds. It is synced to disk 2 s later, together with all others, because the runtime uses the
same disk.
"""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path

import msgspec
from msgspec.structs import replace

from actors._base import Actor
from actors._host.files import checkpoint, paths
from proto.v1 import Pod
from proto.v1.status import PodStatus
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

VERSION = 1
WRITE_DEADLINE_S = 10.0
SYNC_AFTER_S = 2.0


class ApiPodCheckpoint:
    """Used in the actor's mailbox thread."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._directory = Path(paths.checkpoints_dir(actor.settings.root_dir), "api-pods")
        self._pods: dict[str, Pod] = {}
        self._unwritten: dict[str, Pod | None] = {}
        """By UID; None: the file is to be removed."""
        self._unsynced: set[str] = set()
        self._writing = False

    def load(self) -> list[Pod]:
        """The pods on disk. A file that cannot be read is logged and removed."""
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
        """Write an admitted pod, if it differs from what is on disk."""
        uid, stored = pod.metadata.uid, needed(pod)
        if self._pods.get(uid) != stored:
            self._pods[uid] = stored
            self._put(uid, stored)

    def changed(self, pod: Pod) -> None:
        """Rewrite a pod whose object has changed, if it was admitted."""
        if pod.metadata.uid in self._pods:
            self.keep(pod)

    def forget(self, uid: str) -> None:
        """Remove the file of a pod."""
        if self._pods.pop(uid, None) is not None:
            self._put(uid, None)

    def _put(self, uid: str, pod: Pod | None) -> None:
        self._unwritten[uid] = pod
        if not self._writing:
            self._writing = True
            self._actor.spawn(self._write_all(), "write_api_pods")

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
                    self._actor.after(SYNC_AFTER_S, lambda: self._actor.spawn(self._sync(), "sync_api_pods"))
                self._unsynced.update(batch)
        finally:
            self._writing = False

    async def _sync(self) -> None:
        uids, self._unsynced = self._unsynced, set()
        try:
            await self._actor.blocking(WRITE_DEADLINE_S, sync, self._directory, uids)
        except (OSError, AskTimeout) as error:
            log.warning("cannot sync %s: %s; a power cut now could lose pods", self._directory, error)


def needed(pod: Pod) -> Pod:
    """The parts of the object that a node needs to run the pod.

    Without the names of its claims, a container would start without the devices that the scheduler chose for it.
    """
    status = PodStatus(
        resource_claim_statuses=pod.status.resource_claim_statuses,
        extended_resource_claim_status=pod.status.extended_resource_claim_status,
    )
    return replace(pod, metadata=replace(pod.metadata, resource_version=None, managed_fields=()), status=status)


def write(directory: Path, batch: dict[str, Pod | None]) -> None:
    """Write and remove files. Runs in a pool thread. Raises OSError."""
    save = functools.partial(checkpoint.save, sync=False)
    for uid, pod in batch.items():
        path = directory / f"{uid}.json"
        if pod is None:
            path.unlink(missing_ok=True)
        else:
            save(path, VERSION, pod)


def sync(directory: Path, uids: set[str]) -> None:
    """Sync the files of these UIDs and their directory. Runs in a pool thread. Raises OSError."""
    for name in (*(f"{uid}.json" for uid in uids), "."):
        try:
            descriptor = os.open(directory / name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
