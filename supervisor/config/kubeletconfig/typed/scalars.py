"""Converts scalars of YAML or JSON to the types of the configuration's fields.

It checks types, the ranges of Go's integers, durations and quantities.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MAX_SHOWN = 60


class ConversionError(ValueError):
    """A value of another type than its field's. The message names the field's type."""


def _boolean(plain: Any) -> bool:
    if not isinstance(plain, bool):
        raise ConversionError(f"must be true or false, not {shown(plain)}")
    return plain


def _text(plain: Any) -> str:
    if not isinstance(plain, str):
        hint = " (in quotes, as it looks like one)" if isinstance(plain, bool | int | float) else ""
        raise ConversionError(f"must be text{hint}, not {shown(plain)}")
    return plain


def _integer(least: int, most: int) -> Callable[[Any], int]:
    def convert(plain: Any) -> int:
        if isinstance(plain, float) and plain.is_integer() and abs(plain) < 2**53:
            plain = int(plain)  # YAML's 1e3 and 5.0 are whole numbers to the kubelet too
        if not isinstance(plain, int) or isinstance(plain, bool):
            raise ConversionError(f"must be a whole number, not {shown(plain)}")
        if not least <= plain <= most:
            raise ConversionError(f"must be a whole number from {least} to {most}, not {shown(plain)}")
        return plain

    return convert


_int64 = _integer(-(2**63), 2**63 - 1)


def _float(plain: Any) -> float:
    if not isinstance(plain, int | float) or isinstance(plain, bool):
        raise ConversionError(f"must be a number, not {shown(plain)}")
    try:
        return float(plain)
    except OverflowError:
        raise ConversionError(f"must be a number, not {shown(plain)}") from None


def _duration(plain: Any) -> int:
    if not isinstance(plain, str):
        hint = "; add a unit, as in 30s" if isinstance(plain, int | float) and not isinstance(plain, bool) else ""
        raise ConversionError(f"must be a duration such as 10s or 1h30m, not {shown(plain)}{hint}")
    # Imported here, because the API types come with it, which the supervisor's process does not load.
    from proto.v1.scalars.duration import DurationError, parse_duration  # noqa: PLC0415

    try:
        return parse_duration(plain)
    except DurationError as error:
        raise ConversionError(str(error)) from None


def _time_or_duration(plain: Any) -> int:
    return _int64(plain) if isinstance(plain, int) and not isinstance(plain, bool) else _duration(plain)


def _quantity(plain: Any) -> str:
    from proto.v1.scalars.quantity import QuantityError, parse  # noqa: PLC0415 - see _duration

    if not isinstance(plain, str | int | float):
        raise ConversionError(f"must be a quantity such as 500m or 1Gi, not {shown(plain)}")
    try:
        parse(plain)
    except QuantityError as error:
        raise ConversionError(str(error)) from None
    return plain if isinstance(plain, str) else repr(plain)


SCALARS: dict[str, Callable[[Any], Any]] = {
    "bool": _boolean,
    "string": _text,
    "int32": _integer(-(2**31), 2**31 - 1),
    "uint32": _integer(0, 2**32 - 1),
    "int64": _int64,
    "float64": _float,
    "duration": _duration,
    "time-or-duration": _time_or_duration,
    "quantity": _quantity,
}
"""Converters by the name of `schema.Kind`. Each raises ConversionError."""


def shown(value: Any) -> str:
    """A short text of a value for messages; collections by their YAML type."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list | tuple):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) > 10**_MAX_SHOWN:
        return "a number of that many digits"
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
