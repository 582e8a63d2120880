"""Parses Kubernetes quantities (`100m`, `1.5Gi`, `2e3`) to exact integers.

Source: the serialization format of k8s.io/apimachinery/pkg/api/resource.Quantity.
"""

import re

from proto.v1.scalars.base import Quantity

NANOS = 10**9
"""Quantities are exact to a nano. Finer values are rounded away from zero, as in Kubernetes."""

_CAP = (2**63 - 1) * NANOS
_FORM = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))([A-Za-z]*|[eE][+-]?[0-9]+)", re.ASCII)
_MAX_LENGTH = 128
_MAX_EXPONENT = 64
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class QuantityError(ValueError):
    """The text is not a quantity. The message describes the syntax."""


def parse(quantity: Quantity) -> int:
    """Return the quantity in nanos (10^-9 units), capped at +-(2^63-1) units; raises QuantityError."""
    text = _text(quantity)
    match = _FORM.fullmatch(text)
    if match is None:
        raise _error(quantity)
    sign, whole, fraction, bare_fraction, suffix = match.groups()
    fraction = (fraction or bare_fraction or "").rstrip("0")
    numerator, denominator = _scale(suffix, quantity)
    nanos: int = -(-int((whole or "0") + fraction) * numerator * NANOS // (denominator * 10 ** len(fraction)))
    return max(-_CAP, -nanos) if sign == "-" else min(_CAP, nanos)


def value(quantity: Quantity) -> int:
    """Return the quantity in whole units (bytes, cores), rounded up; raises QuantityError."""
    return -(-parse(quantity) // NANOS)


def milli_value(quantity: Quantity) -> int:
    """Return the quantity in thousandths (millicores), rounded up; raises QuantityError."""
    return -(-parse(quantity) // (NANOS // 1000))


def _text(quantity: Quantity) -> str:
    # The API machinery gets YAML numbers as JSON text, in which Go prints large and small floats with an exponent too.
    text = quantity.strip() if isinstance(quantity, str) else repr(quantity)
    if len(text) > _MAX_LENGTH or isinstance(quantity, bool):
        raise _error(quantity)
    return text


def _scale(suffix: str, quantity: Quantity) -> tuple[int, int]:
    if suffix in _BINARY:
        return 1 << _BINARY[suffix], 1
    exponent = _DECIMAL.get(suffix)
    if exponent is None:
        digits = suffix[1:]
        if suffix[:1] not in ("e", "E") or not digits.lstrip("+-").isdigit():
            raise _error(quantity)
        # Beyond these exponents the value is zero or capped. The limit avoids a huge number for 1e999999999.
        exponent = max(-_MAX_EXPONENT - _MAX_LENGTH, min(_MAX_EXPONENT + _MAX_LENGTH, int(digits)))
    return (10**exponent, 1) if exponent >= 0 else (1, 10**-exponent)


def _error(quantity: Quantity) -> QuantityError:
    shown = repr(quantity)[:60]
    return QuantityError(
        f"{shown} is not a quantity: a number with a suffix of n u m k M G T P E Ki Mi Gi Ti Pi Ei or an exponent"
    )
