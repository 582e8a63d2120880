"""A manifest file's bytes as a Pod, or one error that names file, line and field.

Covers the step from bytes to types: syntax through `document.py`, apiVersion and kind, the type of every field, the
pod's name, warnings of unknown fields. Does not cover defaults, the API's rules (`validation.py`) or what makes a pod
static. Source: tryDecodeSinglePod of the kubelet's pkg/kubelet/config.
"""

import re
from typing import Any, NamedTuple

import msgspec

from actors.config import document
from actors.config.problems import ManifestError, ManifestWarning
from actors.config.unknown import unknown_fields
from proto import v1
from proto.document import Document
from proto.fieldpath import Path, field_text

_ERROR = re.compile(r"(?P<problem>.*?)(?: - at `(?P<where>key in )?(?P<path>\$.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>[0-9]+|\.\.\.)\]")
_WORDS = {
    "str": "text (in quotes if it looks like a number or true/false)",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
}
_FOUND = {
    "str": "text",
    "int": "a number",
    "float": "a fraction",
    "bool": "true or false",
    "null": "nothing",
    "object": "a mapping",
    "array": "a list",
}
_EXPECTED = re.compile(r"Expected `(?P<expected>[^`]*)`(?:, got `(?P<found>[^`]*)`)?")


class Manifest(NamedTuple):
    """A pod as its file has it, with the document for the lines of later findings."""

    pod: v1.Pod
    document: Document
    warnings: tuple[ManifestWarning, ...]


def read(file: str, data: bytes) -> Manifest:
    """Return the pod of a manifest; raises ManifestError with file, line, field and problem."""
    parsed = document.parse(file, data)
    _require_pod(file, parsed)
    try:
        pod = v1.from_dict(v1.Pod, _without_nulls(parsed.value))
    except msgspec.ValidationError as error:
        path, problem = _located(str(error), parsed.value)
        raise ManifestError(file, parsed.line(path), field_text(path), problem) from error
    if not pod.metadata.name:
        path = ("metadata", "name")
        raise ManifestError(file, parsed.line(path), field_text(path), "Required value: name is needed for the pod")
    return Manifest(pod, parsed, tuple(_warnings(parsed)))


def _require_pod(file: str, parsed: Document) -> None:
    if not isinstance(parsed.value, dict):
        raise ManifestError(
            file,
            parsed.line(()),
            "",
            f"must be a mapping with apiVersion, kind and metadata, not {_shown(parsed.value)}",
        )
    for name, wanted in (("apiVersion", "v1"), ("kind", "Pod")):
        found = parsed.value.get(name)
        if found == wanted:
            continue
        hint = (
            "; a file holds one Pod, put each pod of the list in its own file" if found in ("PodList", "List") else ""
        )
        problem = (
            f"Required value: must be {wanted}" if found is None else f"must be {wanted}, not {_shown(found)}{hint}"
        )
        raise ManifestError(file, parsed.line((name,)), name, problem)


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return repr(value)[:60]


def _without_nulls(value: Any) -> Any:
    # Go leaves a field untouched for null, whatever the field's type; null items of a list become empty ones there.
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _warnings(parsed: Document) -> list[ManifestWarning]:
    found = [
        ManifestWarning(parsed.line(path), field_text(path), problem)
        for path, problem in unknown_fields(v1.Pod, parsed.value)
    ]
    if parsed.next_document_line:
        problem = "only the first document of a file is read; put each pod in its own file"
        found.append(ManifestWarning(parsed.next_document_line, "", problem))
    return found


def _located(message: str, value: Any) -> tuple[Path, str]:
    """Return path and wording of a decoding error; msgspec leaves map keys out, so they are looked for in the value."""
    match = _ERROR.fullmatch(message)
    problem, where = (match["problem"], match["path"] or "$") if match else (message, "$")
    path: Path = ()
    for step in _STEP.finditer(where):
        part: str | int = step["name"] or step["index"]
        if part == "...":
            part = _wrong_key(_at(value, path))
        elif step["index"]:
            part = int(part)
        path = (*path, part)
    return path, _wording(problem)


def _at(value: Any, path: Path) -> Any:
    for part in path:
        value = value[part]
    return value


def _wrong_key(mapping: Any) -> str:
    # Every map of the Pod API holds text or quantities, so the first value that is neither is the one.
    wrong = (key for key, inner in mapping.items() if inner is not None and (isinstance(inner, bool | dict | list)))
    numbers = (key for key, inner in mapping.items() if isinstance(inner, int | float))
    return next(wrong, None) or next(numbers, None) or next(iter(mapping), "")


def _wording(problem: str) -> str:
    match = _EXPECTED.match(problem)
    if match is None:
        return problem
    names = [name.strip() for name in match["expected"].split("|")]
    expected = " or ".join(dict.fromkeys(_WORDS.get(name, name) for name in names if name != "null"))
    found = f", not {_FOUND.get(match['found'], match['found'])}" if match["found"] else ""
    return f"must be {expected}{found}"
