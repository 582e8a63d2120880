"""Keeps the admitted API pods on disk, so that they run again after a reboot without the API server.

One file per pod in ROOT_DIR/nodevisor/api-pods, from admission until the pod has terminated or the server has deleted
it. A file holds no Secret, as a pod only names its Secrets. Of the status it holds the names of resource claims. A file
is written within milliseconds. It is synced to disk 2 s later, together with all others, because the runtime uses the
same disk. A file that cannot be written is written later, with all changes since.

The pod's directory vouches for the file. A kubelet that served this node meanwhile knows nothing of the file, but it
removes the directories of pods that it has ended. A reboot keeps them. So each file is written after the directory.
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import msgspec
from msgspec.structs import replace

from actors._base import Actor
from actors._host.files import checkpoint, paths
from actors._host.files.checkpoint import Writes
from actors._host.files.own_pods import mark_pod
from proto.v1 import Pod
from proto.v1.status import PodStatus
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

VERSION = 1
WRITE_DEADLINE_S = 10.0
SYNC_AFTER_S = 2.0
LOSS = "pods would not run after a reboot, or with an older spec"


class ApiPodCheckpoint:
    """Used in the actor's mailbox thread."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._root_dir = actor.settings.root_dir
        self._directory = files_dir(self._root_dir)
        self._pods: dict[str, Pod] = {}
        self._unwritten: dict[str, Pod | None] = {}
        """By UID; None: the file is to be removed."""
        self._unsynced: set[str] = set()
        self._writing = False
        self._writes = Writes(actor, str(self._directory), LOSS, self._write_soon, deadline_s=WRITE_DEADLINE_S)

    def load(self) -> list[Pod]:
        """The pods on disk, also without a directory. A damaged file is removed; a file that cannot be read stays."""
        for path in sorted(self._directory.glob("*.json")):
            pod = None
            try:
                data = checkpoint.read(path, VERSION)
                pod = None if data is None else msgspec.convert(data, Pod)
            except (checkpoint.Damaged, msgspec.ValidationError) as error:
                log.warning("cannot use the checkpoint %s: %s; going on without it", path, error)
            except (OSError, checkpoint.Unusable) as error:
                log.warning("cannot read the checkpoint %s: %s; its pod waits for the API server", path, error)
                continue
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
        if not self._writes.hangs:  # else written with the next try
            self._write_soon()

    def _write_soon(self) -> None:
        if not self._writing:
            self._writing = True
            self._actor.spawn(self._write_all(), "write_api_pods")

    async def _write_all(self) -> None:
        try:
            is_done = True
            while self._unwritten and is_done:
                is_done = await self._write(self._unwritten)
        finally:
            self._writing = False

    async def _write(self, batch: dict[str, Pod | None]) -> bool:
        """Write the batch. What is not written is to be written again, unless there is a newer object."""
        self._unwritten = {}
        written: set[str] = set()
        is_done = await self._writes.run(lambda: write(self._root_dir, batch, written))
        done = set(written)  # a write past its deadline goes on
        self._unwritten = {uid: pod for uid, pod in batch.items() if uid not in done} | self._unwritten
        if done and not self._unsynced:
            self._actor.after(SYNC_AFTER_S, lambda: self._actor.spawn(self._sync(), "sync_api_pods"))
        self._unsynced.update(done)
        if not is_done and not self._unwritten:  # the thread ended between its deadline and now: nothing is left to try
            self._writes.has_succeeded()
        return is_done

    async def _sync(self) -> None:
        uids, self._unsynced = self._unsynced, set()
        try:
            await self._actor.blocking(WRITE_DEADLINE_S, sync, self._root_dir, uids)
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


def files_dir(root_dir: str) -> Path:
    """The directory of the files."""
    return Path(paths.checkpoints_dir(root_dir), "api-pods")


def has_directory(root_dir: str, uid: str) -> bool:
    """Return True when the pod's directory is there. A link in its place, or an error, is no directory."""
    try:
        return stat.S_ISDIR(os.lstat(paths.pod_dir(root_dir, uid)).st_mode)
    except OSError:
        return False


def write(root_dir: str, batch: dict[str, Pod | None], written: set[str] | None = None) -> None:
    """Write and remove files, and add the UIDs to `written`. Runs in a pool thread.

    Raises the first OSError, after it has tried every pod.
    """
    failure: OSError | None = None
    for uid, pod in batch.items():
        try:
            _write_one(root_dir, uid, pod)
        except OSError as error:
            failure = failure or error
        else:
            if written is not None:
                written.add(uid)
    if failure is not None:
        raise failure


def _write_one(root_dir: str, uid: str, pod: Pod | None) -> None:
    path = files_dir(root_dir) / f"{uid}.json"
    if pod is None:
        path.unlink(missing_ok=True)
        return
    mark_pod(root_dir, uid)  # first: a kill in between leaves an empty directory, which container_gc removes
    checkpoint.save(path, VERSION, pod, sync=False)


def sync(root_dir: str, uids: set[str]) -> None:
    """Sync the entries of the pods' directories, then these files and theirs. Runs in a pool thread. Raises OSError.

    In this order: a file without its pod's directory is not believed.
    """
    files = files_dir(root_dir)
    for path in (Path(paths.pods_dir(root_dir)), *(files / f"{uid}.json" for uid in uids), files):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
