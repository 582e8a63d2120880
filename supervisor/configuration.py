"""A KubeletConfiguration file as settings.

Strict, as the kubelet's reading is: unknown and repeated fields and wrong types are errors, with file and line. Only
the fields of `supervisor.options` are known. https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from supervisor.options import BY_FIELD
from supervisor.values import SettingError

API_VERSION, KIND = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"


class ConfigurationError(Exception):
    """The file cannot be used: `cannot use FILE:LINE: ...`."""


def load(path: str | Path) -> dict[str, Any]:
    """Settings attributes by name from a file, YAML or JSON. Raises ConfigurationError."""
    try:
        return parse(Path(path).read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigurationError(f"cannot read configuration {path}: {reason}") from error


def parse(text: str, name: str) -> dict[str, Any]:
    """As `load`, from the text of the file `name`."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        raise ConfigurationError(f"cannot use {where}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"cannot use {name}: not YAML: {error}") from error
    if not isinstance(root, yaml.MappingNode):
        raise ConfigurationError(f"cannot use {name}: expected a {KIND} object")
    fields = _Fields(name)
    fields.walk(root, "")
    fields.check_type()
    return fields.settings


class _Fields:
    """The walk over the nodes, which know their lines."""

    def __init__(self, name: str) -> None:
        self.settings: dict[str, Any] = {}
        self._name = name
        self._type: dict[str, str] = {}
        self._loader = yaml.SafeLoader("")

    def walk(self, node: yaml.MappingNode, prefix: str) -> None:
        """Take every field of a mapping."""
        seen: set[str] = set()
        for key_node, value_node in node.value:
            key = str(key_node.value)
            path = f"{prefix}{key}"
            if key in seen:
                raise self._error(key_node, f"{path} is given twice")
            seen.add(key)
            self._take(path, key_node, value_node)

    def check_type(self) -> None:
        """Refuse a document of another kind."""
        given = (self._type.get("apiVersion"), self._type.get("kind"))
        if given != (API_VERSION, KIND):
            raise ConfigurationError(
                f"cannot use {self._name}: expected apiVersion {API_VERSION} and kind {KIND}, "
                f"not {given[0]} and {given[1]}"
            )

    def _take(self, path: str, key: yaml.Node, value: yaml.Node) -> None:
        if path in ("apiVersion", "kind"):
            self._type[path] = str(value.value)
        elif path in BY_FIELD:
            option, plain = BY_FIELD[path], self._plain(value)
            if plain is None:
                return  # as if it were not there, so the default
            try:
                self.settings[option.attribute] = option.type.parse(plain)
            except SettingError as error:
                raise self._error(value, f"{path}: {error}") from None
        elif any(known.startswith(f"{path}.") for known in BY_FIELD) and isinstance(value, yaml.MappingNode):
            self.walk(value, f"{path}.")
        else:
            raise self._error(key, f"unknown field {path!r}; this version does not support it")

    def _plain(self, node: yaml.Node) -> Any:
        try:
            return self._loader.construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise self._error(node, str(error)) from error

    def _error(self, node: yaml.Node, what: str) -> ConfigurationError:
        return ConfigurationError(f"cannot use {self._name}:{node.start_mark.line + 1}: {what}")
