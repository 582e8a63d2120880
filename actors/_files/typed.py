"""Converts a document's plain values to a typed record, or reports the path and text of a type error.

Null fields are dropped, as in Kubernetes. Messages name types, never values: a value may belong to a Secret. Unknown
fields are in `unknown.py`.
"""

import re
from typing import Any, TypeVar

import msgspec

from proto import v1
from proto.schema.fieldpath import Path

T = TypeVar("T", bound=v1.Record)

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
_EXPECTED = re.compile(r"Expected `(?P<expected>[^`]*)`(?P<bound> [<>]= -?[0-9]+)?(?:, got `(?P<found>[^`]*)`)?")


class WrongType(Exception):
    """A field has another type; see `path` and `problem`."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem


def convert(kind: type[T], value: dict[str, Any]) -> T:
    """The record of a document's plain values. Raises WrongType."""
    try:
        return v1.from_dict(kind, without_nulls(value))
    except msgspec.ValidationError as error:
        raise WrongType(*_located(str(error), value)) from error


def shown(value: Any) -> str:
    """A wrong value, for a message: "a mapping", "a list", or the scalar itself."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return repr(value)[:60]


def without_nulls(value: Any) -> Any:
    """The value without null fields: Go ignores null for a field of any type."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _located(message: str, value: Any) -> tuple[Path, str]:
    """Path and text of a decoding error. msgspec omits map keys, so they are searched for in the value."""
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
    # Every map of these APIs holds text or quantities, so the first other value is the wrong one.
    wrong = (key for key, inner in mapping.items() if inner is not None and (isinstance(inner, bool | dict | list)))
    huge = (key for key, inner in mapping.items() if isinstance(inner, int) and inner.bit_length() > 63)
    numbers = (key for key, inner in mapping.items() if isinstance(inner, int | float))
    return next(wrong, None) or next(huge, None) or next(numbers, None) or next(iter(mapping), "")


def _wording(problem: str) -> str:
    match = _EXPECTED.match(problem)
    if match is None:
        return problem
    names = [name.strip() for name in match["expected"].split("|")]
    expected = " or ".join(dict.fromkeys(_WORDS.get(name, name) for name in names if name != "null"))
    found = f", not {_FOUND.get(match['found'], match['found'])}" if match["found"] else ""
    return f"must be {expected}{match['bound'] or ''}{found}"
