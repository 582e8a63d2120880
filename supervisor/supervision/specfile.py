"""Reads a --supervisor-config file, such as etc/supervisor.yaml: the actors to run and changes to their specs.

Keys: `actors` (a list of names: only these), `defaults` (for every actor), `specs` (by actor's name). Errors name file,
line and key. Imported only when there is such a file, so that the parent needs no YAML parser.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from supervisor.supervision import specs
from supervisor.supervision.specs import ChildSpec, SpecError

_FIELDS = {field.name: field.type for field in msgspec.structs.fields(ChildSpec) if field.name != "name"}


def load(path: str, builtin: tuple[ChildSpec, ...]) -> tuple[ChildSpec, ...]:
    """The built-in specs with the file's changes, in start order. Raises SpecError."""
    return _Reader(path).apply(builtin)


class _Reader:
    """One file. Remembers each key's line, for errors that show only in the complete list."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lines: dict[tuple[str, str], int] = {}

    def apply(self, builtin: tuple[ChildSpec, ...]) -> tuple[ChildSpec, ...]:
        root = self._mapping(self._compose(), "")
        known = {spec.name: spec for spec in builtin}
        for key, node in root.items():
            if key not in ("actors", "defaults", "specs"):
                raise self._error(node, key, "unknown key; there are: actors, defaults, specs")
        changed = self._changed(root, known)
        names = self._names(root["actors"]) if "actors" in root else list(known)
        try:
            changed = specs.select(changed, names)
            return specs.validate(changed)
        except SpecError as error:
            raise self._located(error) from error

    def _changed(self, root: dict[str, yaml.Node], known: dict[str, ChildSpec]) -> tuple[ChildSpec, ...]:
        defaults = self._values(root["defaults"], "", "defaults") if "defaults" in root else {}
        own: dict[str, dict[str, Any]] = {}
        for name, node in (self._mapping(root["specs"], "specs") if "specs" in root else {}).items():
            if name not in known and name not in specs.known():
                every = ", ".join(sorted(specs.known() | known.keys()))
                raise self._error(node, f"specs.{name}", f"no such actor; there are: {every}")
            own[name] = self._values(node, name, f"specs.{name}")
        return tuple(msgspec.structs.replace(spec, **{**defaults, **own.get(name, {})}) for name, spec in known.items())

    def _compose(self) -> yaml.Node | None:
        try:
            return yaml.compose(Path(self._path).read_text(), Loader=yaml.SafeLoader)
        except OSError as error:
            raise SpecError("", "--supervisor-config", f"cannot read {self._path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise SpecError("", "--supervisor-config", f"{self._path} is not UTF-8: {error}") from error
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark is not None else 1
            raise SpecError("", "", f"is not YAML: {error.problem}", f"{self._path}:{line}") from error
        except yaml.YAMLError as error:
            raise SpecError("", "", f"is not YAML: {error}", f"{self._path}:1") from error

    def _mapping(self, node: yaml.Node | None, key: str) -> dict[str, yaml.Node]:
        if node is None or node.tag == "tag:yaml.org,2002:null":
            return {}
        if not isinstance(node, yaml.MappingNode):
            raise self._error(node, key or "the file", "must be a mapping")
        found: dict[str, yaml.Node] = {}
        for name_node, value in node.value:
            name = str(name_node.value)
            if name in found:
                raise self._error(name_node, f"{key}.{name}".lstrip("."), "is there twice")
            found[name] = value
        return found

    def _values(self, node: yaml.Node, actor: str, key: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value_node in self._mapping(node, key).items():
            if name not in _FIELDS:
                raise self._error(value_node, f"{key}.{name}", f"unknown key; there are: {', '.join(_FIELDS)}")
            try:
                plain = yaml.SafeLoader("").construct_object(value_node, deep=True)
                values[name] = msgspec.convert(plain, _FIELDS[name])
            except Exception as error:  # PyYAML's constructors raise errors of Python, too: for the date 2001-01-00
                raise self._error(value_node, f"{key}.{name}", str(error)) from error
            self._lines[actor, name] = value_node.start_mark.line + 1
        return values

    def _names(self, node: yaml.Node) -> list[str]:
        if not isinstance(node, yaml.SequenceNode) or not all(isinstance(item, yaml.ScalarNode) for item in node.value):
            raise self._error(node, "actors", "must be a list of actor names")
        self._lines["", "actors"] = node.start_mark.line + 1
        return [str(item.value) for item in node.value]

    def _error(self, node: yaml.Node, key: str, problem: str) -> SpecError:
        return SpecError("", key, problem, f"{self._path}:{node.start_mark.line + 1}")

    def _located(self, error: SpecError) -> SpecError:
        line = self._lines.get((error.name, error.key)) or self._lines.get(("", error.key))
        return SpecError(error.name, error.key, error.problem, f"{self._path}:{line}" if line else self._path)
