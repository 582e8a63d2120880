"""Static pods: what the kubelet makes of a pod that a file names, and all checks such a file must pass.

Covers the way from a file's bytes to the pod that runs: name, namespace, UID, annotations, toleration, phase. Does not
cover which files count or how pods of several sources merge (`policy.py`). Source: applyDefaults and
tryDecodeSinglePod of pkg/kubelet/config/common.go.
"""

from typing import NamedTuple

from msgspec.structs import replace

from actors.config.defaulting.defaults import default_pod
from actors.config.pods import manifest
from actors.config.pods.manifest import Manifest
from actors.config.pods.podhash import static_pod_uid
from actors.config.pods.references import api_references
from actors.config.validation.pod import validate_pod
from actors.config.validation.problems import ManifestError, ManifestWarning, Violation
from proto.schema.fieldpath import field_text
from proto.v1 import Pod, Toleration

CONFIG_HASH = "kubernetes.io/config.hash"
CONFIG_SOURCE = "kubernetes.io/config.source"
CONFIG_SEEN = "kubernetes.io/config.seen"
CONFIG_MIRROR = "kubernetes.io/config.mirror"

_NO_EXECUTE = Toleration(operator="Exists", effect="NoExecute")


class StaticPod(NamedTuple):
    """The pod of one manifest file, ready to run, and what its author may want to know."""

    pod: Pod
    warnings: tuple[ManifestWarning, ...]


def load(path: str, data: bytes, node_name: str, *, objects_dir: bool = False) -> StaticPod:
    """Return the static pod of a file; raises ManifestError for the first problem, listing the others.

    `objects_dir`: the pod may refer to objects of this node's directory.

    The annotations config.source and config.seen are added where the pod enters the merge (`mark_seen`).
    """
    read = manifest.read(path, data)
    pod = static_pod(default_pod(read.pod), path, node_name)
    problems = (*validate_pod(pod), *api_references(pod, objects_dir=objects_dir))
    if problems:
        raise _error(path, read, problems)
    return StaticPod(pod, read.warnings)


def static_pod(pod: Pod, path: str, node_name: str) -> Pod:
    """Return a defaulted pod with what makes it static: UID, name, namespace, node, annotation, toleration, phase."""
    metadata = pod.metadata
    uid = metadata.uid or static_pod_uid(pod, path, node_name)
    return replace(
        pod,
        metadata=replace(
            metadata,
            name=f"{metadata.name}-{node_name.lower()}",
            namespace=metadata.namespace or "default",
            uid=uid,
            annotations={**metadata.annotations, CONFIG_HASH: uid},
        ),
        spec=replace(pod.spec, node_name=node_name, tolerations=_tolerating(pod.spec.tolerations)),
        status=replace(pod.status, phase="Pending"),
    )


def mark_seen(pod: Pod, source: str, seen: str) -> Pod:
    """Return the pod with the annotations that say where (`file`) and when (RFC 3339) it was first seen."""
    annotations = {**pod.metadata.annotations, CONFIG_SOURCE: source, CONFIG_SEEN: seen}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


def full_name(pod: Pod) -> str:
    """Return NAME_NAMESPACE, the kubelet's key of a pod that may come back under another UID."""
    return f"{pod.metadata.name}_{pod.metadata.namespace}"


def _tolerating(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    """Add the toleration of every NoExecute taint, so that no node problem evicts a static pod."""
    same = [(t.key or None, t.operator, t.value or None, t.effect) for t in tolerations]
    wanted = (None, _NO_EXECUTE.operator, None, _NO_EXECUTE.effect)
    if wanted in same:
        index = same.index(wanted)
        return (*tolerations[:index], _NO_EXECUTE, *tolerations[index + 1 :])
    return (*tolerations, _NO_EXECUTE)


def _error(file: str, read: Manifest, problems: tuple[Violation, ...]) -> ManifestError:
    # Several fields of one cause repeat a problem: a set that keeps its order.
    lines = read.document
    found = list(dict.fromkeys((lines.line(path), field_text(path), problem) for path, problem in problems))
    line, field, problem = found[0]
    others = tuple(f"line {line}: {field}: {problem}" for line, field, problem in found[1:])
    return ManifestError(file, line, field, problem, others)
