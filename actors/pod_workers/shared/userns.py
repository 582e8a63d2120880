"""User namespaces of pods (hostUsers: false): gives each pod its own range of host UIDs and GIDs.

Like the kubelet's userns manager (pkg/kubelet/userns, KEP-127). A range is written to the file `userns` in the pod's
directory, in the kubelet's format. So no two pods share a range after a kill or a change of the agent. Source:
https://kubernetes.io/docs/concepts/workloads/pods/user-namespaces/.

The kubelet does not start with a file that it cannot use (MakeUserNsManager). Here only new ranges wait: a range of
another length stays taken, and while a range is not known, none is given.
"""

from __future__ import annotations

import logging
import os
import pwd
import random
import shutil
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from actors._host.files import paths
from actors._host.files.untrusted_files import read_regular
from actors.pod_workers.environment.variables import ConfigError
from proto.common import untrusted
from proto.cri import api_pb2 as pb
from proto.v1 import Pod

log = logging.getLogger(__name__)

UNIT = 65_536
"""ids_per_pod must be a multiple of this."""
FILE = "userns"
MOST_BYTES = 64 * 1024
KUBELET_USER = "kubelet"
GETSUBIDS_S = 10.0
_ALL_IDS = 1 << 32
_INVALID_ID = _ALL_IDS - 1
"""The kernel's INVALID_UID. It refuses a map with this ID, and has none above."""
_INVALID = "user namespace: invalid user namespace configuration"
_REMOVED = ".removed-"
"""Begin of the names of what container_gc is removing."""


class BadRange(Exception):
    """The ID range for pods cannot be used; the text is the kubelet's."""


class UserNamespaces:
    """The ranges in use, under one lock. Workers call this from their own threads."""

    def __init__(self, root_dir: str, ids_per_pod: int, first: int, count: int, problem: str = "") -> None:
        """`first`, `count`: the host IDs for pods. `problem`: why no range can be given; else empty.

        Reads the pods' directories. Raises OSError.
        """
        self._problem = problem
        self.handlers: Mapping[str, bool] = {}
        """Runtime handler to whether it supports user namespaces; unknown handlers are missing."""
        self._root_dir = root_dir
        self._length = ids_per_pod
        self._first, self._slots = first // ids_per_pod, slots(first, count, ids_per_pod)
        self._taken: dict[str, range] = {}
        """By UID, the IDs of every known range, also of a range that its pod cannot use any more."""
        self._used: dict[str, int] = {}
        """By UID, the first ID of a range that its pod can use."""
        self._lost: set[str] = set()
        """UIDs of pods that may have any range: their files cannot be used."""
        self._unused: set[str] = set()
        """UIDs of pods whose range was found at the start, and that no worker has asked for."""
        self._lock = threading.Lock()
        pods_dir = paths.pods_dir(root_dir)
        for uid in os.listdir(pods_dir) if os.path.isdir(pods_dir) else ():
            if uid.startswith(_REMOVED):
                continue
            try:
                self._known(uid)
            except ConfigError as error:
                log.error("pod %s: %s", uid, error)  # reported again if the pod starts again
        self._unused.update(self._taken)

    def claim(self, pod: Pod, handler: str) -> None:
        """Give the pod a range if it wants one. Raises ConfigError with the kubelet's message, OSError.

        Refused while a pod's range is not known: two pods could get the same one.
        """
        if pod.spec.host_users is not False:
            return
        if not self.handlers.get(handler, False):
            what = f'RuntimeClass handler "{handler}"' if handler else "runtime"
            problem = f"can't set `spec.hostUsers: false`, {what} does not support user namespaces"
            unknown = "" if handler in self.handlers else f': the handler "{handler}" is not known'
            raise ConfigError(problem + unknown)
        if self._problem:
            raise ConfigError(self._problem)
        uid = pod.metadata.uid
        with self._lock:
            self._unused.discard(uid)
            if self._known(uid) is None:
                self._look_for_lost()
                first = self._free()
                self._take(uid, range(first, first + self._length))
                try:
                    self._write(uid)
                except BaseException:
                    del self._used[uid], self._taken[uid]
                    raise

    def of(self, pod: Pod) -> pb.UserNamespace:
        """CRI's options: the node's IDs, or the pod's range. Raises ConfigError if its range is lost."""
        if pod.spec.host_users is not False:
            return pb.UserNamespace(mode=pb.NODE)
        with self._lock:
            self._unused.discard(pod.metadata.uid)
            first = self._known(pod.metadata.uid)
        if first is None:
            raise ConfigError("create user namespace: the pod has no range of IDs")
        ids = pb.IDMapping(host_id=first, container_id=0, length=self._length)
        return pb.UserNamespace(mode=pb.POD, uids=[ids], gids=[ids])

    def has(self, uid: str) -> bool:
        """Return True while the pod has a range, or a file that cannot be used."""
        return uid in self._taken or uid in self._lost

    def release(self, uid: str) -> None:
        """Free the range of a pod that has no process any more."""
        with self._lock:
            if not self.has(uid):
                return
            self._forget(uid)
            try:
                Path(self._path(uid)).unlink(missing_ok=True)
            except OSError as error:
                log.warning("cannot remove %s: %s; it goes with the pod's directory", self._path(uid), error)

    def _forget(self, uid: str) -> None:
        self._used.pop(uid, None)
        self._taken.pop(uid, None)
        self._lost.discard(uid)
        self._unused.discard(uid)

    def _forget_gone(self) -> None:
        """Free the ranges of pods that ended before the start, once container_gc has removed their directories.

        Such a pod has no worker that releases its range. The kubelet's CleanupOrphanedPodUsernsAllocations does it.
        """
        for uid in sorted(self._unused):
            if not os.path.lexists(paths.pod_dir(self._root_dir, uid)):
                self._forget(uid)

    def _path(self, uid: str) -> str:
        return os.path.join(paths.pod_dir(self._root_dir, uid), FILE)

    def _known(self, uid: str) -> int | None:
        """First ID of the pod's range, from memory or its file; None for a pod without one. Raises ConfigError.

        A file with IDs that the kernel refuses counts as none: no process has them, and `claim` gives others.
        """
        if uid not in self._used:
            try:
                ids = self._read(uid)
            except ConfigError:
                self._lost.add(uid)
                raise
            self._lost.discard(uid)
            if ids is None or ids.stop > _INVALID_ID:
                return None
            self._taken[uid] = ids
            check_own(ids, self._length)
            if ids.start in self._used.values():
                raise ConfigError(f'user namespace: range picked for pod "{uid}" already taken')
            if not self._first <= ids.start // self._length < self._first + self._slots:
                raise ConfigError(f"user namespace: id {ids.start} is out of range")
            self._take(uid, ids)
        return self._used[uid]

    def _read(self, uid: str) -> range | None:
        """The IDs in the pod's file; None without one. An empty file is no file for the kubelet, but here damaged."""
        try:
            return parse(read_regular(self._path(uid), MOST_BYTES))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ConfigError(f"user namespace: cannot read the mappings: {error}") from error

    def _take(self, uid: str, ids: range) -> None:
        self._taken[uid], self._used[uid] = ids, ids.start

    def _look_for_lost(self) -> None:
        """Raise ConfigError while a pod may have any range. Its file may be readable by now, or gone with the pod."""
        for uid in sorted(self._lost):
            try:
                self._known(uid)
            except ConfigError as error:
                if uid in self._lost:
                    raise ConfigError(
                        f'create user namespace: pod "{uid}" may have any range of IDs: {error}; delete that pod, and '
                        f"then {self._path(uid)} if it stays"
                    ) from error

    def _free(self) -> int:
        """A random free range: files may still belong to the IDs of a recent pod."""
        if len(self._taken_slots()) >= self._slots:
            self._forget_gone()
        if len(taken := self._taken_slots()) >= self._slots:
            raise ConfigError("create user namespace: could not find an empty slot to allocate a user namespace")
        while True:
            slot = random.randrange(self._slots)
            if slot not in taken:
                return (self._first + slot) * self._length

    def _taken_slots(self) -> set[int]:
        return {slot for ids in self._taken.values() for slot in self._slots_of(ids)}

    def _slots_of(self, ids: range) -> range:
        """The slots that have an ID of these, of which some may be no slot of ours."""
        first, last = ids.start // self._length - self._first, (ids.stop - 1) // self._length - self._first
        return range(max(first, 0), min(last + 1, self._slots))

    def _write(self, uid: str) -> None:
        directory = paths.pod_dir(self._root_dir, uid)
        os.makedirs(directory, mode=0o750, exist_ok=True)
        temporary = os.path.join(directory, f".{FILE}")
        ids = [{"hostId": self._used[uid], "containerId": 0, "length": self._length}]
        with open(temporary, "wb") as file:
            file.write(msgspec.json.encode({"uidMappings": ids, "gidMappings": ids}))
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, self._path(uid))
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)  # else a power cut could undo it, and two pods get one range
        finally:
            os.close(descriptor)


def user_namespaces(root_dir: str, ids_per_pod: int, max_pods: int) -> UserNamespaces:
    """With the IDs that the machine reserves for `kubelet`, else with all IDs above the node's own.

    Blocks on a command. Raises OSError. An unusable range is logged, and refused to the pods that want one.
    """
    try:
        first, count = subordinate_ids() or (ids_per_pod, _ALL_IDS - ids_per_pod)
        check_range(first, count, ids_per_pod, max_pods)
    except BadRange as error:
        log.error("no pod can have a user namespace of its own: %s", error)
        return UserNamespaces(root_dir, ids_per_pod, 0, _ALL_IDS, problem=str(error))
    if first + count > _ALL_IDS:
        log.warning(
            "cannot give pods all %d IDs from %d on: the kernel has none from %d on; shorten the range of %s in "
            "/etc/subuid and /etc/subgid", count, first, _INVALID_ID, KUBELET_USER,
        )  # fmt: skip
    return UserNamespaces(root_dir, ids_per_pod, first, count)


def slots(first: int, count: int, ids_per_pod: int) -> int:
    """Number of whole ranges whose IDs the kernel has. The kubelet's last one of all IDs has INVALID_UID."""
    return max(0, min(count, _INVALID_ID - first)) // ids_per_pod


def check_range(first: int, count: int, ids_per_pod: int, max_pods: int) -> None:
    """Raise BadRange if the IDs are not whole ranges, include the node's own, or are too few."""
    if ids_per_pod % UNIT:
        raise BadRange(f"kubelet user namespace length {ids_per_pod} is not a multiple of {UNIT}")
    if first % ids_per_pod:
        raise BadRange(f"kubelet user assigned ID {first} is not a multiple of {ids_per_pod}")
    if first < ids_per_pod:
        raise BadRange(f"kubelet user assigned ID {first} must be greater or equal to {ids_per_pod}")
    if count % ids_per_pod:
        raise BadRange(f"kubelet user assigned IDs length {count} is not a multiple of {ids_per_pod}")
    if slots(first, count, ids_per_pod) < max_pods:
        raise BadRange(f"kubelet user assigned IDs are not enough to support {max_pods} pods")


def parse(content: bytes) -> range:
    """The host IDs in a pod's file, of any length. Raises ConfigError."""
    try:
        found: Any = untrusted.decode_json(content)
        (uids,), (gids,) = found["uidMappings"], found["gidMappings"]
        first, own_length = int(uids["hostId"]), int(uids["length"])
        same, root = uids == gids, uids["containerId"] == 0
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"user namespace: invalid user namespace mappings file: {error}") from error
    if not same:
        raise ConfigError(f"{_INVALID}: GID and UID mapping should be identical")
    if not root:
        raise ConfigError(f"{_INVALID}: UID 0 must be mapped")
    if own_length < 1 or first < 0:
        raise ConfigError(f"{_INVALID}: {own_length} IDs from {first} on")
    return range(first, first + own_length)


def check_own(ids: range, length: int) -> None:
    """Raise ConfigError if the IDs are not a whole range of that length."""
    if len(ids) != length:
        raise ConfigError(f"user namespace: wrong user namespace length {len(ids)}")
    if ids.start % length:
        raise ConfigError(f"user namespace: wrong user namespace offset specified {ids.start}")


def subordinate_ids() -> tuple[int, int] | None:
    """(first, count) of the IDs that the machine reserves for the user `kubelet`; None if it reserves none.

    Runs getsubids, which may ask a directory service. Raises BadRange, OSError.
    """
    try:
        pwd.getpwnam(KUBELET_USER)
    except KeyError:
        return None
    tool = shutil.which("getsubids")
    if tool is None:
        return None
    uids, gids = (_getsubids(tool, *flags) for flags in ((), ("-g",)))
    if uids != gids:
        raise BadRange(f'mismatched subuids and subgids for user "{KUBELET_USER}"')
    return parse_subordinate(uids)


def _getsubids(tool: str, *flags: str) -> str:
    try:
        done = subprocess.run(
            [tool, *flags, KUBELET_USER], capture_output=True, text=True, timeout=GETSUBIDS_S, check=True
        )
    except subprocess.SubprocessError as error:
        raise BadRange(f'error retrieving additional ids for user "{KUBELET_USER}": {error}') from error
    return done.stdout


def parse_subordinate(output: str) -> tuple[int, int]:
    """Getsubids' `0: kubelet 65536 2147483648`. Raises BadRange."""
    lines = output.strip("\n").split("\n")
    if len(lines) != 1:
        raise BadRange(f'error parsing line "{output}": it must contain only one line')
    parts = lines[0].split()
    if len(parts) != 4 or not (parts[2].isdecimal() and parts[3].isdecimal()):
        raise BadRange(f'invalid line "{output}"')
    return int(parts[2]), int(parts[3])
