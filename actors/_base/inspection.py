"""Reads an actor's state from outside its mailbox thread: bounded, without calling any code of the actor.

The I/O thread does this, so that it works while a handler hangs. It reads attributes from `__dict__` and slots, and the
items of built-in containers. It runs no property, no `__repr__`, no `__getattr__` and no iterator of a subclass.
"""

from __future__ import annotations

import enum
import re
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

from proto.common.secret_names import HIDDEN, hides, safe

MOST_VALUES = 2000
"""In one answer; some 3 ms."""
MOST_ITEMS = 250
"""Of one container. More than Settings has fields, so that each is shown."""
MOST_TEXT = 200
DEPTH = 3
MOST_DEPTH = 8
MOST_PATH = 1024
_SHOWN_VALUE_OF_PAIR = "value"
_PART = re.compile(r"\.?([^.\[\]]+)|\[([^\[\]]*)\]")
_OPAQUE = (type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.CoroutineType)

_LEAVES = (str, bytes, bytearray, memoryview, int, float, enum.Enum, *_OPAQUE)


class NoSuchPath(LookupError):
    """The path names nothing; the message says which part and what there is."""


def parse(path: str) -> tuple[str, ...]:
    """The parts of `workers[default/web].stage`; brackets enclose keys that have dots. Raises NoSuchPath."""
    parts, at = [], 0
    if len(path) > MOST_PATH:
        raise NoSuchPath(f"cannot read a path of {len(path)} characters: at most {MOST_PATH}")
    while at < len(path):
        found = _PART.match(path, at)
        if found is None:
            raise NoSuchPath(f"cannot read the path at {path[at:]!r}: write NAME.NAME[KEY]")
        parts.append(found[1] if found[1] is not None else found[2])
        at = found.end()
    return tuple(parts)


def find(root: object, path: str) -> tuple[object, str, bool]:
    """The value of a path, the name of its last part, and True when that may be secret. Raises NoSuchPath."""
    value, name, hidden = root, "", False
    for part in parse(path):
        for name, child in members(value):
            if name == part:
                hidden = hidden or _is_hidden(value, name)
                value = child
                break
        else:
            names = ", ".join(name for name, _ in list(members(value))[:20])
            raise NoSuchPath(f"there is no {part!r} in {kind_of(value)}; there are: {names or 'none'}")
        name = part
    return value, name, hidden


def inspect(root: object, path: str, depth: int = DEPTH) -> Any:
    """The value of a path as plain values, `depth` levels deep. Raises NoSuchPath."""
    value, _, hidden = find(root, path)
    if hidden:
        return HIDDEN
    return _Reading().plain(value, max(0, min(depth, MOST_DEPTH)))


class _Reading:
    def __init__(self) -> None:
        self._left = MOST_VALUES

    def plain(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if value is None or type(value) in (bool, float, int, str):
            return _scalar(value)
        if _is(value, bytes | bytearray | memoryview):
            return f"<{len(value)} bytes>"
        if _is(value, enum.Enum):
            return str(object.__getattribute__(value, "_name_"))
        return f"<{kind_of(value)}>" if _is(value, _OPAQUE) else self._members(value, depth)

    def _members(self, value: Any, depth: int) -> Any:
        items = list(members(value))
        listed = _is(value, list | tuple | set | frozenset | deque) and not _fields(value)
        if not items:
            return ([] if listed else {}) if _is_builtin(value) else f"<{kind_of(value)}>"
        if depth <= 0 or self._left <= 0:
            return f"<{kind_of(value)}, {len(items)} {'items' if _is_builtin(value) else 'fields'}>"
        shown: dict[str, Any] = {}
        for name, child in items[:MOST_ITEMS]:
            if self._left <= 0:
                break
            shown[name] = HIDDEN if _is_hidden(value, name) else self.plain(child, depth - 1)
        if len(items) > len(shown):
            shown["..."] = f"{len(items) - len(shown)} more"
        return list(shown.values()) if listed else shown


def _scalar(value: Any) -> Any:
    if type(value) is str:
        text = safe(value)
        return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}... ({len(value)} characters)"
    if type(value) is int and value.bit_length() > 63:
        return f"<int of {value.bit_length()} bits>"
    return value


def members(value: Any) -> Iterator[tuple[str, object]]:
    """The named parts of a value: keys, indices or attributes."""
    if _is(value, dict):
        for key, child in list(dict.items(value)):  # one step of the interpreter, so that no other thread interferes
            yield _label(key), child
    elif _is(value, tuple) and (names := _fields(value)):
        yield from zip(names, tuple.__iter__(value), strict=False)
    elif _is(value, list | tuple | set | frozenset | deque):
        for index, child in enumerate(_copied(value)):
            yield str(index), child
    elif not _is(value, _LEAVES):
        yield from _attributes(value)


def _is(value: object, kinds: Any) -> bool:
    """As isinstance, which may call the value's `__class__`."""
    return issubclass(type(value), kinds)


def _copied(value: Any) -> list[Any]:
    for base in (list, tuple, set, frozenset, deque):
        if _is(value, base):
            return list(base.__iter__(value))
    return []


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    kind = type(value)
    seen = set()
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        own = {}
    if _is(own, dict):
        for name, child in list(dict.items(own)):
            seen.add(name)
            yield str(name), child
    for base in kind.__mro__:
        for name, descriptor in list(vars(base).items()):
            if _is(descriptor, types.MemberDescriptorType) and name not in seen and name[:2] != "__":
                seen.add(name)
                try:
                    yield name, descriptor.__get__(value, kind)
                except AttributeError:
                    continue  # a slot without a value


def _fields(value: Any) -> tuple[str, ...]:
    names = vars(type(value)).get("_fields") if _is(value, tuple) else None
    return names if isinstance(names, tuple) else ()


def _is_builtin(value: object) -> bool:
    return _is(value, dict | list | tuple | set | frozenset | deque)


def _is_hidden(owner: object, name: str) -> bool:
    """By its name; and the value of a name and value pair, as of a variable of a container."""
    if hides(name):
        return True
    return name == _SHOWN_VALUE_OF_PAIR and any(one == "name" for one, _ in members(owner))


def _label(key: Any) -> str:
    if _is(key, str):
        return safe(str.__str__(key))
    if _is(key, enum.Enum):
        return str(object.__getattribute__(key, "_name_"))
    if type(key) in (int, float, bool):
        return str(key)
    if _is(key, tuple):
        return "/".join(_label(one) for one in tuple.__iter__(key))
    if _is(key, bytes):
        return f"<{len(key)} bytes>"
    parts = [_label(child) for _, child in _attributes(key) if _is(child, str | int | tuple)]
    return "/".join(parts) or f"<{kind_of(key)}>"


def kind_of(value: object) -> str:
    """The name of a value's type."""
    return type(value).__name__
