"""Types of setting values: from a flag's text and from a configuration file's value to the same checked value.

Covers syntax, bounds and units. Which setting has which type is `options`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class SettingError(ValueError):
    """A value that cannot be used; the message says why."""


class ValueType(NamedTuple):
    """How one type of value is read. Both raise SettingError."""

    parse: Callable[[Any], Any]
    """From a plain value, as YAML has it, to the setting's value."""
    from_text: Callable[[str], Any] = str
    """From a flag's text to the plain value."""
    metavar: str = "TEXT"
    """What the help shows for a value."""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise SettingError(f"expected a string, not {_shown(value)}")
    return value


text = ValueType(_text)


def integer(least: int | None = None, most: int | None = None) -> ValueType:
    """A whole number within bounds."""

    def parse(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise SettingError(f"expected a whole number, not {_shown(value)}")
        if (least is not None and value < least) or (most is not None and value > most):
            bounds = f"at least {least}" if most is None else f"between {least} and {most}"
            raise SettingError(f"expected a number {bounds}, not {value}")
        return value

    return ValueType(parse, _integer_from_text, "N")


def _integer_from_text(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise SettingError(f"expected a whole number, not {_shown(value)}") from None


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise SettingError(f"expected true or false, not {_shown(value)}")
    return value


_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}

boolean = ValueType(_boolean, lambda value: _BOOLEANS.get(value.lower(), value), "BOOL")


def duration(per_second: int = 1) -> ValueType:
    """A Go duration of at least 0 as a float in seconds, or as a whole number of 1/`per_second` seconds."""

    def parse(value: Any) -> float | int:
        # Loads the API types too, which the agent's parent process otherwise does without.
        from proto.v1.duration import DurationError, parse_duration  # noqa: PLC0415

        try:
            nanoseconds = parse_duration(_text(value))
        except DurationError as error:
            raise SettingError(str(error)) from None
        if nanoseconds < 0:
            raise SettingError(f"expected a duration of at least 0, not {_shown(value)}")
        return nanoseconds / 1e9 if per_second == 1 else nanoseconds * per_second // 1_000_000_000

    return ValueType(parse, metavar="DURATION")


def _strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise SettingError(f"expected a list of strings, not {_shown(value)}")
    return tuple(_text(item) for item in value)


strings = ValueType(_strings, lambda value: [part for part in value.split(",") if part], "A,B,...")


def _thresholds(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise SettingError(f"expected a map of eviction signal to threshold, not {_shown(value)}")
    return {_text(signal): _text(limit) for signal, limit in value.items()}


def _thresholds_from_text(value: str) -> dict[str, str]:
    pairs = [part.partition("<") for part in value.split(",") if part.strip()]
    if bad := next((signal for signal, sign, _ in pairs if not sign), None):
        raise SettingError(f"expected SIGNAL<THRESHOLD, not {bad!r}")
    return {signal.strip(): limit.strip() for signal, _, limit in pairs}


thresholds = ValueType(_thresholds, _thresholds_from_text, "SIGNAL<VALUE,...")


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value)[:60]
