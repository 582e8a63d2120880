"""A container's environment, and `$(NAME)` in its command, arguments and values. Pure.

Covers env and envFrom with every source. The caller fetches ConfigMaps, Secrets, Services and files. With
RelaxedEnvironmentVariableValidation (GA) every key of a ConfigMap or Secret is a name, so none is skipped. Source:
https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/ and
pkg/kubelet/kubelet_pods.go (makeEnvironmentVariables).
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from actors._host.node import downward
from actors.pod_workers.model import reasons
from proto.v1 import Container, EnvFromSource, EnvVarSource, FileKeySelector, Pod

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")

Data = Callable[[str], Mapping[str, str] | None]
"""Name of a ConfigMap or Secret in the pod's namespace to its data; None: it does not exist."""


class ConfigError(Exception):
    """A container cannot be created from its spec; the text is the kubelet's message, `reason` its waiting reason."""

    def __init__(self, message: str, reason: str = reasons.CREATE_CONTAINER_CONFIG_ERROR) -> None:
        super().__init__(message)
        self.reason = reason


def _nothing(name: str) -> Mapping[str, str] | None:  # noqa: ARG001 - Data's signature
    return None


def _no_volume(key: FileKeySelector) -> str:
    raise ConfigError(f'cannot find the volume "{key.volume_name}" referenced by FileKeyRef')


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of values besides the pod's spec."""

    node: downward.NodeFacts = field(default_factory=downward.NodeFacts)
    pod_ips: tuple[str, ...] = ()
    config_map: Data = _nothing
    secret: Data = _nothing
    services: Mapping[str, str] = field(default_factory=dict)
    """Variables of Services. A variable of the spec wins."""
    file_key: Callable[[FileKeySelector], str] = _no_volume
    """The value of a key in a file of a volume; empty when the file lacks it. Raises ConfigError."""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by the variable and `$$` by `$`. An unknown name stays as it is written."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        return "$" if name is None else variables.get(name, match.group(0))

    end = _closed(text)
    return _REFERENCE.sub(value, text[:end]) + text[end:].replace("$$", "$")


def _closed(text: str) -> int:
    # No reference begins after the last parenthesis. A search there for the end of each `$(` takes quadratic time.
    return text.rfind(")") + 1


def references(text: str) -> tuple[str, ...]:
    """The names of the variables in `text`."""
    return tuple(
        name for name in (match.group(1) for match in _REFERENCE.finditer(text, 0, _closed(text))) if name is not None
    )


def environment(pod: Pod, container: Container, sources: Sources) -> dict[str, str]:
    """The variables in the order of definition, envFrom first. A later variable of a name replaces an earlier one.

    Variables of Services come last and replace none. Bytes of Secrets that are not UTF-8 become surrogates, see
    `to_bytes`. Raises ConfigError with the kubelet's message if a required source is missing.
    """
    variables: dict[str, str] = {}
    known = ChainMap(variables, sources.services)  # type: ignore[arg-type]  # only read
    for source in container.env_from:
        variables.update(_all_of(source, sources))
    for variable in container.env:
        if variable.value:
            variables[variable.name] = expand(variable.value, known)
        elif variable.value_from is not None:
            found = _from_source(pod, container, variable.value_from, sources)
            if found is not None:
                variables[variable.name] = found
        else:
            variables[variable.name] = ""
    for name, value in sources.services.items():
        variables.setdefault(name, value)
    return variables


def to_bytes(value: str) -> bytes:
    """A variable's value for the runtime."""
    return value.encode("utf-8", "surrogateescape")


def from_bytes(value: bytes) -> str:
    """The value of a Secret's key as text. Bytes that are not UTF-8 become surrogates."""
    return value.decode("utf-8", "surrogateescape")


def _all_of(source: EnvFromSource, sources: Sources) -> dict[str, str]:
    if source.config_map_ref is not None:
        name, optional = source.config_map_ref.name, source.config_map_ref.optional
        kind, data = "configmap", sources.config_map(name)
    elif source.secret_ref is not None:
        name, optional = source.secret_ref.name, source.secret_ref.optional
        kind, data = "secret", sources.secret(name)
    else:
        return {}
    if data is None:
        if optional:
            return {}
        raise ConfigError(f'{kind} "{name}" not found')
    return {(source.prefix or "") + key: data[key] for key in sorted(data)}


def _from_source(pod: Pod, container: Container, source: EnvVarSource, sources: Sources) -> str | None:
    """The value; None if an optional source is missing."""
    try:
        if source.field_ref is not None:
            return downward.field_value(pod, source.field_ref.field_path, sources.node, sources.pod_ips)
        if source.resource_field_ref is not None:
            return downward.resource_value(pod, container, source.resource_field_ref, sources.node)
    except downward.NoSuchFieldError as error:
        raise ConfigError(str(error)) from error
    if source.config_map_key_ref is not None:
        key = source.config_map_key_ref
        return _key(pod, "ConfigMap", key.name, key.key, sources.config_map(key.name), optional=bool(key.optional))
    if source.secret_key_ref is not None:
        key_ = source.secret_key_ref
        return _key(pod, "Secret", key_.name, key_.key, sources.secret(key_.name), optional=bool(key_.optional))
    if source.file_key_ref is not None:
        return _file_key(source.file_key_ref, sources)
    return ""


def _file_key(key: FileKeySelector, sources: Sources) -> str | None:
    value = sources.file_key(key)
    if value:
        return value
    if key.optional:
        return None
    raise ConfigError(f'environment variable key "{key.key}" not found in file "{key.path}"')


def _key(pod: Pod, kind: str, name: str, key: str, data: Mapping[str, str] | None, *, optional: bool) -> str | None:
    if data is not None and key in data:
        return data[key]
    if optional:
        return None
    if data is None:
        raise ConfigError(f'{kind.lower()} "{name}" not found')
    raise ConfigError(f"couldn't find key {key} in {kind} {pod.metadata.namespace}/{name}")
