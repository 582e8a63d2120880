"""Parses and prints Go durations (`1h2m3.5s`) as exact nanoseconds, as time.ParseDuration and Duration.String do."""

import re

NANOSECOND = 1
MICROSECOND = 1000
MILLISECOND = 1000 * MICROSECOND
SECOND = 1000 * MILLISECOND
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

_UNITS = {
    "ns": NANOSECOND,
    "us": MICROSECOND,
    "\u00b5s": MICROSECOND,  # micro sign
    "\u03bcs": MICROSECOND,  # Greek mu
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}
_PART = re.compile("(?:([0-9]+)(?:\\.([0-9]*))?|\\.([0-9]+))(ns|us|\u00b5s|\u03bcs|ms|s|m|h)", re.ASCII)
_MAX = 2**63 - 1
_MAX_LENGTH = 100


class DurationError(ValueError):
    """The text is not a Go duration. The message describes the syntax."""


def parse_duration(text: str) -> int:
    """Return nanoseconds, rounded towards zero. Raises DurationError, also beyond about 292 years."""
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned == "0":
        return 0
    if not unsigned or len(text) > _MAX_LENGTH:
        raise _error(text)
    total = position = 0
    while position < len(unsigned):
        match = _PART.match(unsigned, position)
        if match is None:
            raise _error(text)
        whole, fraction, bare_fraction, unit = match.groups()
        fraction = fraction or bare_fraction or ""
        total += int(whole or "0") * _UNITS[unit] + int(fraction or "0") * _UNITS[unit] // 10 ** len(fraction)
        position = match.end()
    nanoseconds = -total if text[0] == "-" else total
    if not -_MAX - 1 <= nanoseconds <= _MAX:
        raise DurationError(f"{text!r} is out of range for a duration, at most 2562047h47m16.854775807s")
    return nanoseconds


def parse_seconds(text: str) -> float:
    """Return seconds. Raises DurationError."""
    return parse_duration(text) / SECOND


def format_duration(nanoseconds: int) -> str:
    """Return Go's text for a duration: `1h0m0s`, `1m30s`, `1.5s`, `250ms`, `0s`."""
    if nanoseconds < 0:
        return "-" + format_duration(-nanoseconds)
    if nanoseconds == 0:
        return "0s"
    for unit, size in (("ns", NANOSECOND), ("\u00b5s", MICROSECOND), ("ms", MILLISECOND)):
        if nanoseconds < size * 1000:
            return _decimal(nanoseconds, size) + unit
    minutes, rest = divmod(nanoseconds, MINUTE)
    seconds = _decimal(rest, SECOND) + "s"
    if not minutes:
        return seconds
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}h" if hours else "") + f"{minutes}m{seconds}"


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    if not rest:
        return str(whole)
    digits = len(str(unit)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0")


def _error(text: str) -> DurationError:
    return DurationError(
        f"{text[:60]!r} is not a duration: numbers with units ns us ms s m h, for example 1h30m or 1.5s"
    )
