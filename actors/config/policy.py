"""Decisions of the config actor: which files count, what a directory says, and what changed since.

Covers file names, the last good pod of each file, duplicates, and the merge of each source into changes for the pod
workers. Pure: listings and file contents come in, pods and errors go out. Source: PodConfig of the kubelet's
pkg/kubelet/config.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from actors.config.problems import ManifestError
from actors.config.static_pods import CONFIG_SEEN, CONFIG_SOURCE, full_name
from proto.v1 import Pod

_EDITOR_PREFIXES = (".", "#")
_EDITOR_SUFFIXES = (
    "~",
    "#",
    ".swp",
    ".swx",
    ".swo",
    ".bak",
    ".tmp",
    ".orig",
    ".rej",
    ".dpkg-new",
    ".dpkg-old",
    ".dpkg-dist",
)
# Vim probes a directory by creating this name, and one more after each clash.
_VIM_PROBES = frozenset({"4913", "5036", "5159"})


def is_manifest_name(name: str) -> bool:
    """Whether a directory entry may be a manifest: not hidden, not an editor's or package manager's leftover.

    The kubelet ignores only names that begin with a dot; a half-written editor file would be a pod to it, or an error.
    """
    return not (name.startswith(_EDITOR_PREFIXES) or name.endswith(_EDITOR_SUFFIXES) or name in _VIM_PROBES)


QUIET_S = 5.0
"""A file that nobody has written to for so long is taken as it is, though its writer still holds it open."""


class Writing(NamedTuple):
    """A file that was created or written to and not yet closed: what was seen last, and how long ago in seconds."""

    only_created: bool
    age_s: float


def is_being_written(writing: Writing | None, has_other_name: bool) -> bool:
    """Whether to leave a file alone for now: a half-written manifest may be a valid one that nobody meant.

    A link that was just created has its content already, and its creator never closes it.
    """
    if writing is None or writing.age_s >= QUIET_S:
        return False
    return not (writing.only_created and has_other_name)


class FileState(NamedTuple):
    """What is known of one manifest file: the pod of its last good version, and what is wrong with it now."""

    pod: Pod | None
    error: ManifestError | None


def next_state(previous: FileState | None, loaded: Pod | ManifestError) -> FileState:
    """Return a file's state after it was read: a bad version keeps the pod of the last good one running."""
    if isinstance(loaded, ManifestError):
        return FileState(previous.pod if previous is not None else None, loaded)
    return FileState(loaded, None)


class Resolved(NamedTuple):
    """The pods a source names, by full name, and the errors of its files, by path."""

    pods: dict[str, Pod]
    errors: dict[str, ManifestError]


def resolve(files: Mapping[str, FileState]) -> Resolved:
    """Return the pods of all files; of two with the same pod the first by path wins and the other is an error."""
    pods: dict[str, Pod] = {}
    owners: dict[str, str] = {}
    errors: dict[str, ManifestError] = {}
    for path, state in sorted(files.items()):
        if state.error is not None:
            errors[path] = state.error
        if state.pod is None:
            continue
        name = full_name(state.pod)
        taken = _conflict(state.pod, name, pods, owners)
        if taken is None:
            pods[name] = state.pod
            owners[name] = path
        elif state.error is None:
            problem = f"pod {name} is already defined by {taken}; change its name or namespace, or remove one file"
            errors[path] = ManifestError(path, 0, "metadata.name", problem)
    return Resolved(pods, errors)


def _conflict(pod: Pod, name: str, pods: Mapping[str, Pod], owners: Mapping[str, str]) -> str | None:
    if name in owners:
        return owners[name]
    return next((owners[other] for other, one in pods.items() if one.metadata.uid == pod.metadata.uid), None)


class Changes(NamedTuple):
    """One source's changes since the last merge, as the kubelet's pod updates: each pod is in exactly one of the lists.

    A pod replaced under the same name has a new UID: the old one is in `removed`, the new one in `added`. `reconciled`
    pods differ in status only.
    """

    added: tuple[Pod, ...] = ()
    updated: tuple[Pod, ...] = ()
    removed: tuple[Pod, ...] = ()
    reconciled: tuple[Pod, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.updated or self.removed or self.reconciled)


def merge(old: Iterable[Pod], new: Iterable[Pod]) -> Changes:
    """Return what changed between two full states of one source; pods are the same when their UID is."""
    before = {pod.metadata.uid: pod for pod in old}
    after = {pod.metadata.uid: pod for pod in new}
    added, updated, reconciled = [], [], []
    for uid, pod in after.items():
        known = before.get(uid)
        if known is None:
            added.append(pod)
        elif _meant(known) != _meant(pod):
            updated.append(pod)
        elif known.status != pod.status:
            reconciled.append(pod)
    removed = [pod for uid, pod in before.items() if uid not in after]
    return Changes(tuple(added), tuple(updated), tuple(removed), tuple(reconciled))


def _meant(pod: Pod) -> tuple[object, ...]:
    """The parts of a pod whose change makes an update, after podsDifferSemantically of the kubelet."""
    metadata = pod.metadata
    local = (CONFIG_SEEN, CONFIG_SOURCE)
    annotations = {key: value for key, value in metadata.annotations.items() if key not in local}
    grace = metadata.deletion_grace_period_seconds
    return pod.spec, metadata.labels, annotations, metadata.deletion_timestamp, grace
