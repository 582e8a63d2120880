"""Parses the values of flags to the plain values that a configuration file would have.

The syntax is that of pflag and k8s.io/component-base/cli/flag. A repeated flag extends maps and lists, and replaces
other values. Taints are replaced, too. The validation of the field checks bounds.
"""

from __future__ import annotations

import csv
import ipaddress
import re
from collections.abc import Callable
from typing import Any, NamedTuple

Read = Callable[[str, Any], Any]
"""From the text and the flag's former value (None at first) to the value. Raises KindError."""


class KindError(ValueError):
    """The text is not a value of this type. The message describes the syntax."""


class Kind(NamedTuple):
    """One type of value."""

    name: str
    """The type's name in the kubelet's help."""
    read: Read
    metavar: str
    no_value: str | None = None
    """Value of the flag without one, which then never takes the next argument. None: it needs a value."""
    empty_is_unset: bool = False
    """True: an empty text changes nothing, as in the kubelet's IPVar and ReservedMemoryVar (pkg/util/flag)."""


_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")


def _string(text: str, _: Any) -> str:
    return text


def _boolean(text: str, _: Any) -> bool:
    if text not in _TRUE + _FALSE:
        raise KindError("expected true or false")
    return text in _TRUE


_MAX_DIGITS = 100
"""More than 64 binary digits need. Python refuses to convert thousands."""
_INTEGER = re.compile(r"[+-]?(0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO]?[0-7_]+|[1-9][0-9_]*|0)", re.ASCII)


def _integer(bits: int) -> Read:
    """Go's strconv.ParseInt with base 0: decimal, 0x, 0b, 0o, and a leading 0 for octal."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def read(text: str, _: Any) -> int:
        if len(text) > _MAX_DIGITS or not _INTEGER.fullmatch(text) or text.endswith("_") or "__" in text:
            raise KindError("expected a whole number")
        digits = text.lstrip("+-")
        is_octal = len(digits) > 1 and digits[0] == "0" and digits[1] in "01234567_"
        value = int(text.replace("_", ""), 8 if is_octal else 0)
        if not low <= value <= high:
            raise KindError(f"expected a whole number between {low} and {high}")
        return value

    return read


def _duration(text: str, _: Any) -> str:
    from proto.v1.scalars.duration import DurationError, parse_duration  # noqa: PLC0415 - loads the API types

    try:
        parse_duration(text)
    except DurationError as error:
        raise KindError(str(error)) from None
    return text


def _quantity(text: str, _: Any) -> str:
    from proto.v1.scalars.quantity import QuantityError, parse  # noqa: PLC0415 - loads the API types

    try:
        parse(text)
    except QuantityError as error:
        raise KindError(str(error)) from None
    return text


_LEADING_ZEROS = re.compile(r"\b0+(?=[0-9])")
"""Of an address's numbers. Go's ParseIPSloppy ignores them, and Python's parser refuses them."""


def _ip(text: str, _: Any) -> str:
    found = _LEADING_ZEROS.sub("", text)
    try:
        ipaddress.ip_address(found)
    except ValueError:
        raise KindError("expected an IP address such as 127.0.0.1 or ::1") from None
    return found


def _strings(text: str, before: Any) -> list[str]:
    """Comma-separated as a line of CSV, so an item in double quotes may have commas."""
    try:
        rows = list(csv.reader([text], strict=True)) if text else []
    except csv.Error as error:
        raise KindError(f"expected A,B,...: {error}") from None
    return [*(before or []), *(rows[0] if rows else [])]


def _pairs(separator: str, split: bool = True, value_needed: bool = True) -> Read:
    """KEY<separator>VALUE, separated by commas when `split`. Spaces around key and value are dropped."""

    def read(text: str, before: Any) -> dict[str, str]:
        found = dict(before or {})
        for part in text.split(",") if split else [text]:
            if not part.strip():
                continue
            key, sign, value = part.partition(separator)
            if (value_needed and not sign) or not key.strip():
                raise KindError(f"expected KEY{separator}VALUE, not {part.strip()!r}")
            found[key.strip()] = value.strip()
        return found

    return read


def _gates(text: str, before: Any) -> dict[str, bool]:
    found = dict(before or {})
    for key, value in _pairs("=")(text, None).items():
        if value not in _TRUE + _FALSE:
            raise KindError(f"expected {key}=true or {key}=false, not {key}={value}")
        found[key] = value in _TRUE
    return found


def _headers(text: str, before: Any) -> dict[str, list[str]]:
    """NAME:VALUE,... A repeated name has several values."""
    found = {name: list(values) for name, values in (before or {}).items()}
    for part in text.split(","):
        if not part.strip():
            continue
        name, sign, value = part.partition(":")
        if not sign:  # the value is not shown, because headers can have credentials
            raise KindError("expected NAME:VALUE,...; a part has no colon")
        found.setdefault(name.strip(), []).append(value.strip())
    return found


_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NAME = "[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_REMOVED_TAINT = re.compile(
    rf"(?:(?=[^/]{{1,253}}/){_DOMAIN}/)?{_NAME}(?:(?:=(?:{_NAME})?)?:(?:{'|'.join(_EFFECTS)}))?-", re.ASCII
)


def _taints(text: str, _: Any) -> list[dict[str, str]]:
    """The last flag counts, and an empty one means no taints, as in the kubelet's RegisterWithTaintsVar.

    KEY[=VALUE][:EFFECT]- removes a taint for kubectl. The kubelet checks it and leaves it out.
    """
    found: list[dict[str, str]] = []
    for part in text.split(",") if text else ():
        if part.endswith("-"):
            if not _REMOVED_TAINT.fullmatch(part):
                effects = ", ".join(_EFFECTS)
                raise KindError(f"expected KEY[=VALUE][:EFFECT]- with an EFFECT of {effects}, not {part!r}")
            continue
        left, sign, effect = part.rpartition(":")
        key, _, value = left.partition("=")
        if not sign or not key or effect not in _EFFECTS:
            raise KindError(f"expected KEY[=VALUE]:EFFECT with an EFFECT of {', '.join(_EFFECTS)}, not {part!r}")
        found.append({"key": key, "effect": effect} | ({"value": value} if value else {}))
    return found


_DECIMAL = re.compile(r"0*([0-9]{1,10})")


def _reserved_memory(text: str, before: Any) -> list[dict[str, Any]]:
    """NODE:memory=QUANTITY[,hugepages-SIZE=QUANTITY...], separated by semicolons."""
    found = list(before or [])
    for part in text.split(";"):
        node, _, limits_text = part.partition(":")
        limits = _pairs("=")(limits_text, None)
        numa_node = _DECIMAL.fullmatch(node.strip())
        if numa_node is None or not limits:
            raise KindError(f"expected NUMA_NODE:TYPE=QUANTITY,..., not {part!r}")
        for kind, quantity in limits.items():
            if kind != "memory" and not kind.startswith("hugepages-"):
                raise KindError(f"expected memory or hugepages-SIZE, not {kind!r}")
            _quantity(quantity, None)
        found.append({"numaNode": int(numa_node[1]), "limits": limits})
    return found


def _level(text: str, _: Any) -> int:
    """Decimal without a sign, as in logs/api/v1/pflags.go of component-base. So a leading 0 is not octal."""
    found = _DECIMAL.fullmatch(text)
    if found is None or int(found[1]) >= 1 << 31:
        raise KindError(f"expected a whole number between 0 and {(1 << 31) - 1}")
    return int(found[1])


def _vmodule(text: str, before: Any) -> list[dict[str, Any]]:
    found = list(before or [])
    for part in filter(None, text.split(",")):
        pattern, sign, level = part.partition("=")
        if not sign or not pattern or not level:
            raise KindError(f"expected PATTERN=N, not {part!r}")
        found.append({"filePattern": pattern, "verbosity": _level(level, None)})
    return found


_RELEASE = re.compile(r"v\d+\.\d+\.\d+\S*", re.ASCII)


def _version(text: str, _: Any) -> str:
    if text == "raw" or _RELEASE.fullmatch(text):
        return text
    if text not in _TRUE + _FALSE:
        raise KindError("expected true, false or raw, or a version to report such as vX.Y.Z-vendor.1")
    return "true" if text in _TRUE else "false"


KINDS = {
    kind.name: kind
    for kind in (
        Kind("string", _string, "TEXT"),
        Kind("bool", _boolean, "BOOL", no_value="true"),
        Kind("int", _integer(64), "N"),
        Kind("int32", _integer(32), "N"),
        Kind("int64", _integer(64), "N"),
        Kind("Level", _level, "N"),
        Kind("duration", _duration, "DURATION"),
        Kind("quantity", _quantity, "QUANTITY"),
        Kind("ip", _ip, "IP", empty_is_unset=True),
        Kind("stringSlice", _strings, "A,B,..."),
        Kind("mapStringString", _pairs("="), "KEY=VALUE,..."),
        Kind("mapStringStringNoSplit", _pairs("=", split=False), "KEY=VALUE"),
        Kind("langleMap", _pairs("<"), "SIGNAL<VALUE,..."),
        Kind("labels", _pairs("=", value_needed=False), "KEY=VALUE,..."),
        Kind("mapStringBool", _gates, "NAME=BOOL,..."),
        Kind("colonSeparatedMultimapStringString", _headers, "NAME:VALUE,..."),
        Kind("[]v1.Taint", _taints, "KEY=VALUE:EFFECT,..."),
        Kind("reserved-memory", _reserved_memory, "NODE:TYPE=QUANTITY,...", empty_is_unset=True),
        Kind("pattern=N,...", _vmodule, "PATTERN=N,..."),
        Kind("version", _version, "", no_value="true"),
    )
}
