"""Text of others made safe for where it goes: a path, a log line, a table, a terminal.

Names, messages and events come from manifests, the API server, runtimes and containers. What they hold must not leave
its directory, begin a log line of its own, or command the terminal it is read on.
"""

from __future__ import annotations

import re

MAX_COMPONENT_BYTES = 255
"""NAME_MAX of Linux."""

_COMPONENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""What turns the direction of the text around it: it hides what a line really says (CVE-2021-42574)."""
_UNSAFE = f"\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\u2028\u2029\ufeff\ud800-\udfff{_BIDI}"
_NOT_SHOWN = re.compile(f"[{_UNSAFE}]")
_NOT_ON_A_LINE = re.compile(f"[\t\n{_UNSAFE}]")
_NOT_IN_JSON = re.compile(f"[\\x7f-\\x9f\u2028\u2029\ufeff\ud800-\udfff{_BIDI}]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def component_problem(text: str) -> str:
    """Why `text` is no name for a directory of a pod, a container or a volume; empty when it is one.

    Letters, digits, `.`, `_` and `-` are taken, a letter or digit first. That has room for every name of the API, for
    a UUID and for the hash that is a static pod's UID.
    """
    if not text:
        return "it is empty"
    if not _COMPONENT.fullmatch(text):
        return "it may have letters, digits, '.', '_' and '-' only, a letter or digit first"
    if len(text) > MAX_COMPONENT_BYTES:
        return f"it is longer than {MAX_COMPONENT_BYTES} bytes"
    return ""


def component(text: str) -> str:
    """`text`, as a part of a path. Raises ValueError for what would lead to another directory.

    It takes more than `component_problem`: any name that a directory may have, as one read from the disk is.
    """
    if text in ("", ".", "..") or "/" in text or "\0" in text:
        raise ValueError(f"cannot use {one_line(text[:MAX_COMPONENT_BYTES])!r} in a path: it names another directory")
    return text


def shown(text: str) -> str:
    """For a terminal: line ends and tabs stay, other control characters are escaped."""
    return _NOT_SHOWN.sub(_escaped, text)


def one_line(text: str) -> str:
    """For a log line or a cell of a table: line ends and tabs are escaped, too."""
    return _NOT_ON_A_LINE.sub(_escaped, text)


def indented(text: str) -> str:
    """Lines for a log below its own line: none of them can pass for the beginning of another one."""
    return "".join(f"    {line}\n" for line in shown(text).splitlines())


def shown_json(text: str) -> str:
    """JSON for a terminal: what its encoder leaves as it is, as escapes of JSON. It stays the same JSON."""
    return _NOT_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
