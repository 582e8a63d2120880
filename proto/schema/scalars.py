"""Converts YAML scalars by Kubernetes' rules to null, a boolean, a number or text.

Kubernetes reads YAML 1.1 with Go's rules, which differ from PyYAML's: `12:30` and `2026-01-01` are text, `1e3` is a
number. The rules are for plain scalars; quoted scalars are always text. Only the core tags are supported.
"""

import re
from typing import Any

Scalar = str | int | float | bool | None

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y"})
_FALSE = frozenset({"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N"})
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|0[0-7]+|0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
# In Go, integers beyond 64 bits become floats. The limit also keeps int() cheap.
_MAX_DIGITS = 40


def plain_scalar(text: str) -> Scalar:
    """Return the value of an unquoted scalar."""
    if text in _NULLS:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    digits = text.replace("_", "")
    if len(text) <= _MAX_DIGITS and _INTEGER.fullmatch(digits):
        return _integer(digits)
    if len(text) <= _MAX_DIGITS and _FLOAT.fullmatch(digits):
        number = float(digits)
        return number if abs(number) != float("inf") else text
    return text


def tagged_scalar(tag: str, text: str) -> Scalar:
    """Return the value of a scalar with a core tag such as `!!str`; raises ValueError for any other tag or misfit."""
    if tag in ("tag:yaml.org,2002:str", "!", "tag:yaml.org,2002:binary", "tag:yaml.org,2002:timestamp"):
        return text
    value: Scalar = plain_scalar(text)
    wanted: Any = {
        "tag:yaml.org,2002:int": int,
        "tag:yaml.org,2002:bool": bool,
        "tag:yaml.org,2002:float": (int, float),
        "tag:yaml.org,2002:null": type(None),
    }.get(tag)
    fits = wanted is not None and isinstance(value, wanted)
    if not fits:
        raise ValueError("the tag (!NAME) does not fit; leave it out, or put text that begins with ! in quotes")
    return value


def _integer(digits: str) -> int:
    sign = -1 if digits[0] == "-" else 1
    unsigned = digits.lstrip("+-")
    if len(unsigned) > 1 and unsigned[0] == "0" and unsigned[1].isdigit():
        return sign * int(unsigned, 8)
    return sign * int(unsigned, 0)
