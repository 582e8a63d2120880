"""Parses Kubernetes quantities (`100m`, `1.5Gi`, `2e3`) to exact integers, and prints them as Kubernetes does.

Source: the serialization format of k8s.io/apimachinery/pkg/api/resource.Quantity.
"""

import re
from decimal import Decimal

from proto.v1.scalars.base import Quantity, ResourceList

NANOS = 10**9
"""Quantities are exact to a nano. Finer values are rounded away from zero, as in Kubernetes."""

_MOST = 2**63 - 1
_CAP = _MOST * NANOS
_FORM = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))([A-Za-z]*|[eE][+-]?[0-9]+)", re.ASCII)
_MAX_LENGTH = 128
_MAX_EXPONENT = 64
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_MILLIS = 1000
_LEAST_EXPONENT, _MOST_EXPONENT = -3, 18
"""Of the decimal suffixes that are printed: `m` and `E`."""
_INT64_DIGITS, _BINARY_DIGITS = 18, 14
"""Go keeps quantities of at most so many digits as an int64. For a binary suffix those of the factor count, too."""
_PLAIN_FLOATS = 1e-6, 1e21
"""Go prints a float from the first to below the second one without an exponent in JSON."""


class QuantityError(ValueError):
    """The text is not a quantity. The message describes the syntax."""


def parse(quantity: Quantity) -> int:
    """Return the quantity in nanos (10^-9 units), capped at +-(2^63-1) units; raises QuantityError."""
    sign, whole, fraction, suffix = _split(quantity)
    nanos = min(_CAP, _rounded_up(whole, fraction, _scale(suffix, quantity), NANOS))
    return -nanos if sign == "-" else nanos


def value(quantity: Quantity) -> int:
    """Return the quantity in whole units (bytes, cores), rounded up; raises QuantityError."""
    return -(-parse(quantity) // NANOS)


def milli_value(quantity: Quantity) -> int:
    """Return the quantity in thousandths (millicores), rounded up; raises QuantityError."""
    return -(-parse(quantity) // (NANOS // 1000))


def canonical(quantity: Quantity) -> str:
    """Return the text that Go prints for a quantity in the requests or limits of a pod; raises QuantityError.

    The API rounds these up to thousandths. The suffix stays in its family: `0.5` is `500m`, `1024Mi` is `1Gi`. A text
    that Go has printed stays the same.
    """
    sign, whole, fraction, suffix = _split(quantity)
    scale = _scale(suffix, quantity)
    if _is_kept(whole, fraction, suffix):
        return text_of(quantity)
    millis = _rounded_up(whole, fraction, scale, _MILLIS)
    if suffix in _BINARY:
        millis = min(_MOST * _MILLIS, millis)
    if millis == 0:
        return "0"
    is_binary = suffix in _BINARY and millis >= 1024 * _MILLIS and millis % _MILLIS == 0
    with_exponent = suffix not in _BINARY and suffix not in _DECIMAL
    printed = _binary_si(millis // _MILLIS) if is_binary else _decimal(millis, with_exponent=with_exponent)
    return f"-{printed}" if sign == "-" else printed


def canonical_list(resources: ResourceList) -> ResourceList:
    """Return the resources with canonical quantities; raises QuantityError."""
    return {name: canonical(quantity) for name, quantity in resources.items()}


def _is_kept(whole: str, fraction: str, suffix: str) -> bool:
    """True for text that Go prints as it was written: nearly canonical, and small enough for an int64."""
    whole = whole.lstrip("0") or "0"
    if suffix in _BINARY:
        digits = len(whole) + _BINARY[suffix] * 3 // 10
        return not fraction and digits <= _BINARY_DIGITS and int(whole) % 8 != 0
    exponent = (_DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])) - len(fraction)
    if exponent < _LEAST_EXPONENT or exponent % 3:
        return False
    text = whole + fraction
    return len(text) <= _INT64_DIGITS and not text.startswith("0") and not text.endswith("000")


def _binary_si(count: int) -> str:
    names = ("", *_BINARY)
    power = 0
    while count % 1024 == 0:
        count, power = count // 1024, power + 1
    return f"{count}{names[power]}"


def _decimal(millis: int, *, with_exponent: bool) -> str:
    exponent = _LEAST_EXPONENT
    while millis % 1000 == 0 and (with_exponent or exponent < _MOST_EXPONENT):
        millis, exponent = millis // 1000, exponent + 3
    if with_exponent:
        return f"{millis}e{exponent}" if exponent else str(millis)
    return f"{millis}{next(name for name, power in _DECIMAL.items() if power == exponent)}"


def _split(quantity: Quantity) -> tuple[str, str, str, str]:
    """The sign, the digits before and after the point, and the suffix."""
    match = _FORM.fullmatch(text_of(quantity))
    if match is None:
        raise _error(quantity)
    sign, whole, fraction, bare_fraction, suffix = match.groups()
    return sign, whole or "0", fraction or bare_fraction or "", suffix


def _rounded_up(whole: str, fraction: str, scale: tuple[int, int], parts: int) -> int:
    """The amount in parts of one, such as thousandths."""
    fraction = fraction.rstrip("0")
    numerator, denominator = scale
    rounded: int = -(-int(whole + fraction) * numerator * parts // (denominator * 10 ** len(fraction)))
    return rounded


def text_of(quantity: Quantity) -> str:
    """Return the text that the API machinery parses. Raises QuantityError."""
    # It gets YAML numbers as JSON text, in which Go prints large and small floats with an exponent too.
    text = quantity.strip() if isinstance(quantity, str) else repr(quantity)
    if isinstance(quantity, float) and _PLAIN_FLOATS[0] <= abs(quantity) < _PLAIN_FLOATS[1]:
        text = f"{Decimal(text).normalize():f}"
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
