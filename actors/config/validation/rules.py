"""The API's rules for single values: names, ports, environment names, paths, enumerations, quantities.

Each function yields violations in the API server's words. Source: k8s.io/apimachinery/pkg/util/validation.
"""

import re
import socket
from collections.abc import Collection, Iterator
from typing import Any

from actors.config.validation.problems import Path, Violation
from proto.v1 import Quantity, ResourceFieldSelector
from proto.v1.scalars.quantity import QuantityError, parse

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_SEARCHED = re.compile(r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*", re.ASCII)
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_PORT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.ASCII)
_ENV_NAME = re.compile(r"[ -<>-~]+", re.ASCII)
_CPU_UNITS = ("1m", "1")
_BYTE_UNITS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")

_LABEL_RULE = "must be lower case letters, digits or '-', with a letter or digit at both ends, at most 63 characters"
_SUBDOMAIN_RULE = (
    "must be lower case letters, digits, '-' or '.', with a letter or digit at both ends, at most 253 characters"
)


def invalid(path: Path, value: Any, rule: str) -> Violation:
    """Return the violation of a value that breaks a rule."""
    return Violation(path, f"Invalid value: {shown(value)}: {rule}")


def required(path: Path, rule: str = "") -> Violation:
    """Return the violation of a value that is missing."""
    return Violation(path, f"Required value: {rule}" if rule else "Required value")


def unique(path: Path, value: str, taken: set[str]) -> Iterator[Violation]:
    """A value that is not in `taken`, which then gets it."""
    if value in taken:
        yield Violation(path, f"Duplicate value: {shown(value)}")
    taken.add(value)


def shown(value: Any) -> str:
    """Return a value as printed in a problem, cut to a readable length."""
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 100 else text[:97] + "..."


def label(path: Path, value: str) -> Iterator[Violation]:
    """A DNS-1123 label: a container's or a volume's name, a namespace."""
    if not value:
        yield required(path)
    elif len(value) > 63 or not _LABEL.fullmatch(value):
        yield invalid(path, value, _LABEL_RULE)


def subdomain(path: Path, value: str) -> Iterator[Violation]:
    """A DNS-1123 subdomain: a pod's name, a node's name."""
    if not value:
        yield required(path)
    elif len(value) > 253 or not _SUBDOMAIN.fullmatch(value):
        yield invalid(path, value, _SUBDOMAIN_RULE)


def search_domain(path: Path, value: str) -> Iterator[Violation]:
    """A domain that a resolver appends to names: like a subdomain, with '_' and a trailing dot if wanted, or `.`."""
    name = value.removesuffix(".")
    if value != "." and (len(name) > 253 or not _SEARCHED.fullmatch(name)):
        rule = "must be lower case letters, digits, '-', '_' or '.', with a letter or digit at both ends of each part"
        yield invalid(path, value, rule)


def qualified_name(path: Path, value: str) -> Iterator[Violation]:
    """A label key or resource name: an optional `PREFIX/`, then up to 63 letters, digits, '-', '_', '.'."""
    prefix, slash, name = value.rpartition("/")
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        yield invalid(path, value, f"the part before '/' {_SUBDOMAIN_RULE}")
    if len(name) > 63 or not _QUALIFIED.fullmatch(name):
        yield invalid(
            path, value, "must be letters, digits, '-', '_' or '.', ending in a letter or digit, at most 63 characters"
        )


def label_value(path: Path, value: str) -> Iterator[Violation]:
    """A label's value: empty, or up to 63 letters, digits, '-', '_', '.'."""
    if value and (len(value) > 63 or not _QUALIFIED.fullmatch(value)):
        yield invalid(path, value, "must be empty or letters, digits, '-', '_' or '.', at most 63 characters")


def port_name(path: Path, value: str) -> Iterator[Violation]:
    """An IANA service name."""
    good = _PORT_NAME.fullmatch(value) and len(value) <= 15 and "--" not in value and any(c.isalpha() for c in value)
    if not good:
        yield invalid(
            path, value, "must be at most 15 lower case letters, digits or single '-', with at least one letter"
        )


def port_number(path: Path, value: int | None) -> Iterator[Violation]:
    """A port from 1 to 65535."""
    if not value:
        yield required(path)
    else:
        yield from in_range(path, value, 1, 65535)


def env_name(path: Path, value: str) -> Iterator[Violation]:
    """The name of an environment variable: printable ASCII without '='."""
    if not value:
        yield required(path)
    elif not _ENV_NAME.fullmatch(value):
        yield invalid(path, value, "must be printable ASCII characters other than '='")


def one_of(path: Path, value: str | None, accepted: Collection[str], *, optional: bool = False) -> Iterator[Violation]:
    """One of the `accepted` words."""
    if not value:
        if not optional:
            yield required(path, f"supported values: {_quoted(accepted)}")
    elif value not in accepted:
        yield Violation(path, f"Unsupported value: {shown(value)}: supported values: {_quoted(accepted)}")


def in_range(path: Path, value: int | None, low: int, high: int | None = None) -> Iterator[Violation]:
    """A whole number within bounds, both included; None is no violation."""
    if value is not None and (value < low or (high is not None and value > high)):
        rule = f"must be greater than or equal to {low}" if high is None else f"must be between {low} and {high}"
        yield invalid(path, value, rule)


def relative_path(path: Path, value: str) -> Iterator[Violation]:
    """A path within a volume: not absolute, no '..'."""
    if value.startswith("/"):
        yield invalid(path, value, "must be a relative path")
    if ".." in value.split("/"):
        yield invalid(path, value, "must not contain '..'")


def address(path: Path, value: str) -> Iterator[Violation]:
    """An IPv4 or IPv6 address."""
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in value else socket.AF_INET, value)
    except (OSError, ValueError):
        yield invalid(path, value, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")


def quantity(path: Path, value: Quantity) -> Iterator[Violation]:
    """A quantity that is not negative."""
    try:
        if parse(value) < 0:
            yield invalid(path, value, "must be greater than or equal to 0")
    except QuantityError as error:
        yield invalid(path, value, str(error).partition(" is ")[2])


def divisor(path: Path, field: ResourceFieldSelector) -> Iterator[Violation]:
    """A unit in which a container's request or limit may be told. Source: validateContainerResourceDivisor."""
    given = field.divisor
    units = _CPU_UNITS if field.resource.endswith(".cpu") else _BYTE_UNITS
    try:
        if given is not None and parse(given) not in (0, *map(parse, units)):
            yield Violation(path, f"Unsupported value: {shown(given)}: supported values: {_quoted(units)}")
    except QuantityError as error:
        yield invalid(path, given, str(error).partition(" is ")[2])


def _quoted(words: Collection[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)
