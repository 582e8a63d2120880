"""Makes the static pods of a manifest file or of the answer of a URL, after all checks that these must pass.

Sets the pod's name, namespace, UID, annotations, toleration and phase. `sources` select the files and fetch the URL,
and `policy.py` merges the pods of several. Source: applyDefaults and tryDecodeSinglePod of
pkg/kubelet/config/common.go.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from actors.config.defaulting.defaults import default_pod
from actors.config.pods import manifest
from actors.config.pods.manifest import Manifest
from actors.config.pods.podhash import static_pod_uid, url_pod_uid
from actors.config.pods.references import api_references
from actors.config.validation.pod import validate_pod
from actors.config.validation.problems import ManifestError, ManifestWarning, Violation
from proto.agent.settings import Settings
from proto.schema.fieldpath import field_text
from proto.v1 import Pod, Toleration

CONFIG_HASH = "kubernetes.io/config.hash"
CONFIG_SOURCE = "kubernetes.io/config.source"
CONFIG_SEEN = "kubernetes.io/config.seen"
CONFIG_MIRROR = "kubernetes.io/config.mirror"

_NO_EXECUTE = Toleration(operator="Exists", effect="NoExecute")


class StaticPod(NamedTuple):
    """The pod of one manifest file, ready to run, and the warnings for its author."""

    pod: Pod
    warnings: tuple[ManifestWarning, ...]


class Allowed(NamedTuple):
    """The permissions of static pods on this node beyond the API server's rules."""

    objects_dir: bool = False
    """The pod may refer to objects of this node's directory."""
    users_on_host_network: bool = False
    """It may be on the host's network and have a user namespace (feature gate UserNamespacesHostNetworkSupport)."""

    @classmethod
    def by(cls, settings: Settings) -> Allowed:
        """As configured."""
        return cls(bool(settings.objects_dir), settings.users_on_host_network)


NOTHING_MORE = Allowed()


def load(path: str, data: bytes, node_name: str, allowed: Allowed = NOTHING_MORE) -> StaticPod:
    """Return the static pod of a file. Raises ManifestError for the first problem, with a list of the others.

    The caller adds the annotations config.source and config.seen with `mark_seen`.
    """
    read = manifest.read(path, data)
    return _checked(path, read, static_pod(default_pod(read.pod), path, node_name), allowed)


def load_answer(
    url: str,
    shown: str,
    data: bytes,
    node_name: str,
    duplicates: list[ManifestError] | None = None,
    allowed: Allowed = NOTHING_MORE,
) -> tuple[StaticPod, ...]:
    """Return the static pods of a URL's answer. Raises ManifestError: as in the kubelet, one bad pod rejects all.

    Of two pods with one name or UID the first counts (filterInvalidPods in the kubelet's pkg/kubelet/config).
    `duplicates` gets an error for each other one. `shown` is the URL in errors, without what may be secret. The rest
    is as for `load`.
    """
    found: list[StaticPod] = []
    places: dict[str, str] = {}
    for read in manifest.read_answer(shown, data):
        pod = url_pod(default_pod(read.pod), url, node_name)
        checked = _checked(shown, read, pod, allowed)
        keys = {full_name(pod): (*read.at, "metadata", "name"), pod.metadata.uid: (*read.at, "metadata", "uid")}
        taken = next((key for key in keys if key in places), None)
        if taken is None:
            places |= {key: field_text(path) for key, path in keys.items()}
            found.append(checked)
        elif duplicates is not None:
            problem = f"Duplicate value: {places[taken]} has the same; this pod is left out; change one"
            duplicates.append(ManifestError(shown, read.document.line(keys[taken]), field_text(keys[taken]), problem))
    return tuple(found)


def _checked(file: str, read: Manifest, pod: Pod, allowed: Allowed) -> StaticPod:
    problems = (
        *validate_pod(pod, users_on_host_network=allowed.users_on_host_network),
        *api_references(pod, objects_dir=allowed.objects_dir),
    )
    if problems:
        raise _error(file, read, problems)
    return StaticPod(pod, read.warnings)


def static_pod(pod: Pod, path: str, node_name: str) -> Pod:
    """Return a defaulted pod with a static pod's UID, name, namespace, node, hash annotation, toleration and phase."""
    made = _of_node(pod, pod.metadata.uid or static_pod_uid(pod, path, node_name), node_name)
    return replace(made, spec=replace(made.spec, tolerations=_with_no_execute_toleration(pod.spec.tolerations)))


def url_pod(pod: Pod, url: str, node_name: str) -> Pod:
    """The same for a pod from a URL. As in the kubelet, it gets no toleration."""
    return _of_node(pod, pod.metadata.uid or url_pod_uid(pod, url), node_name)


def _of_node(pod: Pod, uid: str, node_name: str) -> Pod:
    metadata = pod.metadata
    return replace(
        pod,
        metadata=replace(
            metadata,
            name=f"{metadata.name}-{node_name.lower()}",
            namespace=metadata.namespace or "default",
            uid=uid,
            annotations={**metadata.annotations, CONFIG_HASH: uid},
        ),
        spec=replace(pod.spec, node_name=node_name),
        status=replace(pod.status, phase="Pending"),
    )


def mark_seen(pod: Pod, source: str, seen: str) -> Pod:
    """Return the pod with the annotations of its source (`file`, `http`) and its first sight (RFC 3339)."""
    annotations = {**pod.metadata.annotations, CONFIG_SOURCE: source, CONFIG_SEEN: seen}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


def full_name(pod: Pod) -> str:
    """Return NAME_NAMESPACE, the kubelet's key of a pod across changes of its UID."""
    return f"{pod.metadata.name}_{pod.metadata.namespace}"


def _with_no_execute_toleration(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    """Add a toleration of every NoExecute taint, so that no node problem evicts a static pod."""
    same = [(t.key or None, t.operator, t.value or None, t.effect) for t in tolerations]
    wanted = (None, _NO_EXECUTE.operator, None, _NO_EXECUTE.effect)
    if wanted in same:
        index = same.index(wanted)
        return (*tolerations[:index], _NO_EXECUTE, *tolerations[index + 1 :])
    return (*tolerations, _NO_EXECUTE)


def _error(file: str, read: Manifest, problems: tuple[Violation, ...]) -> ManifestError:
    # Several fields with one cause repeat a problem: the dict drops duplicates and keeps the order.
    lines = read.document
    paths = [((*read.at, *path), problem) for path, problem in problems]
    found = list(dict.fromkeys((lines.line(path), field_text(path), problem) for path, problem in paths))
    line, field, problem = found[0]
    others = tuple(f"line {line}: {field}: {problem}" for line, field, problem in found[1:])
    return ManifestError(file, line, field, problem, others)
