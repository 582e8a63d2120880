"""Prints a quantity as go-spew prints Go's resource.Quantity: value, scale, cached text and format.

Covers quantities that ParseQuantity keeps as an int64 after the API's rounding up to milli. Go keeps larger ones and
binary fractions as big decimals, which cannot be printed here.
"""

import re
from typing import Any

# Possessive: a manifest's text of many zeros would take quadratic time otherwise.
_FORM = re.compile(r"([+-]?)0*+([0-9]*+)(?:\.([0-9]*+))?(?:[eE]([+-]?[0-9]{1,9})|([A-Za-z]*))", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_INT64_DIGITS = 18
_BINARY_DIGITS = 15
_MILLI, _NANO = -3, -9


class NotPrintable(Exception):
    """The value cannot be printed as Go does; the message names it."""


def printed_quantity(quantity: Any) -> str:
    """Return the print of a defaulted quantity. Raises NotPrintable."""
    text = "" if quantity is None else quantity.strip() if isinstance(quantity, str) else repr(quantity)
    if text in ("", "0"):
        # Go's zero Quantity of an absent field has no cached text; the API, and our defaulting, write it as "0".
        return _printed(0, 0, text if isinstance(quantity, int) else "", "")
    match = _FORM.fullmatch(text)
    if match is None:
        raise NotPrintable(text)
    sign, whole, fraction, exponent, suffix = match.groups(default="")
    if exponent:
        value, scale, form = *_decimal(whole or "0", fraction, int(exponent)), "DecimalExponent"
    elif suffix in _BINARY:
        value, scale, form = _binary(whole or "0", fraction, _BINARY[suffix])
    elif suffix in _DECIMAL:
        value, scale, form = *_decimal(whole or "0", fraction, _DECIMAL[suffix]), "DecimalSI"
    else:
        raise NotPrintable(text)
    if scale < _MILLI:
        # The API's defaulting rounds up to milli and drops the cached text.
        value, scale, text = -(-value // 10 ** (_MILLI - scale)), _MILLI, ""
    return _printed(-value if sign == "-" else value, scale, text, form)


def _decimal(whole: str, fraction: str, exponent: int) -> tuple[int, int]:
    scale = exponent - len(fraction)
    if len(whole) + len(fraction) > _INT64_DIGITS or scale < _NANO:
        raise NotPrintable(whole)
    return int(whole + fraction), scale


def _binary(whole: str, fraction: str, exponent: int) -> tuple[int, int, str]:
    if fraction or _BINARY_DIGITS - len(whole) - exponent * 3 // 10 - 1 < 0:
        raise NotPrintable(whole)
    return int(whole) << exponent, 0, "BinarySI"


def _printed(value: int, scale: int, text: str, form: str) -> str:
    amount = f"{{value:(int64){value} scale:(resource.Scale){scale}}}"
    return (
        f"{{i:(resource.int64Amount){amount} d:(resource.infDecAmount){{Dec:(*inf.Dec)<nil>}} "
        f"s:(string){text} Format:(resource.Format){form}}}"
    )
