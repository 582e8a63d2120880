"""Makes foreign text safe for a path, a log line, a table or a terminal.

Names, messages and events come from manifests, the API server, runtimes and containers. Such text must not lead out of
its directory, forge a log line, or send control sequences to a terminal.
"""

from __future__ import annotations

import re

MAX_COMPONENT_BYTES = 255
"""NAME_MAX of Linux."""

_COMPONENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters that change the direction of the text around them, which can disguise a line (CVE-2021-42574)."""
_UNSAFE = f"\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\u2028\u2029\ufeff\ud800-\udfff{_BIDI}"
_NOT_SHOWN = re.compile(f"[{_UNSAFE}]")
_NOT_ON_A_LINE = re.compile(f"[\t\n{_UNSAFE}]")
_NOT_IN_JSON = re.compile(f"[\\x7f-\\x9f\u2028\u2029\ufeff\ud800-\udfff{_BIDI}]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def component_problem(text: str) -> str:
    """The reason why `text` cannot name the directory of a pod, container or volume; empty when it can.

    Letters, digits, `.`, `_` and `-` are valid, a letter or digit first. This allows every name of the API, UUIDs and
    the hashes that are UIDs of static pods.
    """
    if not text:
        return "it is empty"
    if not _COMPONENT.fullmatch(text):
        return "it may have letters, digits, '.', '_' and '-' only, a letter or digit first"
    if len(text) > MAX_COMPONENT_BYTES:
        return f"it is longer than {MAX_COMPONENT_BYTES} bytes"
    return ""


def component(text: str) -> str:
    """`text`, as a part of a path. Raises ValueError for text that would lead to another directory.

    It accepts every name that a directory entry can have, for names that were read from the disk.
    """
    if text in ("", ".", "..") or "/" in text or "\0" in text:
        raise ValueError(f"cannot use {one_line(text[:MAX_COMPONENT_BYTES])!r} in a path: it names another directory")
    return text


def shown(text: str) -> str:
    """Escape control characters for a terminal; line ends and tabs stay."""
    return _NOT_SHOWN.sub(_escaped, text)


def one_line(text: str) -> str:
    """Escape control characters for a log line or a table cell, line ends and tabs too."""
    return _NOT_ON_A_LINE.sub(_escaped, text)


def clipped(text: str) -> str:
    """`text` for a message, of at most 100 characters."""
    return text if len(text) <= 100 else f"{text[:100]}..."


def indented(text: str) -> str:
    """Indent lines below a log line, so that none of them looks like another log line."""
    return "".join(f"    {line}\n" for line in shown(text).splitlines())


def shown_json(text: str) -> str:
    """Escape, in JSON's notation, the unsafe characters that JSON encoders leave. The values stay the same."""
    return _NOT_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
