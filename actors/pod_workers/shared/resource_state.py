"""The kubelet's two state files of resources under --root-dir: allocated_pods_state and actuated_pods_state.

Names and format are the kubelet's (pkg/kubelet/allocation/state). So neither a kill nor a change between the kubelet
and nodevisor resizes or restarts a container again. Records are by pod UID. Workers change them from their own threads.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable, Collection

import msgspec
from msgspec.structs import replace

from actors._host.files.checkpoint import MOST_BYTES
from actors._host.files.hashing import fnv1a_32
from actors._host.files.untrusted_files import read_regular
from actors.pod_workers.model.allocation import PodResourceInfo, equal
from proto.common import untrusted
from proto.v1 import ResourceRequirements

log = logging.getLogger(__name__)

ALLOCATED_FILE = "allocated_pods_state"
ACTUATED_FILE = "actuated_pods_state"


class _Data(msgspec.Struct, omit_defaults=True):
    entries: dict[str, PodResourceInfo] = {}


class _File(msgspec.Struct):
    data: str
    """_Data as JSON."""
    checksum: int


NO_STATE_FILE = frozenset({errno.EINVAL, errno.EISDIR, errno.EFBIG, errno.ELOOP, errno.ENXIO})
"""Errors of a path that has a directory, a FIFO, a socket, a link or too large a file."""


class DamagedError(Exception):
    """The file is damaged; the message says how."""


class ResourceState:
    """The records of one file. Every method may be called from any thread."""

    def __init__(
        self,
        path: str,
        on_change: Callable[[], None] = lambda: None,
        on_resize: Callable[[str], None] = lambda uid: None,  # noqa: ARG005 - the signature
    ) -> None:
        """`on_change`: a record has changed; the owner calls `save` soon. `on_resize`: see `note_resize`."""
        self.path = path
        self._on_change = on_change
        self._on_resize = on_resize
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._entries: dict[str, PodResourceInfo] = {}
        self._done: dict[str, PodResourceInfo] = {}
        """By UID: allocated resources that the pod's containers hold. Not in the file."""
        self._changes = self._changes_saved = 0
        """Counts of changes: encoding the file takes as long as it is large, so `save` leaves out what is there."""
        self._saved = b""

    def load(self) -> None:
        """Read the file. A damaged file, or what is no file, is logged and renamed to *.damaged.

        Pods then get their specs' resources. Raises OSError of the disk or of a full table of open files: the file is
        read again at the next start.
        """
        try:
            content = read_regular(self.path, MOST_BYTES)
            self._entries = decode(content)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (OSError, DamagedError) as error:
            if isinstance(error, OSError) and error.errno not in NO_STATE_FILE:
                raise
            moved = self._move_away()
            log.error("cannot use %s: %s; pods get the resources of their specs; %s", self.path, error, moved)
        else:
            self._saved = content

    def _move_away(self) -> str:
        """Rename the file. Returns where it is now."""
        try:
            os.replace(self.path, f"{self.path}.damaged")
        except OSError as error:
            return f"cannot rename it: {error.strerror}; remove it, or a restart forgets the next resizes, too"
        return f"it is now {self.path}.damaged"

    def get(self, uid: str) -> PodResourceInfo | None:
        """The record of a pod; None when there is none."""
        with self._lock:
            return self._entries.get(uid)

    def set(self, uid: str, info: PodResourceInfo) -> None:
        """Replace the record of a pod."""
        with self._lock:
            if self._entries.get(uid) == info:
                return
            self._entries[uid] = info
            self._changes += 1
        self._on_change()

    def set_container(self, uid: str, name: str, resources: ResourceRequirements) -> None:
        """Replace one container's resources in the record of a pod."""
        self.set(uid, (self.get(uid) or PodResourceInfo()).with_container(name, resources))

    def set_pod(self, uid: str, resources: ResourceRequirements | None) -> None:
        """Replace the pod's own resources in its record."""
        self.set(uid, replace((self.get(uid) or PodResourceInfo()), pod=resources))

    def note_resize(self, uid: str, done: PodResourceInfo | None) -> None:
        """Note that the containers of a pod hold its allocated resources `done`; None: a resize is left to carry out.

        Calls `on_resize` with the UID if the containers may hold less now. After a kill the next worker notes it again.
        """
        with self._lock:
            if done is not None and self._done.get(uid) == done:
                return
            if done is None:
                self._done.pop(uid, None)
            else:
                self._done[uid] = done
            known = uid in self._entries
        if known:
            self._on_resize(uid)

    def held(self, uid: str, allocated: PodResourceInfo | None) -> PodResourceInfo | None:
        """The record of a pod whose containers may hold other resources than `allocated`; None once they hold these.

        Raises QuantityError.
        """
        with self._lock:
            record, done = self._entries.get(uid), self._done.get(uid)
        return None if done is not None and allocated is not None and equal(done, allocated) else record

    def remove(self, uid: str) -> None:
        """Forget a pod. The next save drops it from the file, as a stale record does no harm."""
        with self._lock:
            self._done.pop(uid, None)
            if self._entries.pop(uid, None) is not None:
                self._changes += 1

    def keep(self, uids: Collection[str]) -> None:
        """Forget every other pod."""
        with self._lock:
            kept = {uid: info for uid, info in self._entries.items() if uid in uids}
            self._changes += len(kept) != len(self._entries)
            self._entries = kept
            self._done = {uid: info for uid, info in self._done.items() if uid in kept}

    def save(self) -> None:
        """Write the file atomically if it differs. Blocks on the disk. Raises OSError."""
        with self._saving:
            with self._lock:
                changes = self._changes
                if changes == self._changes_saved:
                    return
                content = encode(self._entries)
            if content != self._saved:
                self._replace(content)
            self._saved, self._changes_saved = content, changes

    def _replace(self, content: bytes) -> None:
        temporary = f"{self.path}.tmp"
        try:
            with open(temporary, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # a full disk needs the room
            raise


def encode(entries: dict[str, PodResourceInfo]) -> bytes:
    """The file's content."""
    data = msgspec.json.encode(_Data({uid: entries[uid] for uid in sorted(entries)})).decode()
    return msgspec.json.encode(_File(data, _checksum(data)))


def decode(content: bytes) -> dict[str, PodResourceInfo]:
    """The records in a file's content. Raises DamagedError."""
    try:
        file = untrusted.decode_json(content, _File)
        if file.checksum != _checksum(file.data):
            raise DamagedError("its checksum is not that of its data")
        return untrusted.decode_json(file.data, _Data).entries
    except msgspec.DecodeError as error:
        raise DamagedError(str(error)) from error


def _checksum(data: str) -> int:
    """FNV-1a 32 of the data as Go's spew prints a string (pkg/kubelet/checkpointmanager/checksum)."""
    return fnv1a_32(f"(string){data}".encode())
