"""Decodes a manifest file into a Pod, or the answer of a URL into one Pod or those of a PodList.

Checks apiVersion and kind, the type of every field, and the pod's name; warns of unknown fields. Later steps set
defaults (`defaulting`), check the API's rules (`validation`) and make the pod static (`static_pods.py`).
Source: tryDecodeSinglePod and tryDecodePodList of the kubelet's pkg/kubelet/config.
"""

from typing import Any, NamedTuple

from actors._files import typed
from actors._files.unknown import unknown_fields
from actors.config.validation.problems import ManifestError, ManifestWarning
from proto import v1
from proto.schema import document
from proto.schema.document import Document, DocumentError, Limits
from proto.schema.fieldpath import Path, field_text

MAX_BYTES = 3 * 1024 * 1024
"""The API server's limit of a request body: no larger file can be a pod."""
MAX_LIST_BYTES = 10 * 1024 * 1024
"""Limit of the answer of a URL, which may hold every pod of a node."""
_LIMITS = Limits(MAX_BYTES, "a manifest", "a Pod")
_LIST_LIMITS = Limits(MAX_LIST_BYTES, "the answer of a URL", "a Pod or a PodList")


class Manifest(NamedTuple):
    """A pod as in its file; `document` gives the lines of problems found later, `at` the pod's place in it."""

    pod: v1.Pod
    document: Document
    warnings: tuple[ManifestWarning, ...]
    at: Path = ()


def read(file: str, data: bytes) -> Manifest:
    """Return the pod of a manifest. Raises ManifestError with file, line, field and problem."""
    parsed = _parsed(file, data, _LIMITS)
    _require_pod(file, parsed)
    return _pod_at(file, parsed, parsed.value, ())


def read_answer(url: str, data: bytes) -> tuple[Manifest, ...]:
    """Return the pod, or the pods of the PodList, that a URL answered with. Raises ManifestError for the first error.

    Items may leave out apiVersion and kind, as the API server's lists do.
    """
    parsed = _parsed(url, data, _LIST_LIMITS)
    value = parsed.value
    if not (isinstance(value, dict) and value.get("kind") == "PodList" and value.get("apiVersion") == "v1"):
        _require_pod(url, parsed)
        return (_pod_at(url, parsed, value, ()),)
    items = value.get("items")
    if items is not None and not isinstance(items, list):
        raise ManifestError(url, parsed.line(("items",)), "items", f"must be a list, not {typed.shown(items)}")
    return tuple(_item(url, parsed, item, ("items", index)) for index, item in enumerate(items or ()))


def _item(url: str, parsed: Document, item: Any, at: Path) -> Manifest:
    if not isinstance(item, dict):
        raise ManifestError(url, parsed.line(at), field_text(at), f"must be a Pod, not {typed.shown(item)}")
    for name, wanted in (("apiVersion", "v1"), ("kind", "Pod")):
        if item.get(name) not in (None, wanted):
            path = (*at, name)
            raise ManifestError(
                url, parsed.line(path), field_text(path), f"must be {wanted}, not {typed.shown(item[name])}"
            )
    return _pod_at(url, parsed, item, at)


def _parsed(file: str, data: bytes, limits: Limits) -> Document:
    try:
        return document.parse(data, limits)
    except DocumentError as error:
        raise ManifestError(file, error.line, field_text(error.path), error.problem) from error


def _pod_at(file: str, parsed: Document, value: dict[str, Any], at: Path) -> Manifest:
    try:
        pod = typed.convert(v1.Pod, value)
    except typed.WrongType as error:
        path = (*at, *error.path)
        raise ManifestError(file, parsed.line(path), field_text(path), error.problem) from error
    if not pod.metadata.name:
        path = (*at, "metadata", "name")
        raise ManifestError(file, parsed.line(path), field_text(path), "Required value: name is needed for the pod")
    return Manifest(pod, parsed, tuple(_warnings(parsed, value, at)), at)


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


def _warnings(parsed: Document, value: dict[str, Any], at: Path) -> list[ManifestWarning]:
    found = [
        ManifestWarning(parsed.line((*at, *path)), field_text((*at, *path)), problem)
        for path, problem in unknown_fields(v1.Pod, value)
    ]
    if parsed.next_document_line and at in ((), ("items", 0)):
        problem = "only the first document of a file is read; put each pod in its own file"
        found.append(ManifestWarning(parsed.next_document_line, "", problem))
    return found
