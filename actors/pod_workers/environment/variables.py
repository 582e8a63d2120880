"""A container's environment, and `$(NAME)` in its command, arguments and values. Pure.

Covers env and envFrom with every source. The caller fetches ConfigMaps, Secrets, Services and files. With
RelaxedEnvironmentVariableValidation (GA) every key of a ConfigMap or Secret is a name, so none is skipped. Source:
https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/ and
pkg/kubelet/kubelet_pods.go (makeEnvironmentVariables).
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from actors._host.node import downward
from actors.pod_workers.environment.exec_limits import MAX_TOTAL_BYTES, size, total_size, variable_size
from actors.pod_workers.model import reasons
from proto.v1 import Container, EnvFromSource, EnvVarSource, FileKeySelector, Pod

MOST_SHOWN = 253
"""Most characters of a name in a message: those of a ConfigMap's key."""
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")

Data = Callable[[str], Mapping[str, str] | None]
"""Name of a ConfigMap or Secret in the pod's namespace to its data; None: it does not exist."""


class ConfigError(Exception):
    """A container cannot be created from its spec; the text is the kubelet's message, `reason` its waiting reason."""

    def __init__(self, message: str, reason: str = reasons.CREATE_CONTAINER_CONFIG_ERROR) -> None:
        super().__init__(message)
        self.reason = reason


class TooLongError(Exception):
    """A text with its variables inserted is longer than its limit."""


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


def expand(text: str, variables: Mapping[str, str], most_bytes: int = MAX_TOTAL_BYTES) -> str:
    """Replace `$(NAME)` by the variable and `$$` by `$`. An unknown name stays as it is written.

    Raises TooLongError for a result of more than `most_bytes`, before it takes that memory.
    """
    inserted = 0

    def value(match: re.Match[str]) -> str:
        nonlocal inserted
        name = match.group(1)
        if name is None:
            return "$"
        if name not in variables:
            return match.group(0)
        found = variables[name]
        inserted += size(found)
        if inserted > most_bytes:
            raise TooLongError
        return found

    end = _closed(text)
    expanded = _REFERENCE.sub(value, text[:end]) + text[end:].replace("$$", "$")
    if size(expanded) > most_bytes:
        raise TooLongError
    return expanded


def expand_words(words: Iterable[str], variables: Mapping[str, str], container: str) -> list[str]:
    """Insert the variables into the command and arguments of a container. Raises ConfigError for what Linux refuses."""
    left, found = MAX_TOTAL_BYTES - total_size(variables), []
    for number, word in enumerate(words, 1):
        try:
            text = expand(word, variables, left - 1)
        except TooLongError:
            raise _too_long("command", container, f"with word {number} and its variables") from None
        left -= size(text) + 1
        found.append(text)
    return found


def _too_long(of: str, container: str, what: str) -> ConfigError:
    problem = f"{what} it is longer than {MAX_TOTAL_BYTES} bytes, which Linux refuses"
    return ConfigError(f"cannot make the {of} of container {container}: {problem}")


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
    `to_bytes`. Raises ConfigError with the kubelet's message if a required source is missing, and for an environment
    that Linux refuses.
    """
    # Ten thousand variables of one large source would take minutes: each call decodes, formats or parses all of it.
    sources = replace(
        sources,
        config_map=cache(sources.config_map),
        secret=cache(sources.secret),
        file_key=cache(sources.file_key),
    )
    field_value = cache(lambda path: downward.field_value(pod, path, sources.node, sources.pod_ips))
    found = _Environment(container.name)
    known = ChainMap(found.variables, sources.services)  # type: ignore[arg-type]  # only read
    for source in _last_of_each(container.env_from):
        for name, value in _all_of(source, sources):
            found.put(name, value)
    for variable in container.env:
        if variable.value:
            found.put_expanded(variable.name, variable.value, known)
        elif variable.value_from is not None:
            own = _from_source(pod, container, variable.value_from, sources, field_value)
            if own is not None:
                found.put(variable.name, own)
        else:
            found.put(variable.name, "")
    for name, value in sources.services.items():
        if name not in found.variables:
            found.put(name, value)
    return found.variables


def _last_of_each(sources: Iterable[EnvFromSource]) -> list[EnvFromSource]:
    # The last one of equal sources decides. Ten thousand of them would take minutes.
    return list(dict.fromkeys(reversed(tuple(sources))))[::-1]


class _Environment:
    """The variables of a container so far, and their size."""

    def __init__(self, container: str) -> None:
        self.variables: dict[str, str] = {}
        self._container = container
        self._bytes = 0

    def put(self, name: str, value: str) -> None:
        """Set a variable. Raises ConfigError if all are too long together."""
        before = self.variables.get(name)
        self._bytes += variable_size(name, value) - (0 if before is None else variable_size(name, before))
        if self._bytes > MAX_TOTAL_BYTES:
            raise self._too_long(name)
        self.variables[name] = value

    def put_expanded(self, name: str, value: str, known: Mapping[str, str]) -> None:
        """Insert the known variables into the value, and set the variable. Raises ConfigError."""
        try:
            self.put(name, expand(value, known, MAX_TOTAL_BYTES - self._bytes))
        except TooLongError:
            raise self._too_long(name) from None

    def _too_long(self, name: str) -> ConfigError:
        return _too_long("environment", self._container, f"with variable {name[:MOST_SHOWN]}")


def to_bytes(value: str) -> bytes:
    """A variable's value for the runtime."""
    return value.encode("utf-8", "surrogateescape")


def from_bytes(value: bytes) -> str:
    """The value of a Secret's key as text. Bytes that are not UTF-8 become surrogates."""
    return value.decode("utf-8", "surrogateescape")


def _all_of(source: EnvFromSource, sources: Sources) -> Iterator[tuple[str, str]]:
    if source.config_map_ref is not None:
        name, optional = source.config_map_ref.name, source.config_map_ref.optional
        kind, data = "configmap", sources.config_map(name)
    elif source.secret_ref is not None:
        name, optional = source.secret_ref.name, source.secret_ref.optional
        kind, data = "secret", sources.secret(name)
    else:
        return
    if data is None:
        if optional:
            return
        raise ConfigError(f'{kind} "{name}" not found')
    for key in sorted(data):
        yield (source.prefix or "") + key, data[key]


def _from_source(
    pod: Pod, container: Container, source: EnvVarSource, sources: Sources, field_value: Callable[[str], str]
) -> str | None:
    """The value; None if an optional source is missing."""
    try:
        if source.field_ref is not None:
            return field_value(source.field_ref.field_path)
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
