"""The API's rules for references: to fields and resources of the pod itself, and to ConfigMaps and Secrets by name.

Environment variables and volumes share them. Source: validateObjectFieldSelector, validateSecretKeySelector and
validateContainerResourceFieldSelector of pkg/apis/core/validation.
"""

import re
from collections.abc import Collection, Iterator

from actors.config.validation import rules
from actors.config.validation.problems import Path, Violation
from actors.config.validation.resources import HUGE_PAGES, STANDARD
from proto.v1 import ResourceFieldSelector
from proto.v1.containers.env import ConfigMapKeySelector, SecretKeySelector
from proto.v1.meta import ObjectFieldSelector

_KEY = re.compile(r"[-._a-zA-Z0-9]+", re.ASCII)
_LONGEST_KEY = 253
_FORMER_PATHS = {"spec.host": "spec.nodeName"}
"""Old clients send these. Source: ConvertDownwardAPIFieldLabel of pkg/apis/core/pods."""


def validate_field_ref(path: Path, ref: ObjectFieldSelector, accepted: Collection[str]) -> Iterator[Violation]:
    """Yield the violations of a fieldRef: one of the `accepted` paths, or the key of one label or annotation."""
    if ref.api_version != "v1":
        yield rules.invalid(path / "apiVersion", ref.api_version or "", "must be v1")
    field, _, key = ref.field_path.partition("['")
    at = path / "fieldPath"
    if not field or not key.endswith("']"):
        if _FORMER_PATHS.get(ref.field_path) not in accepted:
            yield from rules.one_of(at, ref.field_path, accepted)
    elif field == "metadata.annotations":
        yield from rules.qualified_name(at, key.removesuffix("']").lower())
    elif field == "metadata.labels":
        yield from rules.qualified_name(at, key.removesuffix("']"))
    else:
        yield rules.invalid(at, ref.field_path, "does not support subscript")


def validate_resource_field_ref(path: Path, ref: ResourceFieldSelector) -> Iterator[Violation]:
    """Yield the violations of a resourceFieldRef: the resource and its divisor."""
    kind, _, resource = ref.resource.partition(".")
    if kind not in ("limits", "requests") or not (resource in STANDARD or resource.startswith(HUGE_PAGES)):
        supported = [f"{kind}.{resource}" for kind in ("limits", "requests") for resource in sorted(STANDARD)]
        yield from rules.one_of(path / "resource", ref.resource, supported)
    yield from rules.divisor(path / "divisor", ref)


def validate_key_selector(path: Path, ref: ConfigMapKeySelector | SecretKeySelector) -> Iterator[Violation]:
    """Yield the violations of a reference to a key of a ConfigMap or Secret."""
    yield from rules.subdomain(path / "name", ref.name)
    if not ref.key:
        yield rules.required(path / "key")
    elif len(ref.key) > _LONGEST_KEY or not _KEY.fullmatch(ref.key) or ref.key == "." or ref.key.startswith(".."):
        problem = "must be letters, digits, '-', '_' or '.', not '.' and not beginning with '..'"
        problem += f", at most {_LONGEST_KEY} characters"
        yield rules.invalid(path / "key", ref.key, problem)
