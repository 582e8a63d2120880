"""Tells this agent's pods from those of other agents, by marks below its root directory.

Several agents may share a container runtime, a cgroup root or a log directory. None of these names an owner. A pod that
no source wants may be an old one of ours, or another agent's. The agent touches only pods with a mark.

Each mark exists before the pod has a cgroup, a sandbox or a log:
- The pod's directory, ROOT_DIR/pods/UID. The kubelet also makes it first. container_gc removes it last.
- A line in ROOT_DIR/nodevisor/removed-pods. container_gc writes it before it removes the directory. Some things outlive
  the directory: a busy cgroup, or a sandbox that the runtime finishes after its caller died.
- The pod's admission: a line in allocated_pods_state (the kubelet's, too), or a file in our api-pods.

The record of removed pods is not synced to the disk. A power cut ends all that runs, and the directories that it brings
back are marks again.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable

import msgspec

from actors._host.files import paths
from proto.common import untrusted

log = logging.getLogger(__name__)

RECORD_BYTES = 256 * 1024
"""Size of one file of the record, about 7,000 pods. A full file becomes `removed-pods.1`, replacing the one before."""
_LONGEST_UID = 253
_STATES = ("allocated_pods_state", "actuated_pods_state")


class OwnPods:
    """Reads and writes the marks below one root directory. Keeps no state; thread-safe."""

    def __init__(self, root_dir: str, *, take_over: bool = False) -> None:
        """`take_over`: every pod counts as ours (Settings.take_over)."""
        self._root = root_dir
        self._take_over = take_over
        self._record = f"{paths.checkpoints_dir(root_dir)}/removed-pods"

    def has(self, uid: str) -> bool:
        """Return True when the pod is ours. A pod with a directory costs one lstat(2)."""
        return uid in self.among((uid,))

    def among(self, uids: Iterable[str]) -> set[str]:
        """Return the UIDs of the pods that are ours. A mark that cannot be read is logged and does not count."""
        asked = {uid for uid in uids if is_uid(uid)}
        if self._take_over:
            return asked
        ours = {uid for uid in asked if self._has_directory(uid)}
        if asked - ours:
            ours |= (asked - ours) & self._recorded()
        if asked - ours:
            ours |= {uid for uid in asked - ours if self._is_accepted(uid)}
        if asked - ours:
            ours |= (asked - ours) & self._admitted()
        return ours

    def note_removed(self, uids: Iterable[str]) -> None:
        """Record pods whose directories are about to be removed. Raises OSError."""
        lines = "".join(f"{uid}\n" for uid in uids if is_uid(uid)).encode()
        if not lines:
            return
        os.makedirs(os.path.dirname(self._record), mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._record, flags, 0o600)
        try:
            # A full disk may cut a write short. The leading newline keeps the half line apart from the next one.
            if os.write(descriptor, b"\n" + lines) != len(lines) + 1:
                raise OSError(f"cannot write all of {self._record}: the disk is full")
            full = os.fstat(descriptor).st_size > RECORD_BYTES
        finally:
            os.close(descriptor)
        if full:
            os.replace(self._record, f"{self._record}.1")

    def _has_directory(self, uid: str) -> bool:
        try:
            return stat.S_ISDIR(os.lstat(paths.pod_dir(self._root, uid)).st_mode)
        except OSError:
            return False

    def _recorded(self) -> set[str]:
        found: set[str] = set()
        for path in (self._record, f"{self._record}.1"):
            found.update(_read(path).decode(errors="replace").split("\n"))
        return found

    def _is_accepted(self, uid: str) -> bool:
        return os.path.isfile(f"{paths.checkpoints_dir(self._root)}/api-pods/{uid}.json")

    def _admitted(self) -> set[str]:
        found: set[str] = set()
        for name in _STATES:
            found |= pods_in_state(_read(f"{self._root}/{name}"))
        return found


def mark_pod(root_dir: str, uid: str) -> None:
    """Make the pod's directory, before anything else of the pod. Idempotent. Raises OSError."""
    os.makedirs(paths.pod_dir(root_dir, uid), mode=0o750, exist_ok=True)


def is_marked(root_dir: str, uid: str) -> bool:
    """Return True when the pod has a directory, or may have one: its sandbox may have been begun."""
    try:
        os.lstat(paths.pod_dir(root_dir, uid))
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


class _State(msgspec.Struct):
    data: str


class _Entries(msgspec.Struct):
    entries: dict[str, msgspec.Raw] = {}


def pods_in_state(content: bytes) -> set[str]:
    """UIDs in a file of resources as the kubelet writes it (pkg/kubelet/allocation/state); none in a damaged one."""
    try:
        return set(untrusted.decode_json(untrusted.decode_json(content, _State).data, _Entries).entries)
    except msgspec.DecodeError:
        return set()


def is_uid(uid: str) -> bool:
    """Return True for a UID that can name a directory. UIDs may come from another agent's labels."""
    return 0 < len(uid) <= _LONGEST_UID and uid not in (".", "..") and not any(one in uid for one in "/\n\0")


def _read(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        log.warning("cannot read %s: %s; its pods count as another agent's", path, error.strerror)
        return b""
