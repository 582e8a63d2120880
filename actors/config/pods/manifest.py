"""Decodes a manifest file into a Pod.

Checks apiVersion and kind, the type of every field, and the pod's name; warns of unknown fields. Later steps set
defaults (`defaulting`), check the API's rules (`validation`) and make the pod static (`static_pods.py`).
Source: tryDecodeSinglePod of the kubelet's pkg/kubelet/config.
"""

from typing import NamedTuple

from actors._files import typed
from actors._files.unknown import unknown_fields
from actors.config.validation.problems import ManifestError, ManifestWarning
from proto import v1
from proto.schema import document
from proto.schema.document import Document, DocumentError, Limits
from proto.schema.fieldpath import field_text

MAX_BYTES = 3 * 1024 * 1024
"""The API server's limit of a request body: no larger file can be a pod."""
_LIMITS = Limits(MAX_BYTES, "a manifest", "a Pod")


class Manifest(NamedTuple):
    """A pod as in its file; `document` gives the lines of problems found later."""

    pod: v1.Pod
    document: Document
    warnings: tuple[ManifestWarning, ...]


def read(file: str, data: bytes) -> Manifest:
    """Return the pod of a manifest. Raises ManifestError with file, line, field and problem."""
    try:
        parsed = document.parse(data, _LIMITS)
    except DocumentError as error:
        raise ManifestError(file, error.line, field_text(error.path), error.problem) from error
    _require_pod(file, parsed)
    try:
        pod = typed.convert(v1.Pod, parsed.value)
    except typed.WrongType as error:
        raise ManifestError(file, parsed.line(error.path), field_text(error.path), error.problem) from error
    if not pod.metadata.name:
        path = ("metadata", "name")
        raise ManifestError(file, parsed.line(path), field_text(path), "Required value: name is needed for the pod")
    return Manifest(pod, parsed, tuple(_warnings(parsed)))


def _require_pod(file: str, parsed: Document) -> None:
    if not isinstance(parsed.value, dict):
        problem = f"must be a mapping with apiVersion, kind and metadata, not {typed.shown(parsed.value)}"
        raise ManifestError(file, parsed.line(()), "", problem)
    for name, wanted in (("apiVersion", "v1"), ("kind", "Pod")):
        found = parsed.value.get(name)
        if found == wanted:
            continue
        problem = (
            f"must be {wanted}, not {typed.shown(found)}" if found is not None else f"Required value: must be {wanted}"
        )
        if found in ("PodList", "List"):
            problem += "; a file holds one Pod, put each pod of the list in its own file"
        raise ManifestError(file, parsed.line((name,)), name, problem)


def _warnings(parsed: Document) -> list[ManifestWarning]:
    found = [
        ManifestWarning(parsed.line(path), field_text(path), problem)
        for path, problem in unknown_fields(v1.Pod, parsed.value)
    ]
    if parsed.next_document_line:
        problem = "only the first document of a file is read; put each pod in its own file"
        found.append(ManifestWarning(parsed.next_document_line, "", problem))
    return found
