"""Decodes and checks the data of ConfigMaps and Secrets, which never shows in errors. Pure.

Source: ValidateConfigMap and ValidateSecret of pkg/apis/core/validation; the keys of Secret types are documented at
https://kubernetes.io/docs/concepts/configuration/secret/#secret-types.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping

import msgspec

from actors.objects.parsing.kinds import key_problem
from proto.common import untrusted
from proto.schema.fieldpath import Path
from proto.v1 import ConfigMap, Secret

MAX_DATA_BYTES = 1024 * 1024
"""MaxSecretSize: the limit of all values together, for ConfigMaps too."""

_REQUIRED_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_JSON_KEYS = {".dockercfg": "kubernetes.io/dockercfg", ".dockerconfigjson": "kubernetes.io/dockerconfigjson"}
DEFAULT_SECRET_TYPE = "Opaque"

Problem = tuple[Path, str]


class Data:
    """Values by key, and problems as (path in the object, text)."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.problems: list[Problem] = []

    def _put(self, path: Path, key: str, value: bytes) -> None:
        problem = key_problem(key)
        if problem:
            self.problems.append(((*path, key), f"Invalid value: {problem}"))
        self.values[key] = value

    def text(self, path: Path, entries: Mapping[str, str]) -> None:
        """Add values in plain text."""
        for key, value in entries.items():
            self._put(path, key, value.encode("utf-8", "surrogatepass"))

    def base64(self, path: Path, entries: Mapping[str, str]) -> None:
        """Add values in base64, which may have line breaks, as in Go."""
        for key, value in entries.items():
            try:
                decoded = base64.b64decode("".join(value.split()), validate=True)
            except (binascii.Error, ValueError):
                self.problems.append(
                    ((*path, key), "Invalid value: not base64; text goes under stringData or data as is")
                )
                continue
            self._put(path, key, decoded)

    def check_size(self, field: str) -> None:
        """Add a problem when the values are too large."""
        size = sum(map(len, self.values.values()))
        if size > MAX_DATA_BYTES:
            self.problems.append(((field,), f"Too long: {size} bytes, may not be more than {MAX_DATA_BYTES} bytes"))


def config_map_data(config_map: ConfigMap) -> Data:
    """Values of data and binaryData."""
    data = Data()
    data.text(("data",), config_map.data)
    for key in config_map.binary_data:
        if key in config_map.data:
            data.problems.append((("binaryData", key), "Invalid value: the key is in data too; remove one"))
    data.base64(("binaryData",), config_map.binary_data)
    data.check_size("data")
    return data


def secret_data(secret: Secret) -> Data:
    """Values of data, overridden by stringData."""
    data = Data()
    data.base64(("data",), secret.data)
    data.text(("stringData",), secret.string_data)
    data.check_size("data")
    if not data.problems:
        data.problems.extend(_of_type(secret.type or DEFAULT_SECRET_TYPE, data.values))
    return data


def _of_type(secret_type: str, values: Mapping[str, bytes]) -> Iterator[Problem]:
    for key in _REQUIRED_KEYS.get(secret_type, ()):
        if key not in values:
            yield ("data",), f"Required value: a Secret of type {secret_type} has the key {key}"
        elif _JSON_KEYS.get(key) == secret_type and not _is_json_object(values[key]):
            yield ("data", key), "Invalid value: must be a JSON object"
    if secret_type == "kubernetes.io/basic-auth" and not {"username", "password"} & values.keys():
        yield ("data",), f"Required value: a Secret of type {secret_type} has the key username or password"


def _is_json_object(value: bytes) -> bool:
    try:
        return isinstance(untrusted.decode_json(value), dict)
    except msgspec.DecodeError:
        return False
