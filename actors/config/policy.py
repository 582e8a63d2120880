"""Decides which pods a source names and what changed since the last merge. Pure.

Keeps the last good pod of each manifest file, finds duplicates, and merges each source into changes for the pod
workers. Source: PodConfig of the kubelet's pkg/kubelet/config.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from actors._files.problems import FileError
from actors.config.pods.static_pods import CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE, full_name
from actors.config.validation.problems import ManifestError
from proto.v1 import Pod


class FileState(NamedTuple):
    """One manifest file: the pod of its last good version, and the error of the present one."""

    pod: Pod | None
    error: FileError | None


def next_state(previous: FileState | None, loaded: Pod | FileError) -> FileState:
    """Return a file's state after a read. A bad version keeps the pod of the last good one running."""
    if isinstance(loaded, FileError):
        return FileState(previous.pod if previous is not None else None, loaded)
    return FileState(loaded, None)


class Resolved(NamedTuple):
    """The pods a source names, by full name, and the errors of its files, by path."""

    pods: dict[str, Pod]
    errors: dict[str, FileError]


def resolve(files: Mapping[str, FileState]) -> Resolved:
    """Return the pods of all files. Of two files with the same pod the last by path wins; the other is an error.

    The kubelet reads the files in the order of their paths into one store by namespace and name
    (pkg/kubelet/config/file.go). It does not report the other file.
    """
    pods: dict[str, Pod] = {}
    owners: dict[str, str] = {}
    uids: dict[str, str] = {}
    errors: dict[str, FileError] = {}
    for path, state in sorted(files.items(), reverse=True):
        if state.error is not None:
            errors[path] = state.error
        if state.pod is None:
            continue
        name, uid = full_name(state.pod), state.pod.metadata.uid
        if name not in owners and uid not in uids:
            pods[name] = state.pod
            owners[name] = uids[uid] = path
        elif state.error is None:
            errors[path] = _taken(path, name, owners.get(name), uid, uids.get(uid))
    return Resolved(dict(reversed(pods.items())), dict(sorted(errors.items())))


def _taken(path: str, name: str, owner: str | None, uid: str, owner_of_uid: str | None) -> ManifestError:
    if owner is not None:
        problem = f"{owner} defines pod {name}, too, and the last file by name counts; rename one pod, or remove a file"
        return ManifestError(path, 0, "metadata.name", problem)
    problem = f"{owner_of_uid} has a pod with the UID {uid}, too, and the last file by name counts; change one UID"
    return ManifestError(path, 0, "metadata.uid", problem)


class Changes(NamedTuple):
    """One source's changes since the last merge, as the kubelet's pod updates: each pod is in exactly one of the lists.

    A pod replaced under the same name has a new UID: the old one is in `removed`, the new one in `added`. A pod whose
    file was removed and came again is in both. `reconciled` pods differ in status only.
    """

    added: tuple[Pod, ...] = ()
    updated: tuple[Pod, ...] = ()
    removed: tuple[Pod, ...] = ()
    reconciled: tuple[Pod, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.updated or self.removed or self.reconciled)


def _same_status(before: Pod, after: Pod) -> bool:
    return before.status == after.status


def merge(
    old: Iterable[Pod],
    new: Iterable[Pod],
    again: Collection[str] = (),
    same: Callable[[Pod, Pod], bool] = _same_status,
) -> Changes:
    """Return the changes between two full states of one source. Pods are matched by UID.

    `again`: UIDs of pods that were absent for a moment in between; each is in `removed` and in `added`.
    `same` compares the statuses of a pod before and after.
    """
    before = {pod.metadata.uid: pod for pod in old}
    after = {pod.metadata.uid: pod for pod in new}
    added, updated, reconciled = [], [], []
    for uid, pod in after.items():
        known = before.get(uid) if uid not in again else None
        if known is None:
            added.append(pod)
        elif _semantic_parts(known) != _semantic_parts(pod):
            updated.append(pod)
        elif not same(known, pod):
            reconciled.append(pod)
    removed = [pod for uid, pod in before.items() if uid not in after or uid in again]
    return Changes(tuple(added), tuple(updated), tuple(removed), tuple(reconciled))


def _semantic_parts(pod: Pod) -> tuple[object, ...]:
    """The parts of a pod whose change is an update, as in podsDifferSemantically of the kubelet."""
    metadata = pod.metadata
    local = (CONFIG_SEEN, CONFIG_SOURCE, CONFIG_MIRROR)
    annotations = {key: value for key, value in metadata.annotations.items() if key not in local}
    grace = metadata.deletion_grace_period_seconds
    return pod.spec, metadata.labels, annotations, metadata.deletion_timestamp, grace


def names(pods: Iterable[Pod]) -> tuple[str, ...]:
    """NAMESPACE/NAME of each pod."""
    return tuple(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods)
