"""Decodes plain values of YAML or JSON to KubeletConfiguration, and reports all errors together.

It checks apiVersion, kind, unknown fields and types. Where the kubelet decodes strictly and then leniently, a caller
takes the unknown fields apart. `proto.schema.document` checks syntax and duplicate keys, `validation` the values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from proto.schema.fieldpath import Path, field_text
from supervisor.config.kubeletconfig.problems import MAX_PROBLEMS, Problem
from supervisor.config.kubeletconfig.suggestion import suggestion
from supervisor.config.kubeletconfig.typed import schema
from supervisor.config.kubeletconfig.typed.base import ConfigStruct
from supervisor.config.kubeletconfig.typed.scalars import SCALARS, ConversionError, shown
from supervisor.config.kubeletconfig.typed.schema import Kind
from supervisor.config.kubeletconfig.typed.types import API_VERSION, KIND, KubeletConfiguration

_SECRET = "staticPodURLHeader"


class Decoded(NamedTuple):
    """The configuration without defaults and without the invalid fields, which are in `problems`."""

    config: KubeletConfiguration
    problems: list[Problem]


def decode(
    value: Any,
    file: str = "",
    line_of: Callable[[Path], int] | None = None,
    unknown: dict[Path, str] | None = None,
    *,
    drop_in: bool = False,
) -> Decoded:
    """Decode a plain mapping. Raises no errors. `line_of` is `Document.line` of the file, if any.

    Unknown fields are errors, unless `unknown` is given: then it gets a message for each, and they are left out.
    In a `drop_in`, null entries of a map are left out. There they remove the key from the file's map.
    """
    decoder = _Decoder(file, line_of, unknown=unknown, drop_in=drop_in)
    decoder.check_type(value)
    if decoder.problems:
        return Decoded(KubeletConfiguration(), decoder.problems)
    try:
        return Decoded(decoder.struct(KubeletConfiguration, value, ()), decoder.problems)
    except _Enough:
        return Decoded(KubeletConfiguration(), decoder.problems)


def convert(path: str, plain: Any) -> Any:
    """The value of one field (`evictionHard`, `logging.verbosity`) from a plain value.

    Raises ConversionError, and KeyError for a path that is not in `schema.leaves()`.
    """
    decoder = _Decoder("", None, secret=path == _SECRET)
    with contextlib.suppress(_Enough):
        value = decoder.value(schema.leaves()[path].field.kind, plain, ())
    if decoder.problems:
        raise ConversionError("; ".join(str(problem) for problem in decoder.problems))
    return value


class _Enough(Exception):
    """MAX_PROBLEMS is reached."""


class _Decoder:
    """Walks along types and values. The types bound the depth."""

    def __init__(
        self,
        file: str,
        line_of: Callable[[Path], int] | None,
        *,
        secret: bool = False,
        unknown: dict[Path, str] | None = None,
        drop_in: bool = False,
    ) -> None:
        self.problems: list[Problem] = []
        self._unknown = unknown
        self._drop_in = drop_in
        self._file = file
        self._line_of = line_of
        self._secret = secret

    def check_type(self, value: Any) -> None:
        """Check apiVersion and kind. After an error, fields are not checked, because all would be unknown."""
        if not isinstance(value, dict):
            self._add((), f"must be a mapping with apiVersion {API_VERSION} and kind {KIND}, not {shown(value)}")
            return
        for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
            found = value.get(name)
            if found is None or found == "":
                self._add((name,), f"is missing; write {name}: {wanted}")
            elif found != wanted:
                self._add((name,), f"must be {wanted}, not {shown(found)}")

    def struct(self, struct: type[ConfigStruct], plain: Any, path: Path) -> Any:
        """A struct from a mapping."""
        if not isinstance(plain, dict):
            self._add(path, f"must be a mapping, not {shown(plain)}")
            return struct()
        known = schema.fields(struct)
        attributes = {}
        for name, inner in plain.items():
            field, here = known.get(name), (*path, name)
            if field is None:
                self._add_unknown(here, name, known)
            elif inner is not None:  # null leaves a field unset, as in Go
                before = len(self.problems)
                value = self.value(field.kind, inner, here)
                if len(self.problems) == before or field.kind.name in ("struct", "list", "map"):
                    attributes[field.attribute] = value
        return struct(**attributes)

    def value(self, kind: Kind, plain: Any, path: Path) -> Any:
        """A value of a kind. After an error, which is added to `problems`, the result is meaningless."""
        if kind.struct is not None:
            return self.struct(kind.struct, plain, path)
        if kind.name == "list":
            return self._list(kind, plain, path)
        if kind.name == "map":
            return self._map(kind, plain, path)
        try:
            return SCALARS[kind.name](plain)
        except ConversionError as error:
            self._add(path, str(error))
            return None

    def _list(self, kind: Kind, plain: Any, path: Path) -> tuple[Any, ...] | None:
        if not isinstance(plain, list):
            self._add(path, f"must be a list, not {shown(plain)}")
            return None
        assert kind.item is not None
        return tuple(self.value(kind.item, inner, (*path, index)) for index, inner in enumerate(plain))

    def _map(self, kind: Kind, plain: Any, path: Path) -> dict[str, Any] | None:
        if not isinstance(plain, dict):
            self._add(path, f"must be a mapping, not {shown(plain)}")
            return None
        assert kind.item is not None
        entries = ((str(key), inner) for key, inner in plain.items() if inner is not None or not self._drop_in)
        return {key: self.value(kind.item, inner, (*path, key)) for key, inner in entries}

    def _add_unknown(self, path: Path, name: str, known: Iterable[str]) -> None:
        # A name is searched only for messages that are shown: a file may have many thousand fields.
        shown_too = self._unknown is None or len(self._unknown) < MAX_PROBLEMS
        message = f"unknown field{suggestion(name, known) if shown_too else ''}"
        if self._unknown is None:
            self._add(path, message)
        else:
            self._unknown[path] = message

    def _add(self, path: Path, message: str) -> None:
        line = self._line_of(path) if self._line_of else 0
        if self._secret or path[:1] == (_SECRET,):
            message = "must be a mapping of header names to lists of text"  # without the secret value
        self.problems.append(Problem(field_text(path), message, self._file, line))
        if len(self.problems) >= MAX_PROBLEMS:
            raise _Enough
